"""`groupwise train --processes`: what is found wrong before any process starts, and what each is started with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from groupwise.training import launch as launching
from tests.cli.conftest import Said

Call = Callable[..., Said]


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], int, float]]:
    """The words, the number and the grace of every launch, none of which happens."""
    asked: list[tuple[list[str], int, float]] = []

    def launch(words: list[str], count: int, *, grace_seconds: float) -> int:
        asked.append((words, count, grace_seconds))
        return 0

    monkeypatch.setattr(launching, "launch", launch)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    return asked


def test_each_process_gets_the_words_of_the_command(
    project: Path, groupwise: Call, launched: list[tuple[list[str], int, float]]
) -> None:
    words = ("config.yaml", "training.steps=1", "checkpoint.grace_seconds=7")
    assert groupwise("train", *words, "--processes", "3").code == 0
    assert launched == [(["train", *words], 3, 7.0)]


def test_one_process_is_not_launched(
    project: Path, groupwise: Call, launched: list[tuple[list[str], int, float]]
) -> None:
    said = groupwise("train", "config.yaml", "--processes", "1", "training.steps=1", "evaluate.at_end=false")
    assert said.code == 0, said.err
    assert launched == []
    assert (project / "run" / "metrics.jsonl").is_file()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("config.yaml", "--processes", "0"), "--processes"),
        (("config.yaml", "--processes", "two"), "--processes"),
        (("--processes", "2"), "name a configuration"),
        (("missing.yaml", "--processes", "2"), "missing.yaml"),
        (("config.yaml", "trainin.steps=1", "--processes", "2"), "trainin"),
        (("--resume", "nowhere", "--processes", "2"), "there is no run folder nowhere"),
        (
            ("config.yaml", "--checkpoint", "step-000001", "--processes", "2"),
            "--checkpoint goes with --resume",
        ),
        (("config.yaml", "distributed.strategy=fsdp", "--processes", "2"), "distributed.strategy"),
        (("config.yaml", "distributed.timeout_seconds=0", "--processes", "2"), "distributed.timeout_seconds"),
        (
            ("config.yaml", "distributed.strategy=fsdp2", "training.compile=true", "--processes", "2"),
            "compiled layers do not bring divided weights together",
        ),
    ],
)
def test_what_is_wrong_is_told_once_and_starts_nothing(
    words: tuple[str, ...],
    sentence: str,
    project: Path,
    groupwise: Call,
    launched: list[tuple[list[str], int, float]],
) -> None:
    said = groupwise("train", *words)
    assert said.code == 2
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert launched == []


def test_a_launcher_inside_a_launcher(
    project: Path,
    groupwise: Call,
    launched: list[tuple[list[str], int, float]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    said = groupwise("train", "config.yaml", "--processes", "2")
    assert said.code == 2
    assert "leave --processes out" in said.err
    assert launched == []


def test_a_critic_and_divided_weights(project: Path, groupwise: Call) -> None:
    said = groupwise("train", "config.yaml", "distributed.strategy=fsdp2", "objective.preset=ppo")
    assert said.code == 2
    assert "asks for a critic, whose weights are not divided" in said.err
    assert not (project / "run").exists()
