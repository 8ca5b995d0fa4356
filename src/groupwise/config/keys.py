"""The dotted keys of the configuration: those that there are, and those of a given tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel

from groupwise.config.choice import Choice
from groupwise.config.run import RunConfig

_LESS_LIKELY = (
    "critic.",
    "prompts.train.",
    "prompts.held_out.",
    "prompts.columns.",
    "prompts.curriculum.",
    "rollout.temperature_schedule.",
    "rollout.vllm.",
    "rewards.schedule",
)
"""Sections (and a key) whose keys a bare word means only where no other section has it."""


def leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) for every value of a nested tree; empty mappings and lists are values."""
    items: Any = None
    if isinstance(tree, Mapping) and tree:
        items = tree.items()
    elif isinstance(tree, list | tuple) and tree and isinstance(tree[0], Mapping):
        items = enumerate(tree)
    if items is None:
        yield prefix, tree
        return
    for key, value in items:
        yield from leaves(value, f"{prefix}.{key}" if prefix else str(key))


def section_of(annotation: Any) -> type[BaseModel] | None:
    """The section class inside an annotation such as `LoraConfig | None` or `tuple[RewardConfig, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in get_args(annotation):
        found = section_of(inner)
        if found is not None:
            return found
    return None


def known_keys(section: type[BaseModel] = RunConfig, prefix: str = "") -> list[str]:
    """Every dotted key of the configuration, choices and free mappings as one key."""
    keys: list[str] = []
    for name, field in section.model_fields.items():
        inner = section_of(field.annotation)
        if inner is None or inner is Choice or isinstance(field.default, dict):
            keys.append(prefix + name)
        else:
            keys += known_keys(inner, f"{prefix}{name}.")
    return keys


def by_last_part() -> dict[str, str]:
    """Last part of each key to the whole key; of several, the first, the less likely ones last."""
    likely = sorted(known_keys(), key=lambda key: key.startswith(_LESS_LIKELY))
    return {key.rsplit(".", 1)[-1]: key for key in reversed(likely)}
