"""What whoever watches a run sees: one panel that is drawn anew with each step, or a plain line per step.

The panel needs a terminal that can move its cursor; into a file, a pipe or a dumb terminal go plain lines.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from groupwise.records import Finding, Severity

LINE: tuple[tuple[str, str, str], ...] = (
    ("reward/mean", "reward", ".3f"),
    ("reward/zero_spread_fraction", "no spread", ".0%"),
    ("kl/token_mean", "kl", ".4f"),
    ("policy/entropy", "entropy", ".2f"),
    ("length/mean", "length", ".1f"),
    ("grad/norm", "grad", ".2f"),
    ("dpo/loss", "loss", ".4f"),
    ("dpo/accuracy", "accuracy", ".0%"),
    ("dpo/margin_mean", "margin", "+.3f"),
    ("eval/pass@1", "held-out pass@1", ".1%"),
    ("eval/dpo_accuracy", "held-out accuracy", ".1%"),
)
"""Metrics that are told, with their names and forms for people; those that a step does not have are left out."""
PHASES: tuple[tuple[str, str], ...] = (
    ("time/generate_seconds", "generate"),
    ("time/reward_seconds", "reward"),
    ("time/logprobs_seconds", "logprobs"),
    ("time/critic_seconds", "critic"),
    ("time/update_seconds", "update"),
    ("time/record_seconds", "record"),
    ("time/evaluate_seconds", "evaluate"),
)
_BARS = "▁▂▃▄▅▆▇█"
_NARROWEST = 50
_COLOURS = {Severity.INFO: "cyan", Severity.WARNING: "yellow", Severity.CRITICAL: "bold red"}


class Terminal:
    """Progress, reward, what to watch, time left.

    Attributes:
        findings: asked for what health checks see, at each step; none by default.
    """

    def __init__(self, steps: int, console: Console | None = None) -> None:
        """Start the clock of a run with so many steps."""
        self.steps = steps
        self.console = console or Console(highlight=False)
        self.seconds: list[float] = []
        self.started = time.perf_counter()
        self.findings: Callable[[], Sequence[Finding]] = tuple
        self._series: dict[str, list[float]] = {}
        self._live: Live | None = None

    @property
    def can_draw(self) -> bool:
        """True where a panel can be drawn."""
        console = self.console
        wide = console.width >= _NARROWEST
        return console.is_terminal and not console.is_dumb_terminal and not console.is_jupyter and wide

    def say(self, sentence: str) -> None:
        """A plain line; above the panel where there is one."""
        self.console.print(sentence, markup=False, soft_wrap=True)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """See `Sink`."""
        if "time/step_seconds" in metrics:
            self.seconds.append(metrics["time/step_seconds"])
        if not self.can_draw:
            self.say(self._line(step, metrics))
            return
        for name, value in metrics.items():
            self._series.setdefault(name, []).append(value)
        panel = self._panel(step, metrics)
        if self._live is None:
            self._live = Live(panel, console=self.console, auto_refresh=False)
            self._live.start(refresh=True)
        else:
            self._live.update(panel, refresh=True)

    def close(self) -> None:
        """Leave the panel as it stands."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _line(self, step: int, metrics: Mapping[str, float]) -> str:
        parts = [f"step {step:>{len(str(self.steps))}}/{self.steps}"]
        parts += [f"{label} {metrics[name]:{form}}" for name, label, form in LINE if name in metrics]
        if "time/step_seconds" in metrics:
            parts.append(f"{self.seconds[-1]:.1f} s, {clock(self._left(step))} left")
        return "  ".join(parts)

    def _left(self, step: int) -> float:
        """Seconds that the steps to come will take, as long as the last ten did."""
        recent = self.seconds[-10:]
        return (self.steps - step) * sum(recent) / len(recent) if recent else math.nan

    def _panel(self, step: int, metrics: Mapping[str, float]) -> Panel:
        width = self.console.width
        gone = clock(time.perf_counter() - self.started)
        left = f", {clock(self._left(step))} left" if self.seconds else ""
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(no_wrap=True)
        for name, label, form in LINE:
            if name in self._series:
                values = self._series[name]
                bars = sparkline(values, max(8, min(60, width - 40)))
                table.add_row(Text(label), Text(f"{values[-1]:{form}}"), Text(bars, style="blue"))
        spent = [(phase, metrics[name]) for name, phase in PHASES if name in metrics]
        phases = ", ".join(f"{phase} {seconds:.1f}" for phase, seconds in spent if seconds >= 0.05)
        rows: list[Table | Text] = [
            table,
            Text(f"seconds  {phases or 'below 0.1 each'}", overflow="ellipsis", no_wrap=True),
        ]
        rows += [
            Text(
                f"{finding.severity}  {finding.check}: {finding.summary}",
                style=_COLOURS[finding.severity],
                overflow="ellipsis",
                no_wrap=True,
            )
            for finding in self.findings()[:5]
        ]
        body = Table.grid()
        for row in rows:
            body.add_row(row)
        title = f"step {step} of {self.steps}  {progress(step, self.steps, 20)}  {gone} gone{left}"
        return Panel(body, title=Text(title), title_align="left", width=width)


def sparkline(values: Sequence[float], width: int) -> str:
    """The values as bars of eight heights, the last at the right, so many at most; a space for one not finite.

    Of a longer series each bar is the mean of a bunch, so that the whole of it is seen.
    """
    count = min(width, len(values))
    bunches = [values[i * len(values) // count : (i + 1) * len(values) // count] for i in range(count)]
    means = [sum(bunch) / len(bunch) for bunch in bunches]
    finite = [mean for mean in means if math.isfinite(mean)]
    if not finite:
        return " " * count
    low, high = min(finite), max(finite)
    top = len(_BARS) - 1
    return "".join(
        " "
        if not math.isfinite(m)
        else _BARS[round((m - low) / (high - low) * top) if high > low else top // 2]
        for m in means
    )


def progress(step: int, steps: int, width: int) -> str:
    """How much is done, as a bar."""
    done = round(width * min(step, steps) / steps) if steps else 0
    return "━" * done + "╌" * (width - done)


def clock(seconds: float) -> str:
    """Seconds as `m:ss` or `h:mm:ss`; `?` where they are not known."""
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
