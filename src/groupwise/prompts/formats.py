"""From a file's bytes to rows: one form for each end of a file's name. Loads no torch.

Whatever the form, a row is a mapping of column names to plain values: None, bool, int, float, text, lists and
mappings, which is what a record can keep. Nulls are None, and so is NaN, which means the same in tables.
"""

from __future__ import annotations

import csv
import datetime
import decimal
import io
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from groupwise.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa


class Record(NamedTuple):
    """One row as it stands in a file."""

    columns: dict[str, Any]
    """Names to values."""
    line: int | None = None
    """1-based line of a text file at which it begins; None where a form has no lines."""
    blank_lines: int = 0
    """How many blank lines stand before it in the file."""


_KINDS = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
_DEEPEST = 100
_TOO_DEEP = (
    f"nested too deeply, more than {_DEEPEST} lists or objects in one another; write the value as text"
)
_BOM = b"\xef\xbb\xbf"
LONGEST_FIELD = 2**31 - 1
"""Characters of a field of CSV; the module's own limit is 128 kB, less than some prompts."""


def parse(content: bytes, ending: str, source: str) -> list[Record]:
    """The rows in the bytes of a file.

    `.jsonl` has one JSON object per line; lines end at `\\n` only (a trailing `\\r` is white space to JSON), so
    U+2028 and U+0085 inside a text do not cut it, and blank lines are skipped but counted. `.json` is a list of
    objects. `.csv` and `.tsv` have a header; every value is text, and an empty field None. `.parquet`, `.arrow` and
    `.feather` are tables. A byte order mark is accepted.

    Args:
        content: of the file.
        ending: of its name, in small letters.
        source: what to call it in messages.

    Raises:
        DataError: the file is empty, or not what the end of its name says; says which line.
    """
    rows = _READERS[ending](content, source)
    if not rows:
        what = "holds no rows" if content.strip() else "holds blank lines only" if content else "is empty"
        raise DataError(f"{source}: the file {what}; {_REMEDIES.get(ending, 'write some into it')}")
    return rows


def of_jsonl(content: bytes, source: str) -> list[Record]:
    """See `parse`."""
    _refuse_utf16(content, source)
    rows: list[Record] = []
    for number, line in enumerate(content.removeprefix(_BOM).split(b"\n"), start=1):
        if line.strip():
            columns = _object_of(line, f"{source} line {number}")
            rows.append(Record(columns, number, blank_lines=number - 1 - len(rows)))
    return rows


def of_json(content: bytes, source: str) -> list[Record]:
    """See `parse`."""
    _refuse_utf16(content, source)
    if not content.strip():
        return []
    value = _json(content.removeprefix(_BOM), source, _json_hint)
    if isinstance(value, dict):
        lists = [
            key
            for key, inner in value.items()
            if isinstance(inner, list) and isinstance([*inner, 0][0], dict)
        ]
        held = f"; the list under {lists[0]!r} may be what is meant: save that alone" if lists else ""
        raise DataError(
            f"{source}: an object, not a list of objects{held}, or write .jsonl, an object per line"
        )
    if not isinstance(value, list):
        raise DataError(
            f"{source}: {_KINDS.get(type(value), 'a number')}, not a list of objects, one per row"
        )
    for number, item in enumerate(value):
        if not isinstance(item, dict):
            kind = _KINDS.get(type(item), "a number")
            raise DataError(f"{source}: entry {number} of the list is {kind}, not an object")
    return [Record(item) for item in value]


def of_csv(content: bytes, source: str) -> list[Record]:
    """See `parse`."""
    return _separated(content, source, ",")


def of_tsv(content: bytes, source: str) -> list[Record]:
    """See `parse`."""
    return _separated(content, source, "\t")


def of_parquet(content: bytes, source: str) -> list[Record]:
    """See `parse`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return of_table(pq.read_table(pa.BufferReader(content), partitioning=None), source)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{source}: not readable as Parquet: {_first_line(error)}") from None


def of_arrow(content: bytes, source: str) -> list[Record]:
    """See `parse`: the file form (Feather 2) or the stream form, in which `datasets` writes."""
    import pyarrow as pa

    if not content:
        return []
    try:
        try:
            table = pa.ipc.open_file(pa.BufferReader(content)).read_all()
        except pa.ArrowInvalid:
            table = pa.ipc.open_stream(pa.BufferReader(content)).read_all()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{source}: not readable as Arrow: {_first_line(error)}") from None
    return of_table(table, source)


def of_table(table: pa.Table, source: str) -> list[Record]:
    """Rows of a table, its values as plain ones.

    Whole numbers stay whole beside nulls, and a field that a row's record lacks is None.

    Raises:
        DataError: two columns of one name, or a value that no record can keep, such as an image.
    """
    names = table.column_names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{source}: two columns are called {twice!r}; rename one")
    columns = [_values(table, name, source) for name in names]
    return [Record(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]


def _values(table: pa.Table, name: str, source: str) -> list[Any]:
    """A column's values as plain ones; Python has none for a key twice, an unknown time zone and the year 10000."""
    try:
        values = table.column(name).to_pylist(maps_as_pydicts="strict")
    except (ArithmeticError, LookupError, ValueError) as error:
        kind = f"{table.schema.field(name).type!s:.100}"  # the reason alone may not name the time zone
        raise DataError(
            f"{source}, column {name!r} of {kind}: {str(error.args[0]).rstrip('.'):.200}; write it otherwise, for "
            "example as text"
        ) from None
    return [plain(value, f"{source}:{index}, column {name!r}") for index, value in enumerate(values)]


def plain(value: Any, place: str, within: int = 0) -> Any:
    """A value of a table or a function as a plain one: dates as ISO text, decimals as text, NaN as None.

    Args:
        value: as it was given.
        place: where, for errors.
        within: how many lists and mappings it lies in.

    Raises:
        DataError: bytes that are no text, an infinite number, lists in lists without end, or an object that is not
            data; says where.
    """
    if within > _DEEPEST:
        raise DataError(f"{place} is {_TOO_DEEP}")
    if value is None or isinstance(value, str | bool):
        return value
    if getattr(value, "shape", None) == () and hasattr(
        value, "item"
    ):  # of numpy, which calls a float64 a float
        value = value.item()
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        if math.isinf(value):
            raise DataError(f"{place} holds {value}, which is no JSON number; write null, or text")
        return None if math.isnan(value) else value
    if isinstance(value, Mapping):
        return {str(key): plain(inner, place, within + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(inner, place, within + 1) for inner in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | datetime.timedelta):
        return str(value)
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            raise DataError(f"{place} holds bytes that are no text, such as an image; leave it out") from None
    if hasattr(value, "tolist"):
        return plain(value.tolist(), place)
    raise DataError(
        f"{place} holds a {type(value).__name__}, which is not data; leave it out, or write it as text"
    )


def _separated(content: bytes, source: str, separator: str) -> list[Record]:
    _refuse_utf16(content, source)
    try:
        text = content.removeprefix(_BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError(f"{source} line {line}: not UTF-8; save the file as UTF-8") from None
    csv.field_size_limit(LONGEST_FIELD)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        return list(_records(reader, source))
    except csv.Error as error:
        raise DataError(f'{source} line {reader.line_num}: {error}; quote fields as in "a, b"') from None


def _records(reader: Any, source: str) -> Iterator[Record]:
    names: list[str] = []
    line, blank_lines = 1, 0
    for fields in reader:
        begins, line = line, reader.line_num + 1
        if not any(field.strip() for field in fields):
            blank_lines += 1
            continue
        if not names:
            names = [field.strip() for field in fields]
            blank = next((i for i, name in enumerate(names, start=1) if not name), None)
            twice = next((name for name in names if names.count(name) > 1), None)
            if blank is not None or twice is not None:
                what = (
                    f"column {blank} has no name"
                    if blank is not None
                    else f"two columns are called {twice!r}"
                )
                raise DataError(f"{source} line {reader.line_num}: {what}; the first line names the columns")
            other = next((mark for mark in ";\t,|" if mark in names[0]), None)
            if len(names) == 1 and other is not None:
                raise DataError(
                    f"{source} line {reader.line_num}: one column, called {names[0]!r:.80}; is {other!r} what "
                    "separates fields? In .csv it is a comma, in .tsv a tab"
                )
            continue
        if len(fields) != len(names):
            raise DataError(
                f"{source} line {reader.line_num}: {len(fields)} fields, but there are {len(names)} columns "
                f"({', '.join(names)}); a field with the separator in it stands in quotes"
            )
        columns = {name: field or None for name, field in zip(names, fields, strict=True)}
        yield Record(columns, begins, blank_lines)


def _refuse_utf16(content: bytes, source: str) -> None:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{source}: the file is UTF-16; save it as UTF-8")


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _object_of(line: bytes, place: str) -> dict[str, Any]:
    value = _json(line, place, _line_hint)
    if not isinstance(value, dict):
        kind = _KINDS.get(type(value), "a number")
        raise DataError(f'{place}: {kind}, not an object; each line is like {{"prompt": "2 + 2 ="}}')
    return value


def _line_hint(text: str, error: json.JSONDecodeError) -> str:
    start = text.lstrip()[:1]
    if start == "[":
        return "; the file looks like one JSON list: write one object per line, or call it .json"
    if start == "{" and error.pos >= len(text.rstrip()):
        return "; does the object go on in the next line? write each whole object on one line"
    return ""


def _json_hint(text: str, error: json.JSONDecodeError) -> str:
    if error.msg == "Extra data":
        return "; the file looks like one object per line: call it .jsonl"
    return f" of line {error.lineno}"


def _json(line: bytes, place: str, hint: Callable[[str, json.JSONDecodeError], str]) -> Any:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{place}: not UTF-8: byte {error.start + 1} is 0x{line[error.start]:02x}; save the file as UTF-8"
        ) from None
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=_float
        )
    except json.JSONDecodeError as error:
        raise DataError(
            f"{place}: not JSON: {error.msg.removesuffix(' at')} at character {error.colno}{hint(text, error)}"
        ) from None
    except RecursionError:
        raise DataError(f"{place}: {_TOO_DEEP}") from None
    except ValueError as error:
        if "digits" in str(error) and "limit" in str(error):  # Python's own words advise to lift its limit
            raise DataError(
                f"{place}: a whole number of more than {sys.get_int_max_str_digits()} digits; put it in quotes"
            ) from None
        raise DataError(f"{place}: {error}") from None
    if text.count("[") + text.count("{") > _DEEPEST and _is_deep(value):
        raise DataError(f"{place}: {_TOO_DEEP}")
    if "\\u" in text:
        # JSON can escape half of a surrogate pair, which no encoding can write: it would fail much later.
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise DataError(
                f"{place}: holds half of a surrogate pair (\\ud800 to \\udfff), which is no text"
            ) from None
    return value


def _is_deep(value: Any) -> bool:
    """Whether something lies in more lists and objects than a record may have, which is written with Python's stack."""
    inner = [value]
    for _ in range(_DEEPEST + 1):
        inner = [
            each
            for outer in inner
            for each in (
                outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ()
            )
        ]
    return bool(inner)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} is given twice; which one is meant?")
    return value


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:50]} is too large for a float; put it in quotes")
    return value


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"not JSON: {word} is no JSON number; write null for a missing value")


_READERS: dict[str, Callable[[bytes, str], list[Record]]] = {
    ".jsonl": of_jsonl,
    ".json": of_json,
    ".csv": of_csv,
    ".tsv": of_tsv,
    ".parquet": of_parquet,
    ".arrow": of_arrow,
    ".feather": of_arrow,
}
_REMEDIES = {
    ".jsonl": "write one JSON object per line",
    ".json": "write a list of objects",
    ".csv": "write a line of column names and one line per row",
    ".tsv": "write a line of column names and one line per row",
}
