"""Sinks, broken in every way that a tracker breaks: cases m05 and m06."""

from __future__ import annotations

import builtins
import json
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import groupwise
from groupwise.records.metrics_file import read_metrics
from groupwise.training.sinks import Guarded, Tracker

ROWS = [{"prompt": f"Say {i}.", "n": i} for i in range(4)]


def letters(completions: list[str], **columns: Any) -> list[float]:
    return [sum(c.isalpha() for c in text) / max(len(text), 1) for text in completions]


class Tape:
    """A sink that fails at certain steps, at closing, or at its first openings."""

    def __init__(self, fails_at: tuple[object, ...] = ()) -> None:
        self.fails_at = fails_at
        self.steps: list[int] = []
        self.tries = 0
        self.opened = 0

    def open(self) -> Tape:
        self.opened += 1
        if f"open {self.opened}" in self.fails_at:
            raise ConnectionError("404")
        return self

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self.tries += 1
        if step in self.fails_at:
            raise ConnectionError("the tracker is gone")
        self.steps.append(step)

    def close(self) -> None:
        if "close" in self.fails_at:
            raise OSError("no space")


@pytest.mark.parametrize(
    ("fails_at", "taken", "tries", "said"),
    [
        ((), [1, 2, 3, 4, 5, 6], 6, None),
        ((2,), [1, 3, 4, 5, 6], 6, "did not take step 2 (ConnectionError: the tracker is gone)"),
        ((2, 4, 5), [1, 3, 6], 6, "did not take step 2, 4 to 5 (ConnectionError: the tracker is gone)"),
        ((2, 3, 4), [1], 4, "failed (ConnectionError: the tracker is gone) and is left out from here"),
        (("open 1",), [1, 2, 3, 4, 5, 6], 6, None),
        (("open 1", "open 2"), [2, 3, 4, 5, 6], 5, "did not take step 1 (ConnectionError: 404)"),
        (("open 1", "open 2", "open 3"), [], 0, "failed (ConnectionError: 404) and is left out from here"),
        (("close",), [1, 2, 3, 4, 5, 6], 6, "failed (OSError: no space) and is left out from here"),
    ],
)
def test_a_failing_sink_is_told_once(
    fails_at: tuple[object, ...], taken: list[int], tries: int, said: str | None
) -> None:
    told: list[str] = []
    tape = Tape(fails_at)
    sink = Guarded(tape.open, "tracker", told.append)
    for step in range(1, 7):
        sink.write(step, {"reward/mean": 0.5})
    sink.close()
    sink.close()
    assert (tape.steps, tape.tries) == (taken, tries)
    assert told == ([] if said is None else [f"the tracker sink {said}; metrics.jsonl has every step"])


def test_ctrl_c_in_a_sink_still_stops_the_run() -> None:
    class Interrupted(Tape):
        def write(self, step: int, metrics: Mapping[str, float]) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Guarded(Interrupted, "tracker", print).write(1, {})


class FakeTracker(types.ModuleType):
    """What `import wandb` or `import trackio` gives: it keeps what it is told, or raises."""

    def __init__(self, name: str, fails_at: str | None = None) -> None:
        super().__init__(name)
        self.fails_at = fails_at
        self.began: dict[str, Any] = {}
        self.logged: list[tuple[int, dict[str, Any]]] = []
        self.finished = 0

    def _maybe(self, what: str) -> None:
        if self.fails_at == what:
            raise RuntimeError(f"{what}: <Response [404]>\nwith a second line")

    def init(self, **given: Any) -> None:
        self._maybe("init")
        self.began = given

    def log(self, metrics: dict[str, Any], step: int) -> None:
        self._maybe("log")
        self.logged.append((step, metrics))

    def finish(self) -> None:
        self.finished += 1
        self._maybe("finish")


def train(folder: Path, *sinks: str) -> list[dict[str, float]]:
    tree = {
        "model": "tiny",
        "rollout": {"prompts_per_step": 2, "group_size": 3, "max_new_tokens": 4},
        "training": {"steps": 3},
        "run": {"dir": str(folder), "sinks": ["terminal", *sinks], "save_model": False},
    }
    groupwise.train(tree, rewards=[letters], train=ROWS)
    return read_metrics(folder / "metrics.jsonl")


@pytest.mark.parametrize("package", ["wandb", "trackio"])
def test_every_sink_gets_the_numbers_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], package: str
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fake = FakeTracker(package)
    monkeypatch.setitem(sys.modules, package, fake)
    monkeypatch.delenv(f"{package.upper()}_PROJECT", raising=False)
    lines = train(tmp_path / "run", package, "tensorboard")
    assert (fake.began["project"], fake.began["name"]) == ("groupwise", "run")
    assert fake.began["config"]["training.steps"] == 3
    json.dumps(fake.began["config"])
    assert [{"step": step, **metrics} for step, metrics in fake.logged] == lines
    assert all(type(value) is float for _, metrics in fake.logged for value in metrics.values())
    assert fake.finished == 1

    board = EventAccumulator(str(tmp_path / "run" / "events"), size_guidance={"scalars": 0})
    board.Reload()
    # TensorBoard keeps 32 bits.
    for name in board.Tags()["scalars"]:
        wanted = [(line["step"], line[name]) for line in lines if name in line]
        assert [(e.step, e.value) for e in board.Scalars(name)] == [
            (s, pytest.approx(v, rel=1e-6)) for s, v in wanted
        ]
    assert set(board.Tags()["scalars"]) == {name for line in lines for name in line} - {"step"}

    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("step ")]
    assert len(shown) == 3
    for text, line in zip(shown, lines, strict=True):
        assert f"reward {line['reward/mean']:.3f}  " in text
        assert f"length {line['length/mean']:.1f}  " in text


@pytest.mark.parametrize("fails_at", ["init", "log", "finish"])
def test_a_tracker_that_fails_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fails_at: str
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", FakeTracker("wandb", fails_at))
    lines = train(tmp_path / "run", "wandb")
    assert [line["step"] for line in lines] == [1, 2, 3]
    told = [line for line in capsys.readouterr().out.splitlines() if "sink" in line]
    assert told == [
        f"the wandb sink failed (RuntimeError: {fails_at}: <Response [404]> with a second line) and is left out from "
        "here; metrics.jsonl has every step"
    ]


@pytest.mark.parametrize("package", ["wandb", "trackio"])
def test_a_tracker_that_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], package: str
) -> None:
    monkeypatch.delitem(sys.modules, package, raising=False)
    plain = builtins.__import__

    def without(name: str, *more: Any, **named: Any) -> Any:
        if name == package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return plain(name, *more, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    lines = train(tmp_path / "run", package)
    assert [line["step"] for line in lines] == [1, 2, 3]
    told = [line for line in capsys.readouterr().out.splitlines() if "sink" in line]
    assert told == [
        f"the {package} sink is left out, since {package} is not installed; pip install 'groupwise[{package}]'; "
        "metrics.jsonl has every step"
    ]


def test_what_a_tracker_may_not_hold_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTracker("trackio")
    monkeypatch.setitem(sys.modules, "trackio", fake)
    monkeypatch.setenv("TRACKIO_PROJECT", "mine")
    tracker = Tracker("trackio", "run", {})
    tracker.write(1, {"a": 1.0, "b": float("nan"), "c": float("inf")})
    assert fake.logged == [(1, {"a": 1.0})]
    assert fake.began["project"] == "mine"


def test_a_tensorboard_that_cannot_open_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch.utils.tensorboard

    def broken(*given: Any, **named: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(torch.utils.tensorboard, "SummaryWriter", broken)
    assert len(train(tmp_path / "run", "tensorboard")) == 3
    assert (
        capsys.readouterr().out.count("the tensorboard sink failed (OSError: no space left on device)") == 1
    )
