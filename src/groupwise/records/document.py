"""The tables of docs/records.md, from the schema and the metric names themselves.

`python -m groupwise.records.document docs/records.md` writes them anew between the page's markers; a test compares.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa

from groupwise.records.health_file import FIELDS
from groupwise.records.metrics_file import METRICS
from groupwise.records.rollout_schema import SCHEMA
from groupwise.records.run_folder import FILES, MANIFEST


def rollouts_table() -> str:
    """Markdown: every column of the rollout file with its type and meaning."""
    return _table(
        ("column", "type", "meaning"),
        ((f"`{f.name}`", _plain_type(f), f.metadata[b"description"].decode()) for f in SCHEMA),
    )


def metrics_table() -> str:
    """Markdown: every metric with its meaning and unit."""
    return _table(("metric", "meaning"), ((f"`{name}`", meaning) for name, meaning in METRICS.items()))


def files_table() -> str:
    """Markdown: every file and folder of a run."""
    return _table(("name", "what it holds"), ((f"`{name}`", meaning) for name, meaning in FILES.items()))


def manifest_table() -> str:
    """Markdown: every field of manifest.json."""
    return _table(("field", "meaning"), ((f"`{name}`", meaning) for name, meaning in MANIFEST.items()))


def health_table() -> str:
    """Markdown: every field of a line of health.jsonl."""
    return _table(("field", "meaning"), ((f"`{name}`", meaning) for name, meaning in FIELDS.items()))


TABLES: dict[str, Callable[[], str]] = {
    "files": files_table,
    "manifest": manifest_table,
    "metrics": metrics_table,
    "health": health_table,
    "rollouts": rollouts_table,
}
"""Marker in the page to the table that stands there."""


def fill(page: str) -> str:
    """The page with every table written anew between `<!-- table: NAME -->` and `<!-- end -->`.

    Raises:
        ValueError: a table has no place in the page, or more than one.
    """
    for name, table in TABLES.items():
        pattern = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        text = table()
        page, count = pattern.subn(lambda found, text=text: f"{found[1]}{text}{found[2]}", page)  # type: ignore[misc]
        if count != 1:
            raise ValueError(f"the page has {count} places for the table {name!r}, not one")
    return page


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def _plain_type(field: pa.Field) -> str:
    kind = field.type
    if pa.types.is_list(kind):
        text = f"list of {kind.value_type}"
    elif pa.types.is_map(kind):
        text = f"map of {kind.key_type} to {kind.item_type}"
    else:
        text = str(kind)
    return f"{text} or null" if field.nullable else text


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        file = Path(argument)
        file.write_text(fill(file.read_text(encoding="utf-8")), encoding="utf-8")
