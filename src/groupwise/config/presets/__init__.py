"""Published algorithms as data: each states every choice and cites its paper. The trainer never sees a name."""

from __future__ import annotations

import copy
import functools
from importlib import resources
from typing import Any

from groupwise import registry
from groupwise.config import yaml
from groupwise.errors import ConfigError


@functools.cache
def names() -> tuple[str, ...]:
    """The presets on offer, sorted."""
    folder = resources.files(__name__)
    return tuple(sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml")))


def text(name: str) -> str:
    """The preset's file as it stands, citations included.

    Raises:
        ConfigError: no such preset; names the nearest.
    """
    if name == "dpo":
        raise ConfigError("objective: dpo trains on given pairs, not by an objective; set method to dpo")
    if name not in names():
        near = registry.nearest(name, names())
        hint = f"did you mean {near!r}? " if near else ""
        raise ConfigError(f"objective: there is no preset {name!r}: {hint}there are {', '.join(names())}")
    return (resources.files(__name__) / f"{name}.yaml").read_text(encoding="utf-8")


def load(name: str) -> dict[str, Any]:
    """The preset as a partial configuration tree, the caller's own."""
    return copy.deepcopy(_read(name))


@functools.cache
def _read(name: str) -> dict[str, Any]:
    tree: dict[str, Any] = yaml.parse(text(name), place=f"preset {name}")
    return tree
