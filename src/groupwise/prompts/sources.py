"""From the names of sources to rows: files, saved data sets, the hub, functions, and tasks that are made by number."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from groupwise.config.prompts import FILE_ENDINGS, REASONING_GYM, SourceConfig
from groupwise.errors import ConfigError, DataError, GroupwiseError, raised
from groupwise.prompts.formats import of_arrow, of_table, plain
from groupwise.prompts.load import Row, read_rows
from groupwise.registry import import_function, nearest

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_TASK_ROWS = 500
"""What reasoning-gym itself takes for `size`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """The rows of some sources, and what a run is to remember them by."""

    rows: list[Row]
    """Source after source."""
    files: dict[str, Path] = field(default_factory=dict)
    """The file of each source that is one, by the source's name."""
    made: dict[str, list[Row]] = field(default_factory=dict)
    """The rows of each other source, by its name."""


def read_sources(sources: Sequence[SourceConfig], base: Path) -> Read:
    """The rows of every source, in order.

    Args:
        sources: as configured.
        base: the folder that files, folders and functions are looked up from.

    Raises:
        DataError, ConfigError: a source that is not there or cannot be read; names it and the remedy.
    """
    rows: list[Row] = []
    files: dict[str, Path] = {}
    made: dict[str, list[Row]] = {}
    for source in sources:
        found = _renamed(_rows_of(source, base), source)[: source.rows]
        if _is_file(source, base):
            files[source.called] = base / source.source
        else:
            made[source.called] = found
        rows += found
    return Read(rows=rows, files=files, made=made)


def _is_file(source: SourceConfig, base: Path) -> bool:
    name = source.source
    if name.startswith(REASONING_GYM) or (base / name).is_dir():
        return False
    if name.lower().endswith(FILE_ENDINGS) or (base / name).exists():
        return True
    return ":" not in name and not _HUB_ID.fullmatch(name)


def _rows_of(source: SourceConfig, base: Path) -> list[Row]:
    name = source.source
    if _is_file(source, base):
        return read_rows(base / name, source=source.called)
    if name.startswith(REASONING_GYM):
        values: Iterable[Any] = _task(source)
    elif (base / name).is_dir():
        values = _saved(source, base / name)
    elif ":" in name:
        values = _called(source, base)
    else:
        values = _hub(source)
    made = [
        Row(source=source.called, index=index, columns=columns)
        for index, columns in enumerate(islice(values, source.rows))
    ]
    if not made:
        raise DataError(f"{source.called}: there are no rows")
    return made


def _renamed(rows: list[Row], source: SourceConfig) -> list[Row]:
    """The rows with their columns under the names that the run uses, and those that are added.

    Raises:
        DataError: a column that no row has, or a new one that some row has already.
    """
    if not source.columns and not source.add:
        return rows
    there = dict.fromkeys(name for row in rows for name in row.columns)
    ours = {theirs: own for own, theirs in source.columns.items()}
    for theirs, own in ours.items():
        if theirs not in there:
            near = nearest(theirs, there)
            hint = f"; did you mean {near!r}?" if near else f"; there are {', '.join(there)}"
            raise DataError(
                f"{source.called}: no row has the column {theirs!r} (columns: {{{own}: {theirs}}}){hint}"
            )
        if own in there and own not in ours:
            raise DataError(
                f"{source.called}: columns calls {theirs!r} {own!r}, but there is a column of that name already; give "
                "that one another name too"
            )
    named = {ours.get(name, name) for name in there}
    twice = next((name for name in source.add if name in named), None)
    if twice is not None:
        raise DataError(
            f"{source.called}: add gives the column {twice!r}, which rows have already; name another"
        )
    return [
        replace(
            row, columns={ours.get(name, name): value for name, value in row.columns.items()} | source.add
        )
        for row in rows
    ]


def _called(source: SourceConfig, base: Path) -> Iterable[dict[str, Any]]:
    """What a function gives: mappings of column names to values, in a list or one after the other."""
    function: Callable[..., Any] = import_function(source.source, base=base)
    try:
        values = function(**source.settings)
        if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
            raise DataError(
                f"{source.called}: the function gave a {type(values).__name__}; rows are mappings, in a list or "
                "one after the other"
            )
        return [
            _mapping(value, f"{source.called}:{index}")
            for index, value in enumerate(islice(values, source.rows))
        ]
    except GroupwiseError:
        raise
    except Exception as error:
        raise DataError(f"{source.called}: the function failed: {raised(error)}") from error


def _mapping(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise DataError(
            f"{place}: a {type(value).__name__}, but a row is a mapping of column names to values, such as "
            "{'prompt': '2 + 2 ='}"
        )
    return {name: plain(inner, f"{place}, column {name!r}") for name, inner in value.items()}


def _task(source: SourceConfig) -> list[dict[str, Any]]:
    """Questions of a reasoning-gym task; the scorer `reasoning_gym` reads the columns that are made beside them."""
    name = source.source.removeprefix(REASONING_GYM)
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError:
        raise ConfigError(
            f"{source.source} needs the package reasoning-gym; run pip install 'groupwise[reasoning-gym]'"
        ) from None
    if name not in DATASETS:
        near = nearest(name, DATASETS)
        hint = f"did you mean {near!r}?" if near else f"there are {', '.join(sorted(DATASETS))}"
        raise ConfigError(f"{source.source}: reasoning-gym has no task {name!r}; {hint}")
    twice = next(
        (key for key in ("size", "seed") if key in source.settings and getattr(source, key) is not None), None
    )
    if twice is not None:
        raise ConfigError(f"{source.source}: {twice} is given twice, beside settings and in them; keep one")
    try:
        made = reasoning_gym.create_dataset(
            name, **{"seed": source.seed or 0, "size": source.size or _TASK_ROWS, **source.settings}
        )
        items = list(islice(iter(made), source.rows))
    except Exception as error:  # its checks are assertions and whatever else its tasks raise
        raise ConfigError(
            f"{source.source} with the settings {source.settings} failed: {raised(error)}; see the task's own settings"
        ) from None
    rows = [
        {
            "prompt": item["question"],
            "answer": item["answer"],
            "task": name,
            # Whatever JSON has not becomes text, since records are JSON.
            "metadata": json.loads(json.dumps(item["metadata"], default=str)),
        }
        for item in items
    ]
    for item, row in zip(items[:1], rows, strict=False):
        kept = {"question": row["prompt"], "answer": row["answer"], "metadata": row["metadata"]}
        if made.score_answer(item["answer"], item) != made.score_answer(item["answer"], kept):
            raise ConfigError(
                f"{source.source}: this task scores by values that JSON, and so a record, cannot keep; take another"
            )
    return rows


def _saved(source: SourceConfig, folder: Path) -> list[dict[str, Any]]:
    """A folder that `datasets` saved with `save_to_disk`, read without that package."""
    if source.subset is not None:
        raise DataError(
            f"{source.called} is a folder, and only a data set of the hub has subsets; remove subset"
        )
    splits_file = folder / "dataset_dict.json"
    if splits_file.is_file():
        splits = _json_file(splits_file, source.called).get("splits", [])
        folder = folder / _split(source, splits)
    elif source.split is not None and (folder / "state.json").is_file():
        raise DataError(f"{source.called} holds one data set without splits; remove split: {source.split}")
    state = folder / "state.json"
    if not state.is_file():
        files = sorted(p.name for p in folder.glob("*") if p.suffix.lower() in FILE_ENDINGS)
        held = f"name a file in it: {', '.join(files[:8])}" if files else "it holds no file of rows either"
        raise DataError(f"{source.called} is a folder that `datasets` did not save (no state.json); {held}")
    rows: list[dict[str, Any]] = []
    for entry in _json_file(state, source.called).get("_data_files", []):
        try:
            content = (folder / entry["filename"]).read_bytes()
        except OSError as error:
            raise DataError(
                f"{source.called}: {entry['filename']} cannot be read: {error.strerror}"
            ) from None
        rows += [record.columns for record in of_arrow(content, f"{source.called}/{entry['filename']}")]
    return rows


def _json_file(path: Path, called: str) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{called}: {path.name} cannot be read: {error}") from None
    return value if isinstance(value, dict) else {}


def _split(source: SourceConfig, splits: Sequence[str]) -> str:
    """The split that is meant: the one named, or the only one."""
    if source.split is None and len(splits) == 1:
        return splits[0]
    if source.split not in splits:
        said = "which split?" if source.split is None else f"no split {source.split!r}:"
        raise DataError(f"{source.called}: {said} Set split to one of {', '.join(splits)}")
    return source.split or ""


def _hub(source: SourceConfig) -> list[dict[str, Any]]:
    """A data set of the hub, through the package `datasets`, which keeps a copy."""
    try:
        import datasets
    except ImportError:
        raise ConfigError(
            f"{source.source}: there is no such file or folder here, and to read it from the hub the package datasets "
            "is needed; run pip install 'groupwise[data]'"
        ) from None
    try:
        found = datasets.load_dataset(source.source, source.subset)
    except Exception as error:
        raise DataError(
            f"{source.source}: there is no such file or folder here, and the hub did not give it: {raised(error)}; "
            "mend the path, or the name, subset and network (HF_HUB_OFFLINE must not be 1)"
        ) from None
    table = found[_split(source, list(found))].with_format("arrow")[:]
    return [record.columns for record in of_table(table, source.called)]
