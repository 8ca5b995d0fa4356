"""What an examination of rewards found, as people and programs read it."""

from __future__ import annotations

import json
import math
import statistics
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.rewards.examine import Asked, Measured, Tried
from groupwise.rewards.findings import Finding, ordered, spreads
from groupwise.rewards.payment import PAID, paid, worth

_WIDTH = 118


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """The result of `check_reward`."""

    weighted: tuple[tuple[str, float], ...]
    """Label and weight of each reward."""
    data: str
    """Where the rows came from."""
    rows_there: int
    """How many rows it has; those that were tried are spread over them."""
    sampled_from: str | None
    """The model or run that completions were sampled from; None for none."""
    answer_column: str | None
    """Where right answers were read; None for none."""
    measured: Measured
    """What was measured."""
    found: list[Finding]
    """What that means, faults first."""

    @property
    def sound(self) -> bool:
        """True when no finding is a fault."""
        return all(finding.level != "fault" for finding in self.found)

    @property
    def verdict(self) -> str:
        """One sentence."""
        count = sum(len(tried.asked) for tried in self.measured.tried) + len(self.measured.asked)
        if self.sound:
            return f"sound: no fault in {count} completions"
        faults = [finding.name for finding in self.found if finding.level == "fault"]
        return f"not sound: {', '.join(faults)}"

    def lines(self) -> list[str]:
        """The examination for people; nothing but the times differs from one call to the next."""
        rows = [
            ("reward", ", ".join(f"{label} (weight {weight:g})" for label, weight in self.weighted)),
            ("data", self._data()),
            *self._forms(),
            ("values", _values(self.measured.asked)),
            *self._right_and_wrong(),
            ("groups", self._groups()),
            ("repeats", self._repeats()),
            ("time", self._time()),
            *self._parts(),
        ]
        lines = [line for title, text in rows for line in _hanging(title, text)]
        lines += ["", *self._probes(), *textwrap.wrap(self._legend(), _WIDTH), ""]
        for finding in self.found:
            lines += _hanging(finding.level, f"{finding.name}: {finding.says}")
        return [*lines, *_hanging("verdict", self.verdict)]

    def json(self) -> str:
        """The same, and every completion with its score, as JSON text."""
        measured, pairs = self.measured, ordered(self.measured)
        value: dict[str, Any] = {
            "sound": self.sound,
            "verdict": self.verdict,
            "findings": [{"name": f.name, "level": f.level, "says": f.says} for f in self.found],
            "rewards": [{"label": label, "weight": weight} for label, weight in self.weighted],
            "data": self.data,
            "rows": len(measured.cases),
            "answer_column": self.answer_column,
            "sampled_from": self.sampled_from,
            "form": measured.form,
            "forms": dict(measured.forms),
            "right_ahead": None if pairs is None else pairs[0],
            "repeats": {
                "times": measured.repeats.times,
                "largest_change": _finite(measured.repeats.again),
                "correlation": measured.repeats.correlation,
                "largest_change_elsewhere": _finite(measured.repeats.elsewhere),
            },
            "seconds": {
                "alone": measured.cost.seconds_alone,
                "each_further": measured.cost.seconds_each,
                "step": measured.cost.seconds_step,
                "rollouts_per_step": measured.cost.rollouts_per_step,
                "step_without_rewards": measured.cost.step_seconds,
                "share_of_step": measured.cost.share,
            },
            "completions": [
                {"kind": each.item.kind, "name": each.item.name, "group": each.item.group, **_said(each)}
                for each in measured.asked
            ],
            "probes": [
                {
                    "name": tried.probe.name,
                    "means": tried.probe.means,
                    "worth": worth(measured, tried),
                    "paid": paid(measured, tried),
                    "seconds": tried.seconds,
                    "rows": [_said(each) for each in tried.asked],
                }
                for tried in measured.tried
            ],
        }
        return json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False) + "\n"

    def _data(self) -> str:
        kinds = [each.item.kind for each in self.measured.asked]
        answers = (
            "no right answers" if self.answer_column is None else f"right answers in {self.answer_column!r}"
        )
        sampled = kinds.count("sampled")
        more = f", {sampled} sampled from {self.sampled_from}" if sampled else ""
        rows, made_up = len(self.measured.cases), len(kinds) - sampled
        taken = (
            f"{rows} rows"
            if rows == self.rows_there
            else f"{rows} of {self.rows_there} rows (--rows takes more)"
        )
        return f"{self.data}: {taken}, {answers}; {made_up} completions made up{more}"

    def _forms(self) -> list[tuple[str, str]]:
        if not self.measured.forms:
            return []
        said = [f"{name!r} {_number(value)}" for name, value in self.measured.forms.items()]
        return [("answers in", f"{', '.join(said)}; below in {self.measured.form!r}")]

    def _right_and_wrong(self) -> list[tuple[str, str]]:
        pairs = ordered(self.measured)
        if pairs is None:
            return []
        right, wrong = (_mean(self.measured.of_kind(kind)) for kind in ("right", "wrong"))
        return [
            (
                "right",
                f"{_number(right)} on average, wrong {_number(wrong)}; right ahead in {pairs[0]:.0%} of pairs",
            )
        ]

    def _groups(self) -> str:
        said = []
        for kind, asked in (
            ("made up", self.measured.of_kind("right", "wrong", "reply")),
            ("sampled", self.measured.of_kind("sampled")),
        ):
            stds = spreads(asked)
            if stds:
                flat = sum(std == 0 for std in stds)
                said.append(
                    f"{kind}: standard deviation {statistics.fmean(stds):.3g} on average, {flat} of {len(stds)} "
                    "groups without spread"
                )
        return "; ".join(said) or "none with two rewards"

    def _repeats(self) -> str:
        repeats = self.measured.repeats
        if repeats.again == repeats.elsewhere == 0:
            return f"the same {repeats.times} times, in reverse order and alone"
        return (
            f"values moved by up to {repeats.again:.3g} in {repeats.times} calls, and by up to {repeats.elsewhere:.3g} "
            "in reverse order or alone"
        )

    def _time(self) -> str:
        cost = self.measured.cost
        return (
            f"{_seconds(cost.seconds_alone)} for a completion alone, {_seconds(cost.seconds_each)} for each further; "
            f"{cost.rollouts_per_step} rollouts a step: {_seconds(cost.seconds_step)}, {cost.share:.1%} of a step that "
            f"otherwise takes {_seconds(cost.step_seconds)}"
        )

    def _parts(self) -> list[tuple[str, str]]:
        if len(self.weighted) < 2:
            return []
        rows = []
        for label, weight in self.weighted:
            values = [each.verdict.parts.get(label) for each in self.measured.asked]
            rows.append((f"  {label}", f"weight {weight:g}: {_spread([v for v in values if v is not None])}"))
        return rows

    def _probes(self) -> list[str]:
        """A table; what its columns are is said below it."""
        head = ("probe", "score", "worth", "paid", "text")
        rows = [head, *(self._probe(tried) for tried in self.measured.tried)]
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        return [
            "  ".join(
                [f"{row[0]:<{widths[0]}}", *(f"{row[i]:>{widths[i]}}" for i in (1, 2, 3)), row[4]]
            ).rstrip()
            for row in rows
        ]

    def _legend(self) -> str:
        """What the columns of the table are."""
        score = "score: what the text got on the first row"
        if not self.measured.of_kind("right"):
            return f"{score}; paid: on how many rows it got as much as the best of some plain replies"
        return (
            f"{score}; worth: how far that is from a wrong answer (0%) to the right one (100%), on average over rows; "
            f"paid: on how many rows that is {PAID:.0%} or more; blank where the text is right"
        )

    def _probe(self, tried: Tried) -> tuple[str, str, str, str, str]:
        first = tried.asked[0]
        score = "failed" if first.failure is not None else _number(first.value)
        text = repr(first.item.text)
        shown = text if len(text) <= 60 else f"{text[:56]}...{text[-1]} ({len(first.item.text)} characters)"
        shares = (worth(self.measured, tried), paid(self.measured, tried))
        own, rows = ("" if share is None else f"{round(share, 2) + 0.0:.0%}" for share in shares)  # never -0%
        return tried.probe.name, score, own, rows, shown


def _said(asked: Asked) -> dict[str, Any]:
    text = asked.item.text
    return {
        "text": text if len(text) <= 2000 else f"{text[:2000]}... ({len(text)} characters)",
        "reward": asked.value,
        "parts": dict(asked.verdict.parts),
        "failure": asked.verdict.failure,
    }


def _values(asked: Sequence[Asked]) -> str:
    failed = sum(each.failure is not None for each in asked) / max(len(asked), 1)
    none = sum(each.value is None and each.failure is None for each in asked) / max(len(asked), 1)
    said = _spread([each.value for each in asked if each.value is not None])
    return f"{said}; {failed:.0%} failed, {none:.0%} without a reward"


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "none"
    mean, different = statistics.fmean(values), len(set(values))
    return f"from {min(values):.4g} to {max(values):.4g}, mean {mean:.4g}, {different} different"


def _mean(asked: Sequence[Asked]) -> float | None:
    values = [each.value for each in asked if each.value is not None]
    return statistics.fmean(values) if values else None


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3g}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _seconds(seconds: float) -> str:
    if seconds < 0.1:
        return f"{seconds * 1e3:.2g} ms"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"


def _hanging(title: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=f"{title:<12}  ",
        subsequent_indent=" " * 14,
        break_on_hyphens=False,
        break_long_words=False,
    ) or [title]
