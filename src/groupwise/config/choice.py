"""A choice from a registry: a name and the settings of that function, checked against its signature."""

from __future__ import annotations

import inspect
import os
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from groupwise import registry
from groupwise.config.base import Bool, Float, FromBase, Int, Text, said
from groupwise.errors import ConfigError

_TYPES: dict[Any, Any] = {int: Int, float: Float, bool: Bool, str: Text}


class Choice(BaseModel):
    """`name` alone, or `{name: ..., setting: value, ...}` with the function's keyword-only arguments."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: Text

    @property
    def settings(self) -> dict[str, Any]:
        """The settings given, without the name."""
        return dict(self.model_extra or {})

    def checked(self, package: str, *, base: Path | None = None) -> Choice:
        """This choice with every setting of the function stated, defaults filled in.

        Raises:
            ValueError: an unknown name or setting, or a value outside its type; says which.
        """
        try:
            function = registry.find(package, self.name, base=base)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        values = check_settings(function, self.settings)
        return Choice(name=self.name, **values)

    def bind(self, package: str, *, base: Path | None = None) -> Callable[..., Any]:
        """The function with these settings filled in."""
        return registry.bind(registry.find(package, self.name, base=base), self.settings)


def as_choice(value: Any) -> Any:
    """Let a bare name stand for a choice with default settings."""
    return as_named(value, "name")


def as_named(value: Any, key: str) -> Any:
    """Let a bare text or path stand for an entry in which it stands under `key`."""
    return {key: value} if isinstance(value, str | os.PathLike) else value


def _field_type(annotation: Any) -> Any:
    """Our forgiving number types in place of the plain ones, also inside unions."""
    if annotation in _TYPES:
        return _TYPES[annotation]
    if typing.get_origin(annotation) is typing.Annotated:
        inner, *limits = typing.get_args(annotation)
        return typing.Annotated[(_field_type(inner), *limits)]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return typing.Union[tuple(_field_type(a) for a in typing.get_args(annotation))]  # noqa: UP007
    return annotation


def check_settings(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of `function` by name: those given, checked by the type it annotates, and its defaults.

    Raises:
        ValueError: an unknown setting (the nearest is named) or a wrong value.
    """
    parameters = registry.settings(function)
    try:
        registry.bind(function, given)
    except ConfigError as error:
        raise ValueError(str(error)) from None
    values: dict[str, Any] = {}
    for key, parameter in parameters.items():
        if key not in given:
            if parameter.default is not inspect.Parameter.empty:
                values[key] = parameter.default
            continue
        try:
            values[key] = TypeAdapter(_field_type(_annotation(function, parameter))).validate_python(
                given[key]
            )
        except ValidationError as error:
            raise ValueError(f"{key}: {plain_message(error.errors()[0])}") from None
    return values


def path_settings(function: Callable[..., Any]) -> dict[str, FromBase]:
    """The settings of `function` that are marked as files or folders, with their marks."""
    marks: dict[str, FromBase] = {}
    for key, parameter in registry.settings(function).items():
        annotation = _annotation(function, parameter)
        for part in (annotation, *typing.get_args(annotation)):
            found = [mark for mark in getattr(part, "__metadata__", ()) if isinstance(mark, FromBase)]
            marks.update((key, mark) for mark in found)
    return marks


def _annotation(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """The annotation of one setting as an object. Read alone, since others may name torch for type checkers only."""
    annotation = parameter.annotation
    if annotation is inspect.Parameter.empty:
        return Any
    if isinstance(annotation, str):
        try:
            return eval(annotation, getattr(inspect.unwrap(function), "__globals__", {}))
        except NameError:
            return Any
    return annotation


_SHAPES = {
    "model_type": "a mapping of keys to values",
    "dict_type": "a mapping of keys to values",
    "tuple_type": "a list, for example [a, b]",
}


def plain_message(error: Mapping[str, Any]) -> str:
    """One of pydantic's errors as a short plain clause."""
    kind, given = error["type"], error.get("input")
    if kind == "missing":
        return "it is missing"
    message = str(error["msg"])
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    subject, should, rest = message.partition(" should ")
    if (
        should and subject != "Input" and kind not in _SHAPES
    ):  # "Tuple should have at least 3 items after validation"
        return f"{said(given)} should {rest.replace(' after validation', '')}"
    return f"{said(given)} should be {_SHAPES.get(kind, message.removeprefix('Input should be '))}"


__all__ = ["Choice", "as_choice", "as_named", "check_settings", "path_settings", "plain_message"]
