import io
from collections.abc import Mapping

import pytest
from rich.console import Console

from groupwise.training.sinks import Guarded, Terminal


class Broken:
    def __init__(self, fails_at: str) -> None:
        self.fails_at = fails_at
        self.steps: list[int] = []

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        if self.fails_at == "write" and step == 2:
            raise ConnectionError("the tracker is gone")
        self.steps.append(step)

    def close(self) -> None:
        if self.fails_at == "close":
            raise OSError("no space")


@pytest.mark.parametrize("fails_at", ["write", "close"])
def test_a_failing_sink_is_told_once_and_left_alone(fails_at: str) -> None:
    said = io.StringIO()
    inner = Broken(fails_at)
    sink = Guarded(inner, "tracker", Console(file=said, width=200))
    for step in (1, 2, 3):
        sink.write(step, {"reward/mean": 0.5})
    sink.close()
    sink.close()
    assert inner.steps == ([1] if fails_at == "write" else [1, 2, 3])
    assert said.getvalue().count("the tracker sink failed") == 1
    assert "metrics.jsonl goes on" in said.getvalue()


def test_ctrl_c_in_a_sink_still_stops_the_run() -> None:
    class Interrupted(Broken):
        def write(self, step: int, metrics: Mapping[str, float]) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Guarded(Interrupted("never"), "tracker", Console(quiet=True)).write(1, {})


def test_the_line_of_a_step() -> None:
    said = io.StringIO()
    terminal = Terminal(20, Console(file=said, width=200))
    terminal.write(1, {"reward/mean": 0.25, "reward/zero_spread_fraction": 0.5, "time/step_seconds": 2.0})
    terminal.write(2, {"reward/mean": 0.5, "kl/token_mean": 0.0123, "time/step_seconds": 4.0})
    first, second = said.getvalue().splitlines()
    # 19 steps of 2 s are left after the first; 18 of 3 s on average after the second.
    assert first == "step  1/20  reward 0.250  no spread 50%  2.0 s, 0:38 left"
    assert second == "step  2/20  reward 0.500  kl 0.0123  4.0 s, 0:54 left"
