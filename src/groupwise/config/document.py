"""The reference of settings in docs/configuration.md, from the models themselves.

`python -m groupwise.config.document docs/configuration.md` writes it anew between the page's markers; a test compares.
"""

from __future__ import annotations

import inspect
import re
import string
import sys
import types
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from groupwise import registry
from groupwise.config.base import said
from groupwise.config.choice import Choice
from groupwise.config.keys import section_of
from groupwise.config.objective import ADVANTAGES, AGGREGATIONS, KL_CONTROLLERS, SURROGATES
from groupwise.config.ranges import LEARNING_RATE_FULL, LEARNING_RATE_LORA, RANGES
from groupwise.config.run import RunConfig
from groupwise.objective.kl import KL_ESTIMATORS
from groupwise.objective.ratios import RATIOS

_MARKS = re.compile(r"(<!-- settings -->\n).*?(<!-- end -->)", re.DOTALL)
_PLAIN = {bool: "true or false", int: "whole number", float: "number", str: "text", Any: "anything"}
_BOUNDS = ((Ge, "ge", "≥"), (Gt, "gt", ">"), (Le, "le", "≤"), (Lt, "lt", "<"))

CHOICES = {
    "objective.advantage": ADVANTAGES,
    "objective.surrogate": SURROGATES,
    "objective.aggregation": AGGREGATIONS,
    "objective.kl.controller": KL_CONTROLLERS,
}
"""Setting whose value is a function of a folder, to that folder."""


def reference() -> str:
    """Markdown: a table for every section, every folder of functions to choose from, and the usual ranges."""
    first: dict[type[BaseModel], str] = {}
    parts = []
    for key, section in sections():
        if first.setdefault(section, key) == key:
            parts.append(_table(section, key))
        else:
            parts.append(f"## `{key}`\n\nAs [`{first[section]}`](#{_anchor(first[section])}).\n")
    parts += [_choices(key, package) for key, package in CHOICES.items()]
    return "\n".join([*parts, _ranges()])


def sections(section: type[BaseModel] = RunConfig, key: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """(dotted key, section) for the whole tree, a section before those inside it; `[]` and `.NAME` mark repetition."""
    yield key, section
    for name, field in section.model_fields.items():
        inner = _inner(field)
        if inner is not None:
            yield from sections(inner, f"{key}.{name}".lstrip(".") + _repeated(field))


def fill(page: str) -> str:
    """The page with the reference written anew between `<!-- settings -->` and `<!-- end -->`.

    Raises:
        ValueError: the page has not exactly one place for it.
    """
    text = reference()
    page, count = _MARKS.subn(lambda found: f"{found[1]}{text}{found[2]}", page)
    if count != 1:
        raise ValueError(f"the page has {count} places for the settings, not one")
    return page


def _inner(field: FieldInfo) -> type[BaseModel] | None:
    inner = section_of(field.annotation)
    return None if inner is Choice else inner


def _repeated(field: FieldInfo) -> str:
    """What marks a section of which there may be several: `[]` for a list, `.NAME` for a mapping by name."""
    if isinstance(field.default, tuple):
        return "[]"
    return ".NAME" if isinstance(field.default, dict) else ""


def _table(section: type[BaseModel], key: str) -> str:
    rows = [_row(name, field, key) for name, field in section.model_fields.items()]
    title = f"## `{key}`" if key else "## The whole"
    text = " ".join((inspect.getdoc(section) or "").split())
    return f"{title}\n\n{text}\n\n" + _lines(("setting", "value", "default", "meaning"), rows)


def _row(name: str, field: FieldInfo, key: str) -> tuple[str, ...]:
    inner = _inner(field)
    dotted = f"{key}.{name}".lstrip(".")
    if inner is not None:
        link = f"[`{name}`](#{_anchor(dotted + _repeated(field))})"
        optional = " or null" if type(None) in typing.get_args(field.annotation) else ""
        kind = {"[]": "list of sections", ".NAME": "sections by name"}.get(_repeated(field), "section")
        default = "null" if field.default is None else "empty" if field.default in ((), {}) else "its own"
        return link, kind + optional, default, field.description or ""
    kind = kind_of(field.annotation, tuple(field.metadata))
    if dotted in CHOICES:
        kind = f"[name, or name with settings](#{_anchor(dotted, of='functions')})"
    elif dotted == "objective.ratio":
        kind = _words(sorted(RATIOS))
    elif dotted == "objective.kl.estimator":
        kind = _words(sorted(KL_ESTIMATORS))
    default = "required" if field.is_required() else f"`{_spelled(field.default)}`"
    return f"`{name}`", kind, default, field.description or ""


def kind_of(annotation: Any, metadata: tuple[Any, ...] = ()) -> str:
    """What a setting takes, in words, with its bounds.

    Args:
        annotation: a type as the models write it.
        metadata: what `Annotated` or the field adds to it; bounds are read, all else is passed over.
    """
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return kind_of(inner[0], (*inner[1:], *metadata))
    if origin in (typing.Union, types.UnionType):
        several = [kind_of(one, metadata) for one in inner if one is not type(None)]
        return " or ".join([*several, *(["null"] if type(None) in inner else [])])
    if origin is typing.Literal:
        return _words(inner)
    if origin is tuple:
        one = [kind_of(each) for each in inner if each is not Ellipsis]
        return f"list of: {one[0]}" if inner[-1] is Ellipsis else f"[{', '.join(one)}]"
    if origin is dict or annotation is dict:
        return "mapping"
    bounds = _bounds(metadata)
    return _PLAIN.get(annotation, str(annotation)) + (f" {bounds}" if bounds else "")


def _bounds(metadata: tuple[Any, ...]) -> str:
    marks = [part for mark in metadata for part in getattr(mark, "metadata", (mark,))]
    found: dict[str, str] = {}
    for mark in marks:
        for kind, attribute, sign in _BOUNDS:
            if isinstance(mark, kind):
                value = getattr(mark, attribute)
                found[sign] = f"{sign} {'2^63 - 1' if value == 2**63 - 1 else f'{value:g}'}"
    return " and ".join(found.values())


def _choices(key: str, package: str) -> str:
    """The functions of a folder with their formulas and settings."""
    rows = []
    for name in registry.names(package):
        function = registry.find(package, name)
        module = inspect.getmodule(function)
        formula = getattr(module, "FORMULA", "")
        text = "".join(before + (field or "") for before, field, _, _ in string.Formatter().parse(formula))
        settings = registry.settings(function)
        spelled = ", ".join(f"`{k}: {_spelled(p.default)}`" for k, p in settings.items())
        meaning = (inspect.getdoc(module) or "").partition("\n")[0]
        rows.append((f"`{name}`", meaning, f"`{' '.join(text.split())}`", spelled or "none"))
    where = f"From `{package.replace('.', '/')}`, or your own by [`file.py:function`](extending.md)."
    return f"## `{key}`: functions\n\n{where}\n\n" + _lines(("name", "what", "formula", "settings"), rows)


def _ranges() -> str:
    """What practice uses, and beyond what `check` asks."""
    several = (*RANGES, LEARNING_RATE_FULL, LEARNING_RATE_LORA)
    rows = [
        (
            f"`{one.key}`",
            f"{one.low:,g} to {one.high:,g}",
            f"{_short(one.least)} to {one.most:,g}",
            one.why,
            one.source,
        )
        for one in several
    ]
    what = "Outside the second range `groupwise check` asks once whether it is meant, and so does a run at its start."
    return f"## Usual ranges\n\n{what}\n\n" + _lines(
        ("setting", "usual", "not questioned", "why", "whose figures"), rows
    )


def _short(value: float) -> str:
    return f"{value:,g}" if value >= 1 else f"{value:.3g}"


def _anchor(key: str, of: str = "") -> str:
    """The anchor of a title as the site and GitHub make it."""
    text = f"{key}-{of}" if of else key
    return re.sub(r"[^a-z0-9_-]", "", text.lower())


def _words(values: typing.Iterable[Any]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def _spelled(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return "required"
    if isinstance(value, BaseModel):
        return str(getattr(value, "name", ""))
    if isinstance(value, tuple):
        return f"[{', '.join(map(_spelled, value))}]"
    return value if isinstance(value, str) else said(value)


def _lines(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        file = Path(argument)
        file.write_text(fill(file.read_text(encoding="utf-8")), encoding="utf-8")
