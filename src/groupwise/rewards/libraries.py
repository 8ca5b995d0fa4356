"""Libraries that a scorer uses and that are not installed with the package."""

from __future__ import annotations

import importlib
from types import ModuleType

from groupwise.errors import ConfigError


def library(module: str, *, package: str, extra: str, scorer: str) -> ModuleType:
    """Import a module when a scorer is first called, so that only those who use the scorer need its library.

    A scorer asks for it before it looks at its rows: then a missing library is found when the rewards are built, which
    is before a model loads.

    Args:
        module: what is imported.
        package: what it is called in the package index.
        extra: the extra of groupwise that installs it.
        scorer: who needs it.

    Raises:
        ConfigError: it is not installed, or cannot be imported; names the remedy.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        what = (
            "is not installed" if isinstance(error, ModuleNotFoundError) else f"cannot be imported ({error})"
        )
        raise ConfigError(
            f"the scorer {scorer!r} needs the package {package}, which {what}; run pip install 'groupwise[{extra}]', "
            f"or pip install {package}"
        ) from error
