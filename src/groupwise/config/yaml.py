"""Reading and writing YAML without its surprises.

YAML 1.1, which PyYAML follows, reads `1e-6` as text, `no` as false, `010` as 8 and `1:30` as 90, and lets a later
key silently replace an earlier one. Here only true/false are booleans, only plain decimal numbers are numbers
(anything else stays text, for the field to judge), and a key given twice is an error.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from groupwise.config.base import said
from groupwise.errors import ConfigError

_MOST_DIGITS = 4000  # below the 4,300 that Python reads
_MOST_VALUES = 100_000  # after aliases are followed


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2's core schema and no duplicate keys."""


_Loader.yaml_implicit_resolvers = {}
# Plain data only: no sets, dates or bytes, which nothing here has a use for.
_Loader.yaml_constructors = {
    tag: construct
    for tag, construct in yaml.SafeLoader.yaml_constructors.items()
    if tag is None or tag.rsplit(":", 1)[-1] in {"null", "bool", "int", "float", "str", "seq", "map"}
}
for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"null|Null|NULL|~|", ["n", "N", "~", ""]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), list(_first))


def _float(loader: _Loader, node: yaml.ScalarNode) -> float:
    text = str(loader.construct_scalar(node)).lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        line = key_node.start_mark.line + 1
        if not isinstance(key, str):
            raise ConfigError(f"line {line}: the key {said(key)} is not text")
        if key in found:
            raise ConfigError(f"line {line}: the key {said(key)} is given twice; keep one")
        found[key] = loader.construct_object(value_node, deep=True)
    return found


def _int(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    if len(text) > _MOST_DIGITS:
        raise ConfigError(
            f"line {node.start_mark.line + 1}: a number of {len(text)} digits; no setting is that large"
        )
    return int(text)


_Loader.add_constructor("tag:yaml.org,2002:int", _int)
_Loader.add_constructor("tag:yaml.org,2002:float", _float)
_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


class _Dumper(yaml.SafeDumper):
    """Writes what `_Loader` reads back as the same values."""


def _dump_text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    # Quote whatever either reader would take for something else.
    resolved = _Loader("").resolve(yaml.ScalarNode, value, (True, False))  # type: ignore[no-untyped-call]
    style = '"' if resolved != "tag:yaml.org,2002:str" or not value.isprintable() else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


def _dump_float(dumper: yaml.SafeDumper, value: float) -> yaml.ScalarNode:
    text = repr(value)
    if "e" in text and "." not in text:
        text = text.replace("e", ".0e")  # so that YAML 1.1 readers see a number as well
    return dumper.represent_scalar(
        "tag:yaml.org,2002:float", text.replace("inf", ".inf").replace("nan", ".nan")
    )


_Dumper.add_representer(str, _dump_text)
_Dumper.add_representer(float, _dump_float)


def parse(text: str, *, place: str) -> Any:
    """The value of a YAML text.

    Raises:
        ConfigError: not YAML, or a key given twice; names `place` and the line.
    """
    try:
        value = yaml.load(text, Loader=_Loader)  # a SafeLoader: plain data only
        if _count(value, {}) > _MOST_VALUES:
            raise ConfigError(
                f"stands for more than {_MOST_VALUES} values once its aliases (*name) are followed; write it out "
                "in fewer"
            )
        return value
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark is not None else ""
        problem = " ".join(str(getattr(error, "problem", error)).split())
        raise ConfigError(f"{place}: {line}not readable as YAML: {problem}") from None
    except (ValueError, TypeError, KeyError) as error:  # a tag that does not fit
        raise ConfigError(f"{place}: not readable as YAML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{place}: nested too deeply to be a configuration") from None


def _count(value: Any, seen: dict[int, int]) -> int:
    """How many values a tree holds, a part that several places share counted in each; shared parts are walked once."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in seen:
        parts = value.values() if isinstance(value, dict) else value
        seen[id(value)] = 1 + sum(_count(part, seen) for part in parts)
    return seen[id(value)]


def read(path: Path) -> dict[str, Any]:
    """The mapping in a YAML (or JSON) file.

    Raises:
        ConfigError: no such file, not readable, or not a mapping of keys to values.
    """
    try:
        if path.is_dir():
            raise ConfigError(f"{path} is a folder; give the configuration file in it")
        content = path.read_bytes()
        if content.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise ConfigError(f"{path}: the file is UTF-16; save it as UTF-8")
        text = content.decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(
            f"there is no configuration file {path}; `groupwise init DIR` writes one to start from"
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} cannot be read as UTF-8 text: {error}; save it as UTF-8") from None
    except PermissionError:
        raise ConfigError(
            f"{path} cannot be read: permission denied; allow yourself to read it and its folder (chmod u+rX)"
        ) from None
    except (OSError, ValueError) as error:  # a name that is too long, a loop of links, a NUL character
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"the configuration {said(str(path))} cannot be read: {reason}; give the path of a YAML file"
        ) from None
    value = parse(text, place=str(path))
    if value is None:
        raise ConfigError(f"{path} is empty; `groupwise init DIR` writes a configuration to start from")
    if not isinstance(value, dict):
        raise ConfigError(f"{path} holds a {type(value).__name__}, not a mapping of keys to values")
    return value


def dump(value: Any) -> str:
    """YAML text that `parse` reads back as an equal value."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
