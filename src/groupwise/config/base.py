"""What every part of the configuration shares: strict sections, forgiving numbers, sentences for errors."""

from __future__ import annotations

import math
import numbers
import os
import re
import reprlib
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

_NONE_WORDS = {"None", "none", "NONE", "nil"}
_TRUE_WORDS = {"true", "yes", "on"}
_FALSE_WORDS = {"false", "no", "off"}
_LONGEST_SHOWN = 200
_LONGEST_FILE_NAME = 255  # in bytes, on every usual file system

_repr = reprlib.Repr()  # bounded, since aliases can make a short YAML text stand for millions of values
_repr.maxlevel, _repr.maxlist, _repr.maxtuple, _repr.maxdict = 4, 10, 10, 10
_repr.maxstring, _repr.maxlong, _repr.maxother = _LONGEST_SHOWN, _LONGEST_SHOWN, _LONGEST_SHOWN


class Section(BaseModel):
    """A frozen group of settings. Unknown keys are errors; defaults live in the fields and nowhere else."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, protected_namespaces=())


def said(value: Any) -> str:
    """A value as a configuration spells it: null, true and false, not Python's words for them; cut when long."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    try:
        text = _repr.repr(value)
    except ValueError:  # Python writes no number of more than 4,300 digits
        return "a number of thousands of digits"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _plain(value: Any) -> Any:
    """A scalar of numpy or the like as Python's own; anything else as it is."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    return value


def _number(value: Any) -> Any:
    """Text that spells a number becomes one, since YAML 1.1 reads `1e-6` as text."""
    value = _plain(value)
    if isinstance(value, bool):
        raise ValueError("true and false are not numbers")
    if isinstance(value, str):
        text = value.strip()
        if text in _NONE_WORDS:
            raise ValueError(f"{said(value)} is text; write null for no value")
        if re.fullmatch(r"[-+]?0[0-9_]+", text):
            raise ValueError(
                f"{said(value)} is octal to some readers and decimal to others; write it without the leading 0"
            )
        try:
            return int(text)
        except ValueError:
            try:
                return float(text)
            except ValueError:
                raise ValueError(f"{said(value)} is not a number") from None
    if isinstance(value, numbers.Integral):
        return int(value)
    if not isinstance(value, numbers.Real):
        raise ValueError(f"{said(value)} is not a number")
    return float(value)


def _whole(value: Any) -> Any:
    value = _number(value)
    if isinstance(value, float):
        if not (math.isfinite(value) and value.is_integer()):
            raise ValueError(f"{value!r} is not a whole number")
        return int(value)
    return value


def _real(value: Any) -> Any:
    try:
        value = float(_number(value))
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise ValueError(f"{value!r} is not finite")
    return value


def _yes_no(value: Any) -> Any:
    value = _plain(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _TRUE_WORDS | _FALSE_WORDS:
        return value.strip().lower() in _TRUE_WORDS
    raise ValueError(f"{said(value)} is neither true nor false")


def _text(value: Any) -> Any:
    if isinstance(value, str) and value in _NONE_WORDS:
        raise ValueError(f"{value!r} is text; write null for no value")
    if isinstance(value, int | float):
        raise ValueError(f"{said(value)} is not text; put it in quotes")
    if not isinstance(value, str):
        raise ValueError(f"{said(value)} is not text")
    return value


def _path(value: Any) -> Any:
    """A path as text, with the home folder for a leading `~`."""
    given = _text(os.fspath(value) if isinstance(value, os.PathLike) else value)
    path = os.path.expanduser(given)
    if "\0" in path:
        raise ValueError(f"{said(given)} holds a NUL character, which no file name can")
    longest = max((len(os.fsencode(part)) for part in path.split("/")), default=0)
    if longest > _LONGEST_FILE_NAME:
        raise ValueError(
            f"{said(given)} has a part of {longest} bytes, but file names have at most {_LONGEST_FILE_NAME}"
        )
    return path


Int = Annotated[int, BeforeValidator(_whole)]
Float = Annotated[float, BeforeValidator(_real)]
Bool = Annotated[bool, BeforeValidator(_yes_no)]
Text = Annotated[str, BeforeValidator(_text)]
PathText = Annotated[str, BeforeValidator(_path)]
"""A file, a folder or a name that may be one: text or a path object; a leading `~` is the home folder."""


class FromBase:
    """Marks a function's setting that may name a file or folder: relative to the configuration where it is there."""

    def resolved(self, name: str, base: Path) -> str:
        """The absolute path of what a name means from `base`, or the name itself where nothing of that name is there.

        A file that is to be made is one whose folder is there.
        """
        path = (base / Path(name).expanduser()).absolute()
        try:
            there = path.exists() or (path.suffix != "" and path.parent.is_dir())
        except OSError:
            there = False
        return str(path) if there else name


PositiveInt = Annotated[Int, Field(ge=1)]
NonNegativeInt = Annotated[Int, Field(ge=0)]
PositiveFloat = Annotated[Float, Field(gt=0)]
NonNegativeFloat = Annotated[Float, Field(ge=0)]
