"""Calling transformers without its chatter, and with its many kinds of failure turned into one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from huggingface_hub.utils import (  # type: ignore[attr-defined]
    are_progress_bars_disabled,
    enable_progress_bars,
)
from transformers.utils import logging

from groupwise.errors import GroupwiseError, ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@contextmanager
def quiet() -> Iterator[None]:
    """Inside, transformers logs errors alone and draws no bars; downloads keep theirs, since they can take long.

    What was set before is set again afterwards.
    """
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    downloads = not are_progress_bars_disabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if downloads:
        enable_progress_bars()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def reading(what: str, *, remedy: str = "", trust: str = "model.trust_remote_code=true") -> Iterator[None]:
    """`quiet`, and whatever the libraries raise on a missing or damaged file becomes one sentence.

    Only calls into transformers and its like belong inside: they raise OSError, ValueError, KeyError, plain Exception
    and more for the same causes, so everything is caught.

    Args:
        what: what is being read, to start the sentence with.
        remedy: what to do about it, to end the sentence with.
        trust: the setting that lets code be run that comes with it.

    Raises:
        ModelError: anything but an error of ours was raised.
    """
    with quiet():
        try:
            yield
        except GroupwiseError:
            raise
        except Exception as error:
            if "trust_remote_code" in str(error):
                raise ModelError(
                    f"{what} comes with Python code of its own, which is not run by default; read that code, and set "
                    f"{trust} if you trust it"
                ) from error
            raise ModelError(f"{what} cannot be read: {_gist(error)}{remedy and '; ' + remedy}") from error


def portable(tokenizer: PreTrainedTokenizerBase) -> None:
    """Drop what `from_pretrained` noted of this machine; it would be saved with the tokenizer."""
    for key in ("is_local", "local_files_only"):
        tokenizer.init_kwargs.pop(key, None)


def _gist(error: Exception) -> str:
    """The first two lines of a message, shortened; libraries write whole pages."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[:2]).rstrip(" .:")
    if len(text) > 300:
        text = text[:297].rstrip() + "..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
