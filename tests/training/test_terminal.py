"""What is seen of a run in a terminal, and in what is none."""

from __future__ import annotations

import io
import math
import re

import pytest
from rich.console import Console

from groupwise.records import Finding, Severity
from groupwise.training.terminal import Terminal, clock, progress, sparkline


def test_the_line_of_a_step() -> None:
    said = io.StringIO()
    terminal = Terminal(20, Console(file=said, width=200))
    terminal.write(1, {"reward/mean": 0.25, "reward/zero_spread_fraction": 0.5, "time/step_seconds": 2.0})
    terminal.write(2, {"reward/mean": 0.5, "kl/token_mean": 0.0123, "time/step_seconds": 4.0})
    first, second = said.getvalue().splitlines()
    # 19 steps of 2 s are left after the first; 18 of 3 s on average after the second.
    assert first == "step  1/20  reward 0.250  no spread 50%  2.0 s, 0:38 left"
    assert second == "step  2/20  reward 0.500  kl 0.0123  4.0 s, 0:54 left"


def screen(console: Console) -> list[str]:
    """The lines that stand in the terminal at the end: rich draws a panel anew over the one before."""
    assert isinstance(console.file, io.StringIO)
    rows: list[str] = [""]
    at = 0
    for piece in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", console.file.getvalue()):
        if piece == "\n":
            at += 1
            rows += [""] * (at + 1 - len(rows))
        elif piece.endswith("A") and piece.startswith("\x1b"):
            at -= int(piece[2:-1] or 1)
        elif piece == "\x1b[2K":
            rows[at] = ""
        elif not piece.startswith("\x1b") and piece != "\r":
            rows[at] += piece
    return [row.rstrip() for row in rows if row.strip()]


def test_one_panel_is_drawn_anew() -> None:
    console = Console(
        file=io.StringIO(), width=80, force_terminal=True, color_system=None, _environ={"TERM": "xterm"}
    )
    terminal = Terminal(10, console)
    finding = Finding(
        check="kl_runaway",
        kind="high",
        severity=Severity.CRITICAL,
        first_step=1,
        last_step=4,
        summary="the KL is 1.2 nats per token",
        evidence={},
        causes=(),
        remedies=(),
    )
    for step in range(1, 5):
        terminal.findings = lambda step=step: [finding] if step == 4 else []  # type: ignore[misc]
        terminal.write(
            step,
            {
                "reward/mean": step / 4,
                "kl/token_mean": 0.01,
                "policy/entropy": 2.0,
                "length/mean": 12.0,
                "time/generate_seconds": 1.25,
                "time/update_seconds": 0.5,
                "time/reward_seconds": 0.001,
                "time/step_seconds": 2.0,
            },
        )
        if step == 2:
            terminal.say("a notice [of] the run")
    terminal.close()
    terminal.close()
    rows = screen(console)
    assert rows[0] == "a notice [of] the run"
    assert "step 4 of 10  ━━━━━━━━╌╌╌╌╌╌╌╌╌╌╌╌  0:00 gone, 0:12 left" in rows[1]
    body = "\n".join(rows)
    assert body.count("step ") == 1, "one panel, not four"
    assert re.search(r"reward +1\.000  ▁▃▆█ ", body)
    assert re.search(r"kl +0\.0100  ▄▄▄▄ ", body)
    assert "seconds  generate 1.2, update 0.5" in body
    assert "critical  kl_runaway: the KL is 1.2 nats per token" in body
    assert all(len(row) <= 80 for row in rows)


@pytest.mark.parametrize(
    "console",
    [
        Console(file=io.StringIO(), width=80),
        Console(file=io.StringIO(), width=80, force_terminal=True, _environ={"TERM": "dumb"}),
        Console(
            file=io.StringIO(), width=40, force_terminal=True, highlight=False, _environ={"TERM": "xterm"}
        ),
    ],
    ids=["a file", "a dumb terminal", "a narrow one"],
)
def test_plain_lines_where_no_panel_can_be_drawn(console: Console) -> None:
    terminal = Terminal(2, console)
    terminal.write(1, {"reward/mean": 0.5})
    terminal.close()
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "step 1/2  reward 0.500\n"


def test_bars() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 0, 7, 7], 2) == "▁█", "each bar is the mean of two"
    assert sparkline([1.0, math.nan, 2.0], 8) == "▁ █"
    assert sparkline([3.0, 3.0], 8) == "▄▄"
    assert sparkline([], 8) == ""
    assert sparkline([math.inf], 8) == " "


def test_progress_and_clock() -> None:
    assert progress(5, 20, 8) == "━━╌╌╌╌╌╌"
    assert progress(20, 20, 4) == "━━━━"
    assert (clock(59.6), clock(3725), clock(math.nan)) == ("1:00", "1:02:05", "?")
