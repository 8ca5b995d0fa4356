"""The folder is the registry: `objective/advantages/group_zscore.py` holds the function `group_zscore`.

A function's keyword-only arguments with defaults are its settings, so names and settings are read from the
signature alone. A user's own function is named `package.module:function` or `path/to/file.py:function` (relative
to the configuration file) wherever a name is taken.
"""

from __future__ import annotations

import ast
import difflib
import functools
import hashlib
import importlib
import importlib.util
import inspect
import pkgutil
import sys
import traceback
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from groupwise.errors import ConfigError, raised


@functools.cache
def names(package: str) -> tuple[str, ...]:
    """The names on offer in a registry package such as `groupwise.objective.advantages`, sorted."""
    module = importlib.import_module(package)
    return tuple(sorted(m.name for m in pkgutil.iter_modules(module.__path__) if not m.name.startswith("_")))


def nearest(word: str, choices: typing.Iterable[str]) -> str | None:
    """The choice spelled most like `word`, or None when nothing is close."""
    found = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.6)
    return found[0] if found else None


def find(package: str, name: str, *, base: Path | None = None) -> Callable[..., Any]:
    """The function called `name` in the registry, or a user's own `module:function` or `file.py:function`.

    Raises:
        ConfigError: no such name; the message lists what there is and the nearest.
    """
    if ":" in name:
        return import_function(name, base=base)
    if name.endswith(".py"):
        raise ConfigError(_without_function(name, base or Path.cwd()))
    known = names(package)
    if name not in known:
        kind = package.rsplit(".", 1)[-1]
        near = nearest(name, known)
        hint = f"did you mean {near!r}? " if near else ""
        raise ConfigError(
            f"no {kind} entry is called {name!r}: {hint}there are {', '.join(known)}, "
            "or name your own as module:function or file.py:function"
        )
    function: Callable[..., Any] = getattr(importlib.import_module(f"{package}.{name}"), name)
    return function


def import_function(name: str, *, base: Path | None = None) -> Callable[..., Any]:
    """Import `module:function` or `path/to/file.py:function`; relative paths and modules are looked up from `base`.

    `base`, and before it the folder of a `.py` file, are put at the end of `sys.path` and stay there, so that what
    stands beside a user's file can be imported by it, also from inside its functions later on. Being last, they hide
    no installed module; two folders with a module of one name share the first that was imported, as anywhere in Python.

    Raises:
        ConfigError: says whether the file is missing, the import failed (and with what), or the name is not in it.
    """
    where, _, attribute = name.rpartition(":")
    base = base or Path.cwd()
    if not where:
        raise ConfigError(
            f"{name!r}: there is no module or file before the colon; write module:function or file.py:function"
        )
    if not attribute and where.endswith(".py"):
        raise ConfigError(_without_function(where, base))
    if where.endswith(".py"):
        path = (base / where).expanduser().resolve()
        try:
            there = path.is_file()
        except OSError as error:
            raise ConfigError(f"{name!r}: {path} cannot be looked at: {error.strerror or error}") from None
        if not there:
            near = _near(path, lambda stem: f"{Path(where).with_name(stem)}.py:{attribute}")
            raise ConfigError(f"{name!r}: there is no file {path}{near}")
        _keep_on_path(path.parent, base)
        module_name = f"groupwise_user_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
        module = sys.modules.get(module_name)
        if module is None:
            spec = importlib.util.spec_from_file_location(module_name, path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[module_name] = module  # dataclasses and pickling look the module up by name
            try:
                spec.loader.exec_module(module)
            except Exception as error:
                del sys.modules[module_name]
                raise ConfigError(f"{name!r}: importing {path} failed: {_at_import(error)}") from error
    else:
        module = _import_module(where, name, base)
    function = getattr(module, attribute, None)
    if function is None:
        known = [k for k, v in vars(module).items() if callable(v) and not k.startswith("_")]
        alike = nearest(attribute, known)
        hint = f"; did you mean {alike!r}?" if alike else f"; it has {', '.join(known) or 'no functions'}"
        raise ConfigError(f"{name!r}: {where} was imported but has no {attribute!r}{hint}")
    if not callable(function):
        raise ConfigError(f"{name!r}: {attribute!r} is a {type(function).__name__}, not a function")
    return typing.cast("Callable[..., Any]", function)


def _import_module(where: str, name: str, base: Path) -> types.ModuleType:
    _keep_on_path(base)
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is not None and (where == error.name or where.startswith(error.name + ".")):
            *folders, last = where.split(".")
            attribute = name.rpartition(":")[2]
            near = _near(
                base.joinpath(*folders, f"{last}.py"),
                lambda stem: f"{'.'.join([*folders, stem])}:{attribute}",
            )
            raise ConfigError(
                f"{name!r}: there is no module {where!r} on the path or in {base}"
                f"{near or '; a file can be named as path/to/file.py:function'}"
            ) from error
        raise ConfigError(f"{name!r}: importing {where} failed: {_at_import(error)}") from error
    except Exception as error:
        raise ConfigError(f"{name!r}: importing {where} failed: {_at_import(error)}") from error


def _at_import(error: Exception) -> str:
    """What importing a user's file raised, with the line of that file that led to it."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{type(error).__name__}: {error.msg} ({Path(error.filename).name} line {error.lineno})"
    ours = (__file__, importlib.__file__)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in ours and not frame.filename.startswith("<frozen")
    ]
    if not frames:
        return raised(error)
    # The first is of the file that was imported; what it called may stand behind it, in files of others.
    file = frames[0].filename
    line = next(frame.lineno for frame in reversed(frames) if frame.filename == file)
    return f"{raised(error)} ({Path(file).name} line {line})"


def _near(path: Path, written: Callable[[str], str]) -> str:
    """The end of a sentence on a file that is not there: one beside it that is spelled alike, or nothing.

    Args:
        path: that is not there.
        written: the stem of another file of its folder, as one would have written it.
    """
    try:
        stems = [file.stem for file in path.parent.iterdir() if file.suffix == ".py"]
    except OSError:
        return ""
    near = nearest(path.stem, stems)
    return "" if near is None else f"; did you mean {written(near)}?"


def _without_function(file: str, base: Path) -> str:
    """What to say to a file that is named without a function; reads it, and runs nothing of it."""
    path = base / file
    if not path.is_file():
        more = _near(path, lambda stem: f"{Path(file).with_name(stem)}.py:function")
        more = more or f"; a function in a file is named {file}:function"
        return f"{file!r}: there is no file {path}{more}"
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        body = []
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    known = [node.name for node in body if isinstance(node, kinds) and not node.name.startswith("_")]
    more = f" (it has {', '.join(known)})" if len(known) > 1 else ""
    return f"{file!r} is a file without a function's name; write {file}:{known[0] if known else 'function'}{more}"


def file_of(name: str, *, base: Path) -> Path | None:
    """The file that `module:function` or `file.py:function` stands in, once it is imported; None for other names."""
    where, colon, _ = name.rpartition(":")
    if not colon:
        return None
    if where.endswith(".py"):
        return base / where
    file = getattr(sys.modules.get(where), "__file__", None)
    return None if file is None else Path(file)


def _keep_on_path(*folders: Path) -> None:
    for folder in folders:
        text = str(folder.resolve())
        if text not in sys.path:
            sys.path.append(text)


def settings(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The keyword-only parameters of a function by name: its settings, with their defaults."""
    parameters = inspect.signature(function).parameters
    return {k: p for k, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}


def bind(function: Callable[..., Any], chosen: Mapping[str, Any]) -> Callable[..., Any]:
    """The function with its settings filled in.

    Raises:
        ConfigError: a setting that the function does not have.
    """
    known = settings(function)
    for key in chosen:
        if key not in known:
            near = nearest(key, known)
            hint = f"; did you mean {near!r}?" if near else f"; it has {', '.join(known) or 'none'}"
            raise ConfigError(f"{name_of(function)} has no setting {key!r}{hint}")
    return functools.partial(function, **chosen) if chosen else function


def name_of(function: Callable[..., Any]) -> str:
    """A readable name for any callable: functions, partials and objects with `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def place_of(function: Callable[..., Any]) -> str:
    """Where a function of somebody's own stands, as ` (file.py, line 3)`; nothing for those of this package."""
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None or Path(code.co_filename).is_relative_to(Path(__file__).parent):
        return ""
    return f" ({Path(code.co_filename).name}, line {code.co_firstlineno})"
