"""The health of a run of another trainer, from its log: TRL's trainer_state.json, JSON lines, TensorBoard events."""

from __future__ import annotations

import importlib.resources
import json
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from groupwise.config.health import HealthConfig
from groupwise.errors import DataError
from groupwise.health.facts import Facts
from groupwise.health.history import History, Series
from groupwise.health.watch import Check, Watch, checks_of
from groupwise.records.health_file import HealthEvent
from groupwise.records.lines_file import split_lines
from groupwise.workbench.health import Diagnosis

_NAMES: Mapping[str, Any] = json.loads(
    (importlib.resources.files(__package__) / "foreign_names.json").read_text(encoding="utf-8")
)
TRL: Mapping[str, str] = _NAMES["trl"]
"""Names in logs of TRL's GRPOTrainer (1.16) to ours. In TensorBoard they stand under `train/` and `eval/`."""
VERL: Mapping[str, str] = _NAMES["verl"]
"""Names in logs of verl to ours. Of two for the same, the one further up counts; several data sets are averaged."""
_STEPS: tuple[str, ...] = tuple(_NAMES["steps"])
_PATTERNS = [
    (re.compile(re.sub(r"\\{\w+\\}", "(.+)", re.escape(name))), ours)
    for name, ours in (*TRL.items(), *VERL.items())
]
_SHOWN = 12


class _Asked(History):
    """Remembers which metrics were asked for."""

    def __init__(self, lines: Iterable[Mapping[str, float]]) -> None:
        self.asked: dict[str, None] = {}
        super().__init__(lines)

    def all(self, name: str) -> Series:
        self.asked[name] = None
        return super().all(name)

    def last(self, name: str, count: int) -> Series:
        self.asked[name] = None
        return super().last(name, count)

    def first(self, name: str, count: int) -> Series:
        self.asked[name] = None
        return super().first(name, count)

    def now(self, name: str) -> float | None:
        self.asked[name] = None
        return super().now(name)


def diagnose_log(path: Path) -> Diagnosis:
    """Make every check on the log of another trainer, with the metrics that it has.

    Nothing is known of the run's settings, so checks that judge by them say less. What no check could look at since
    the log lacks it is named in the notes.

    Args:
        path: a trainer_state.json, a file of JSON lines, a TensorBoard event file, or a folder with one of them.

    Raises:
        DataError: there is no log in it, or none of its names is known; says what is taken.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        source, read = _read(path.expanduser())
    lines, unknown = translated(read)
    if not lines:
        known = ", ".join(unknown[:_SHOWN]) or "no numbers at all"
        raise DataError(
            f"{source} has no metric that is known here (it has {known}); docs/foreign_logs.md lists the names"
        )
    checks = checks_of(HealthConfig())
    watch = Watch(checks, Facts())
    events: list[HealthEvent] = []
    for line in lines:
        events += watch.look(line)
    notes = [f"read from {source}", *(str(warning.message) for warning in caught)]
    if unknown:
        more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
        notes.append(f"names without a meaning here: {', '.join(unknown[:_SHOWN])}{more}")
    return Diagnosis(
        folder=path,
        steps=int(lines[-1]["step"]),
        checks=tuple(watch.checks),
        events=tuple(events),
        open=tuple(watch.findings),
        actions=(),
        notes=(*notes, *_unjudged(checks, lines), *watch.faults),
    )


def translated(read: Iterable[tuple[int, Mapping[str, Any]]]) -> tuple[list[dict[str, float]], list[str]]:
    """Lines by our names, one per step in order, and the names that are not known.

    Args:
        read: steps with what was logged at them; a step may come more than once.
    """
    steps: dict[int, dict[str, tuple[int, list[float]]]] = {}
    unknown: dict[str, None] = {}
    for step, logged in read:
        for name, value in logged.items():
            number = _number(value)
            if number is None or name in _STEPS:
                continue
            place, ours = _ours(name)
            if ours is None:
                unknown[name] = None
                continue
            found = steps.setdefault(step, {})
            before = found.get(ours)
            if before is None or place < before[0]:
                found[ours] = (place, [number])
            elif place == before[0]:
                before[1].append(number)
    lines = [
        {"step": step, **{name: math.fsum(numbers) / len(numbers) for name, (_, numbers) in found.items()}}
        for step, found in sorted(steps.items())
    ]
    return lines, list(unknown)


def _ours(name: str) -> tuple[int, str | None]:
    """Where a name stands in the tables, and what it is called here."""
    plain = name.removeprefix("train/")
    if plain.startswith("eval/"):
        plain = f"eval_{plain.removeprefix('eval/')}"
    for place, (pattern, ours) in enumerate(_PATTERNS):
        match = pattern.fullmatch(plain)
        if match:
            return place, ours.replace("{label}", match[1].replace("/", ".")) if match.groups() else ours
    return len(_PATTERNS), None


def _number(value: Any) -> float | None:
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def _unjudged(checks: Mapping[str, Check], lines: list[dict[str, float]]) -> Iterator[str]:
    """Which checks found none of what they look at."""
    blind = []
    for name, check in checks.items():
        history = _Asked(lines)
        try:
            check(history, Facts())
        except Exception:  # the watch tells of it
            continue
        if history.asked and all(not len(History.all(history, asked)) for asked in history.asked):
            blind.append(f"{name} ({', '.join(history.asked)})")
    if blind:
        yield f"not judged, since the log lacks what they look at: {'; '.join(blind)}"


def _read(path: Path) -> tuple[Path, list[tuple[int, Mapping[str, Any]]]]:
    """The log that a path stands for, and what it holds."""
    if path.is_dir():
        path = _log_in(path)
    elif not path.exists():
        raise DataError(f"there is no {path}; health takes a run folder, or the log of another trainer")
    if path.is_dir() or path.name.startswith("events.out.tfevents"):
        return path, _events(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as a log: {error}") from None
    try:
        whole = json.loads(text)
    except ValueError:
        return path, _json_lines(path)
    if isinstance(whole, dict) and isinstance(whole.get("log_history"), list):
        return path, _steps(path, whole["log_history"])
    if isinstance(whole, list):
        return path, _steps(path, whole)
    return path, _json_lines(path)


def _log_in(folder: Path) -> Path:
    """The log in a folder of TRL or verl: its last trainer_state.json, event files, or the one file of JSON lines."""
    states = [folder / "trainer_state.json", *folder.glob("checkpoint-*/trainer_state.json")]
    states = [state for state in states if state.is_file()]
    if states:  # its own, else that of the last checkpoint

        def number(state: Path) -> float:
            return math.inf if state.parent == folder else int(re.sub(r"\D", "", state.parent.name) or 0)

        return max(states, key=number)
    events = sorted(folder.rglob("events.out.tfevents.*"))
    if events:
        return max(
            (event.parent for event in events), key=lambda parent: (len(list(parent.iterdir())), str(parent))
        )
    lines = sorted(folder.glob("*.jsonl"))
    if len(lines) == 1:
        return lines[0]
    raise DataError(
        f"{folder} is no run folder, and has no trainer_state.json, no TensorBoard events and "
        f"{'no' if not lines else 'more than one'} .jsonl; name the log itself"
    )


def _json_lines(path: Path) -> list[tuple[int, Mapping[str, Any]]]:
    lines, torn = split_lines(path, "log")
    found = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found.append(json.loads(line))
        except ValueError as error:
            raise DataError(f"{path}, line {number}: not a line of JSON ({error})") from None
    if torn is not None:
        warnings.warn(f"{path}: the last line was cut short and is left out", stacklevel=2)
    return _steps(path, found)


def _steps(path: Path, entries: list[Any]) -> list[tuple[int, Mapping[str, Any]]]:
    """Entries with their steps; what verl puts under `data` is taken out of it."""
    found: list[tuple[int, Mapping[str, Any]]] = []
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict):
            raise DataError(f"{path}, entry {number}: it is no object, so it is not a step's log")
        data = entry["data"] if isinstance(entry.get("data"), dict) else entry
        step = next((_number(each[key]) for each in (entry, data) for key in _STEPS if key in each), None)
        if step is None:
            raise DataError(f"{path}, entry {number}: it has no step (one of {', '.join(_STEPS)})")
        if "train_runtime" not in data:  # TRL's closing line has means over the whole run
            found.append((int(step), data))
    return found


def _events(path: Path) -> list[tuple[int, Mapping[str, Any]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(path), size_guidance={"scalars": 0})
    board.Reload()
    return [
        (event.step, {tag: event.value}) for tag in board.Tags()["scalars"] for event in board.Scalars(tag)
    ]
