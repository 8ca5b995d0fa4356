"""Findings from their beginning to their end."""

import pytest

from groupwise.config.health import HealthConfig
from groupwise.health.facts import Facts
from groupwise.health.history import History
from groupwise.health.watch import Watch, checks_of
from groupwise.records import Finding, Severity
from groupwise.records.health_file import HealthEvent
from tests.health.series import FACTS, lines, rising, wobble


def finding(history: History, severity: Severity) -> Finding:
    return Finding(
        check="level",
        kind="high",
        severity=severity,
        first_step=history.step,
        last_step=history.step,
        summary=f"it is {history.line['x']:g}",
        evidence={"x": history.line["x"]},
        causes=("a cause",),
        remedies=("a remedy",),
    )


def level(history: History, facts: Facts) -> list[Finding]:
    """A warning from 1 on, critical from 2 on."""
    x = history.line["x"]
    return [] if x < 1 else [finding(history, Severity.CRITICAL if x >= 2 else Severity.WARNING)]


def told(xs: list[float], **settings: int) -> tuple[list[tuple[int, str, str]], list[str], Watch]:
    said: list[str] = []
    watch = Watch({"level": level}, FACTS, say=said.append, **settings)
    events = [event for line in lines(len(xs), {"x": xs}) for event in watch.look(line)]
    return [(e.step, str(e.event), str(e.finding.severity)) for e in events], said, watch


def test_a_finding_is_told_when_it_begins_and_when_it_worsens() -> None:
    events, said, watch = told([0, 1, 1, 2, 1, 2])
    assert events == [(2, "begins", "warning"), (4, "worsens", "critical")]
    assert said == [
        "warning level (step 2): it is 1; likely a cause; try: a remedy",
        "critical level (step 4): it is 2; likely a cause; try: a remedy",
    ]
    assert not watch.healthy


def test_it_ends_after_ten_quiet_steps_and_may_begin_again() -> None:
    # Seen at step 2 for the last time: step 12 is ten later.
    events, said, watch = told([1, 1] + [0] * 10 + [1])
    assert events == [(1, "begins", "warning"), (12, "ends", "warning"), (13, "begins", "warning")]
    assert len(said) == 2
    assert watch.healthy
    assert told([1] + [0] * 9 + [1])[0] == [(1, "begins", "warning")], "on the edge it is told once"


def test_every_so_many_steps() -> None:
    assert told([1, 1, 1], every_steps=3)[0] == [(3, "begins", "warning")]


def test_a_check_that_raises_is_left_out_and_told() -> None:
    def broken(history: History, facts: Facts) -> list[Finding]:
        raise ZeroDivisionError("no")

    said: list[str] = []
    watch = Watch({"broken": broken, "level": level}, FACTS, say=said.append)
    assert [len(watch.look(line)) for line in lines(3, {"x": 1})] == [1, 0, 0]
    assert said[0] == "the health check broken failed (ZeroDivisionError: no) and is left out from here"
    assert len(said) == 2


def test_the_evaluation_before_the_first_step_is_remembered_and_not_judged() -> None:
    watch = Watch({"level": level}, FACTS)
    assert watch.look({"step": 0, "x": 5.0}) == []
    assert watch.findings == []


def test_a_state_that_is_gone_on_with_says_the_same() -> None:
    run = lines(30, {"x": [0, 1, 1, 2, 0] * 3 + [0] * 15})
    whole: list[HealthEvent] = []
    watch = Watch({"level": level}, FACTS, write=whole.append)
    for line in run:
        watch.look(line)
    broken: list[HealthEvent] = []
    first = Watch({"level": level}, FACTS, write=broken.append)
    for line in run[:2]:
        first.look(line)
    second = Watch({"level": level}, FACTS, write=broken.append)
    second.restore(first.state())
    second.remember(run[:2])
    for line in run[2:]:
        second.look(line)
    assert broken == whole
    assert [str(event.event) for event in whole] == ["begins", "worsens", "ends"]


def healthy_run(seed: int) -> dict[str, object]:
    """The metrics of a run that learns, as they come: 100 steps of 64 rollouts."""
    steps = 100
    return {
        "reward/mean": rising(0.2, 0.7, steps, 0.03 + 0.002 * seed),
        "reward/std": 0.45,
        "reward/pass_fraction": rising(0.2, 0.7, steps, 0.03),
        "reward/zero_spread_fraction": wobble(0.25, 0.12, steps),
        "reward/low_spread_fraction": 0.25,
        "reward/all_right_fraction": rising(0.0, 0.2, steps),
        "reward/all_wrong_fraction": rising(0.2, 0.0, steps),
        "reward/failed_count": 0.0,
        "reward/absent_fraction": 0.0,
        "advantage/std": 0.9,
        "kl/token_mean": rising(0.0, 0.05, steps, 0.002),
        "kl/beta": 0.04,
        "policy/loss": wobble(0.0, 0.05, steps),
        "policy/entropy": rising(1.5, 0.6, steps, 0.05),
        "ratio/max": 1.3,
        "ratio/min": 0.8,
        "ratio/clamped_count": 0.0,
        "clip/low_fraction": 0.01,
        "clip/high_fraction": 0.02,
        "length/mean": wobble(120, 15, steps),
        "length/truncated_fraction": wobble(0.05, 0.03, steps),
        "diversity/repeated_4_fraction": wobble(0.05, 0.02, steps),
        "sampler/gap_abs_mean": 1e-6,
        "sampler/gap_abs_max": 1e-5,
        "sampler/lag_updates_mean": 0.0,
        "grad/norm": wobble(0.5, 0.3, steps),
        "training/learning_rate": 1e-6,
        "training/skipped_updates": 0.0,
        "eval/pass@1": [0.2 + 0.05 * (i // 10) if i % 10 == 0 else None for i in range(steps)],
        "eval/response_count": [100 if i % 10 == 0 else None for i in range(steps)],
    }


@pytest.mark.parametrize("seed", range(5))
def test_all_checks_are_silent_on_a_run_that_learns(seed: int) -> None:
    watch = Watch(checks_of(HealthConfig()), FACTS)
    events = [event for line in lines(100, healthy_run(seed)) for event in watch.look(line)]  # type: ignore[arg-type]
    assert events == []
    assert watch.faults == []
    assert len(watch.checks) == 18
