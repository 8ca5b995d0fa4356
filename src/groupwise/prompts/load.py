"""Rows of data from a file or from Python, and the check of their columns before any model is loaded."""

from __future__ import annotations

import math
import os
import re
import stat
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.config.prompts import FILE_ENDINGS
from groupwise.errors import ConfigError, DataError
from groupwise.prompts.formats import parse
from groupwise.registry import nearest

if TYPE_CHECKING:
    from groupwise.config.prompts import PromptsConfig

ENDINGS = ", ".join(FILE_ENDINGS)
_TEXTS = " (in .csv and .tsv every value is text: take .jsonl or .parquet)"
_USUAL_COLUMNS = ("prompt", "question", "problem", "instruction", "query", "input", "messages", "text")
_PAIR = ("user", "assistant")
_ROLES = ("system", "developer", "user", "assistant", "tool")
_WRITTEN_MESSAGES = re.compile(r"""\s*\[\s*\{\s*(["'])(role|content)\1\s*:.*\}\s*\]\s*""", re.DOTALL)
_OTHER_ROLES = {"human": "user", "gpt": "assistant", "bot": "assistant", "model": "assistant"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of data, as it was read."""

    source: str
    """The file's name, or what the caller called the rows."""
    index: int
    """0-based number among the rows of its source; blank lines are not rows."""
    columns: Mapping[str, Any]
    """Column names to values."""
    line: int | None = None
    """1-based line of the file, blank lines counted; None for rows from Python."""
    blank_lines: int = 0
    """Blank lines of the file before it, which are not rows."""

    @property
    def id(self) -> str:
        """`source:index`, the id of the prompt that the row becomes."""
        return f"{self.source}:{self.index}"

    @property
    def place(self) -> str:
        """Where a person finds the row: file and line, or the id for rows from Python."""
        return self.id if self.line is None else f"{self.source} line {self.line}"


def read_rows(path: Path, *, source: str | None = None) -> list[Row]:
    r"""The rows of a file, in the form that the end of its name says: see `prompts/formats.py`.

    Args:
        path: the file.
        source: name for ids and messages; the file's name by default. Two files that are used together and
            have the same name need different ones.

    Raises:
        DataError: no such file (names the nearest), a folder, another format, an empty file, or what is wrong in it;
            says which line.
    """
    path = Path(path)
    source = source or path.name
    try:
        content = _content(path)
    except PermissionError:
        raise DataError(
            f"{path} cannot be read: permission denied; allow yourself to read it and its folder (chmod u+rX)"
        ) from None
    except (OSError, ValueError) as error:  # a name that is too long, a loop of links, a NUL character
        reason = getattr(error, "strerror", None) or error
        shown = str(path) if len(str(path)) <= 200 else f"{str(path)[:200]}..."
        raise DataError(f"{shown!r} cannot be read: {reason}; name a file of rows ({ENDINGS})") from None
    return [
        Row(source=source, index=index, **record._asdict())
        for index, record in enumerate(parse(content, path.suffix.lower(), source))
    ]


def _content(path: Path) -> bytes:
    """The file's bytes; what is no file to read rows from is refused before it is opened, since a pipe would wait."""
    if path.is_dir():
        files = sorted(p.name for p in path.iterdir() if p.suffix.lower() in FILE_ENDINGS)
        held = f"it holds {', '.join(files[:8])}" if files else f"it holds no file that ends in {ENDINGS}"
        raise DataError(f"{path} is a folder; name a file of rows in it ({held})")
    if path.is_symlink() and not os.path.exists(path):
        raise DataError(f"{path} is a link to {os.readlink(path)}, where there is no file; mend the link")
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(f"there is no file {path}{_nearest_file(path)}") from None
    if path.suffix.lower() not in FILE_ENDINGS:
        raise DataError(f"{path}: rows are read from files that end in {ENDINGS}; convert it to one of these")
    if not stat.S_ISREG(mode):
        raise DataError(f"{path} is a pipe or a device, not a file; write the rows into a file")
    return path.read_bytes()


def rows_from(values: Sequence[Mapping[str, Any]], *, source: str) -> list[Row]:
    """Rows from Python mappings of column names to values.

    Values stay as they are, for a reward that wants them so, but for single numbers: those of NumPy become Python's,
    which can be recorded, and NaN, which pandas puts where nothing is, becomes None.

    Args:
        values: one mapping per row; each is copied.
        source: what to call them in ids and messages.

    Raises:
        DataError: no rows, or a row that is not a mapping with texts for keys.
    """
    rows: list[Row] = []
    if isinstance(values, str | bytes | Mapping):
        raise DataError(
            f"{source}: {type(values).__name__} given, but rows are a list of mappings, one per row"
        )
    for index, value in enumerate(values):
        if not isinstance(value, Mapping):
            raise DataError(
                f"{source}:{index}: a {type(value).__name__}, but a row is a mapping of column names to "
                "values, such as {'prompt': '2 + 2 ='}"
            )
        strange = next((key for key in value if not isinstance(key, str)), None)
        if strange is not None or None in value:
            raise DataError(f"{source}:{index}: the column name {strange!r} is not text")
        columns = {name: _number_or_same(inner) for name, inner in value.items()}
        rows.append(Row(source=source, index=index, columns=columns))
    if not rows:
        raise DataError(f"{source}: there are no rows")
    return rows


def _number_or_same(value: Any) -> Any:
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and math.isnan(value) else value


def check_rows(rows: Sequence[Row], config: PromptsConfig, *, longest_response: int | None = None) -> None:
    """Check every row against the columns that the configuration names. Needs no model or tokenizer.

    Text and message prompts may be mixed. A message has a role and a text for content; the last turn is the
    user's.

    Args:
        rows: of any sources.
        config: the section `prompts`.
        longest_response: what a row's own limit on new tokens may be at most; None for no bound.

    Raises:
        DataError: a missing, null or empty prompt, malformed messages, a missing or malformed system prompt,
            or two rows with one id. Names the first such row, what it has and the remedy, and counts the
            others.
        ConfigError: the settings do not fit the rows: a system prompt, or arguments for the chat template,
            with text prompts that are not wrapped as chat.
    """
    named: dict[str, str] = {}
    for key, column in config.columns.model_dump().items():
        if column is not None and column in named:
            raise ConfigError(f"prompts.columns: {named[column]} and {key} both name the column {column!r}")
        named[column] = key
    if not rows:
        raise DataError("there are no rows")
    wrong = [(row, said) for row in rows if (said := _complaint(row, config, longest_response)) is not None]
    name = config.columns.prompt
    here = Counter(row.source for row in rows if name in row.columns)
    lack = Counter(row.source for row in rows if name not in row.columns)
    wrong = [
        (
            row,
            _single(name, row.columns)
            if name not in row.columns and here[row.source] > lack[row.source]
            else said,
        )
        for row, said in wrong
    ]
    refuse_wrong(wrong, len(rows))
    seen: dict[str, Row] = {}
    for row in rows:
        if row.id in seen:
            raise DataError(
                f"two rows have the id {row.id}: their sources have one name; give each file another"
            )
        seen[row.id] = row
    _check_chat_settings(rows, config)


def refuse_wrong(wrong: Sequence[tuple[Row, str]], count: int) -> None:
    """Tell the first of the rows with something wrong, and how many others there are.

    Args:
        wrong: each with what is said of it; none is fine.
        count: of all rows.

    Raises:
        DataError: there is one.
    """
    if wrong:
        row, said = wrong[0]
        more = f" ({len(wrong) - 1} more of {count} rows are wrong as well)" if len(wrong) > 1 else ""
        raise DataError(f"{row.place}: {said}{more}")


def system_prompt(row: Row, config: PromptsConfig) -> str | None:
    """The system prompt meant for a row: its own column, else the run's. A null or empty column is none.

    An empty `prompts.system_prompt` is an empty system turn, which some templates need to leave out their
    default.
    """
    own: str | None = row.columns[config.columns.system] if config.columns.system is not None else None
    return own or config.system_prompt


def history(row: Row, config: PromptsConfig) -> list[dict[str, Any]]:
    """The turns before a text prompt, from the row's own column; none where it is null or empty."""
    name = config.columns.history
    value = row.columns.get(name) if name is not None else None
    turns: list[dict[str, Any]] = []
    for item in value or ():
        if isinstance(item, Mapping):
            turns.append(dict(item))
        else:
            turns += [{"role": role, "content": said} for role, said in zip(_PAIR, item, strict=True)]
    return turns


def _check_chat_settings(rows: Sequence[Row], config: PromptsConfig) -> None:
    if config.chat:
        return
    texts = [row for row in rows if isinstance(row.columns[config.columns.prompt], str)]
    for row in texts:
        if system_prompt(row, config) is not None:
            own = config.columns.system is not None and row.columns[config.columns.system]
            key = "prompts.columns.system" if own else "prompts.system_prompt"
            raise ConfigError(
                f"{row.place}: the prompt is text, but {key} gives it a system prompt, which only a chat "
                "has; set prompts.chat to true to make each text a user turn, or write it into the text"
            )
        if history(row, config):
            raise ConfigError(
                f"{row.place}: the prompt is text, but prompts.columns.history gives it turns before it, which only a "
                "chat has; set prompts.chat to true to make each text a user turn"
            )
    if len(texts) == len(rows) and config.chat_template_kwargs:
        raise ConfigError(
            "prompts.chat_template_kwargs is set, but every prompt is text, so no chat template is used; "
            "set prompts.chat to true to make each text a user turn, or remove it"
        )


def _nearest_file(path: Path) -> str:
    if not path.parent.is_dir():
        return f"; there is no folder {path.parent} either"
    names = [p.name for p in path.parent.iterdir() if p.is_file()]
    lower = {name.lower(): name for name in names}
    near = nearest(path.name.lower(), lower)
    if near is not None:
        return f"; did you mean {lower[near]}?"
    readable = sorted(name for name in names if name.lower().endswith(FILE_ENDINGS))[:8]
    return f"; {path.parent} has {', '.join(readable) or f'no file that ends in {ENDINGS}'}"


def _complaint(row: Row, config: PromptsConfig, longest_response: int | None) -> str | None:
    """What is wrong with a row, or None."""
    name = config.columns.prompt
    if name not in row.columns:
        return _missing(name, row.columns)
    value = row.columns[name]
    if isinstance(value, str):
        said = _text_complaint(value)
        if _WRITTEN_MESSAGES.fullmatch(value):
            said = "is a list of messages written as text; write a list, which .jsonl and .parquet can hold"
        if said is not None:
            return f"the prompt (column {name!r}) {said}"
    elif isinstance(value, list | tuple):
        said = _messages_complaint(value)
        if said is not None:
            return f"the messages in column {name!r}: {said}"
    elif isinstance(value, Mapping) and "content" in value:
        return f"the prompt (column {name!r}) is a single message; put it in a list"
    else:
        kind = "null" if value is None else f"of type {type(value).__name__}"
        return f"the prompt (column {name!r}) is {kind}; it is text or a list of messages"
    return (
        _system_complaint(row, config)
        or _history_complaint(row, config)
        or _limit_complaint(row, config, longest_response)
    )


def _history_complaint(row: Row, config: PromptsConfig) -> str | None:
    name = config.columns.history
    if name is None:
        return None
    if name not in row.columns:
        return f"no column {name!r} (prompts.columns.history): rows without turns before the prompt hold null there"
    value = row.columns[name]
    if value is None or value == []:
        return None
    place = f"the history (column {name!r})"
    if not isinstance(value, list | tuple):
        hint = _TEXTS if isinstance(value, str) else ""
        return f"{place} is of type {type(value).__name__}; it is a list of messages or of pairs{hint}"
    if not isinstance(row.columns[config.columns.prompt], str):
        return f"{place} stands beside messages; put its turns in front of them, and null there"
    for number, item in enumerate(value, start=1):
        pair = isinstance(item, list | tuple) and len(item) == 2 and all(isinstance(x, str) for x in item)
        if not pair and not isinstance(item, Mapping):
            return f"{place}: entry {number} is neither a message nor a pair of what user and assistant said"
    said = _messages_complaint([*history(row, config), {"role": "user", "content": "x"}])
    return None if said is None else f"{place}: {said}"


def _limit_complaint(row: Row, config: PromptsConfig, longest_response: int | None) -> str | None:
    name = config.columns.max_new_tokens
    if name is None:
        return None
    if name not in row.columns:
        return f"no column {name!r} (prompts.columns.max_new_tokens): rows without a limit of their own hold null there"
    value = row.columns[name]
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        return (
            f"the limit on new tokens (column {name!r}) is {value!r:.60}; it is a whole number from 1 on, or null"
            f"{_TEXTS if isinstance(value, str) else ''}"
        )
    if longest_response is not None and value > longest_response:
        return (
            f"the limit on new tokens (column {name!r}) is {value}, more than rollout.max_new_tokens, "
            f"{longest_response}; raise that, or lower the row's"
        )
    return None


def _single(name: str, columns: Mapping[str, Any]) -> str:
    there = ", ".join(map(str, columns)) or "no columns"
    return f"no column {name!r}, which most rows have; this one has {there}: mend it, or take it out"


def _missing(name: str, columns: Mapping[str, Any]) -> str:
    if not columns:
        return f"no column {name!r}: the row has no columns"
    texts = [key for key, value in columns.items() if isinstance(value, str | list)]
    guess = (
        nearest(name, texts)
        or next((key for key in _USUAL_COLUMNS if key in texts), None)
        or next(iter(texts), None)
    )
    key = f"`prompts.columns: {{prompt: {guess}}}`, or prompts.columns.prompt={guess} behind a command"
    hint = f"; to use another, set {key}" if guess else ""
    return f"no column {name!r}; the row has {', '.join(map(str, columns))}{hint}"


def _text_complaint(text: str) -> str | None:
    if not text.strip():
        return "is empty"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "holds half of a surrogate pair (\\ud800 to \\udfff), which is no text"
    return None


def _messages_complaint(messages: Sequence[Any]) -> str | None:
    if not messages:
        return "the list is empty; it needs at least one user turn"
    for number, message in enumerate(messages, start=1):
        if not isinstance(message, Mapping):
            return f"message {number} is a {type(message).__name__}, not an object with role and content"
        for key in ("role", "content"):
            if key not in message:
                return f"message {number} has no {key}; it has {', '.join(map(str, message)) or 'nothing'}"
        role, content = message["role"], message["content"]
        usual = _usual_role(role)
        if usual != role:
            return f"message {number} has the role {role!r}; chat templates call it {usual!r}"
        if not isinstance(role, str) or re.fullmatch(r"[A-Za-z][\w-]*", role, re.ASCII) is None:
            return (
                f"message {number} has the role {role!r}; a role is a word such as system, user or assistant"
            )
        if not isinstance(content, str):
            kind = "null" if content is None else f"a {type(content).__name__}"
            return f"the content of message {number} is {kind}; only text is read"
        if content.strip() and (said := _text_complaint(content)):
            return f"the content of message {number} {said}"
    last = messages[-1]
    if last["role"] != "user":
        answer = " (an answer belongs in a column of its own)" if last["role"] == "assistant" else ""
        return f"the last turn is {last['role']}'s, but a prompt ends with the user's; remove it{answer}"
    if not last["content"].strip():
        return "the last user turn is empty"
    return None


def _usual_role(role: Any) -> Any:
    """What chat templates call a role, as in user for human or User; anything else as it is."""
    small = role.strip().lower() if isinstance(role, str) else ""
    return _OTHER_ROLES.get(small, small if small in _ROLES else role)


def _system_complaint(row: Row, config: PromptsConfig) -> str | None:
    name = config.columns.system
    if name is None:
        return None
    if name not in row.columns:
        others = [key for key in row.columns if key != config.columns.prompt]
        near = nearest(name, others)
        hint = f"did you mean {near!r}?" if near else f"the row has {', '.join(row.columns)};"
        return f"no column {name!r} (prompts.columns.system): {hint} rows without one hold null there"
    value = row.columns[name]
    if value is not None and not isinstance(value, str):
        return f"the system prompt (column {name!r}) is of type {type(value).__name__}; it is text or null"
    if value and (said := _text_complaint(value)):
        return f"the system prompt (column {name!r}) {said}; write null for none"
    return None
