"""What findings do to a run: how often, how much, in which order, and taken back."""

from typing import Any

import pytest

from groupwise.config.health import ActionConfig
from groupwise.errors import CheckpointError
from groupwise.health.actions import Actions
from groupwise.health.history import ROLLED_BACK, History
from groupwise.health.watch import Watch
from groupwise.records import Finding, Severity
from groupwise.records.health_file import ActionTaken
from tests.health.series import FACTS, lines


def finding(check: str = "a", severity: Severity = Severity.CRITICAL) -> Finding:
    return Finding(
        check=check,
        kind="k",
        severity=severity,
        first_step=1,
        last_step=1,
        summary="it is",
        evidence={},
        causes=(),
        remedies=(),
    )


def actions(steps: list[int] | None = None, **rules: dict[str, Any]) -> Actions:
    made = Actions(rules={name: ActionConfig.model_validate(rule) for name, rule in rules.items()})
    made.healthy_steps = lambda: steps or []
    return made


def test_an_adjustment_is_made_so_often_waits_and_multiplies() -> None:
    adjust = actions(
        a={"do": "adjust", "learning_rate": 0.5, "temperature": 1.2, "times": 2, "wait_steps": 4}
    )
    done = [
        (each.step, str(each.act), dict(each.factors))
        for step in range(1, 15)
        for each in adjust.decide(step, [finding(severity=Severity.WARNING)], {"a"})
    ]
    # At once, four steps later, and at the next moment for a third it is said that there is none.
    assert done == [
        (1, "adjust", {"learning_rate": 0.5, "temperature": 1.2}),
        (5, "adjust", {"learning_rate": 0.25, "temperature": pytest.approx(1.44)}),
        (6, "warn", {"learning_rate": 0.25, "temperature": pytest.approx(1.44)}),
    ]
    assert adjust.factor("beta") == 1


def test_it_is_taken_back_when_the_finding_is_over_and_only_then() -> None:
    adjust = actions(a={"do": "adjust", "beta": 2, "revert": True, "times": 3})
    assert adjust.decide(1, [finding()], {"a"})[0].factors == {"beta": 2}
    assert adjust.decide(2, [], {"a"}) == []  # not seen, and not over either
    [back] = adjust.decide(3, [], set())
    assert (str(back.act), back.factors, back.number) == ("revert", {"beta": 1}, 1)
    assert adjust.decide(4, [], set()) == []
    # What was taken back counts among the times.
    assert [adjust.decide(step, [finding()], {"a"})[0].number for step in (20, 40)] == [2, 3]
    assert [str(each.act) for each in adjust.decide(60, [finding()], {"a"})] == ["warn"]


def test_factors_of_several_checks_multiply() -> None:
    both = actions(a={"do": "adjust", "beta": 2}, b={"do": "adjust", "beta": 3, "learning_rate": 0.1})
    both.decide(1, [finding("a"), finding("b")], {"a", "b"})
    assert both.factor("beta") == 6
    assert both.factor("learning_rate") == 0.1


def test_severity_from_which_on() -> None:
    warned = [finding(severity=Severity.WARNING)]
    assert actions([0], a={"do": "rollback", "beta": 2}).decide(1, warned, {"a"}) == []
    assert actions([0], a={"do": "rollback", "beta": 2, "severity": "warning"}).decide(1, warned, {"a"})
    info = [finding(severity=Severity.INFO)]
    assert actions(a={"do": "adjust", "beta": 2}).decide(1, info, {"a"}) == []
    critical = actions(a={"do": "adjust", "beta": 2, "severity": "critical"})
    assert critical.decide(1, warned, {"a"}) == []
    assert actions(a={"do": "adjust", "beta": 2}).decide(1, [finding("b")], {"b"}) == []


def test_a_rollback_goes_to_the_last_healthy_step_and_alone() -> None:
    both = actions([0, 10, 20], b={"do": "adjust", "beta": 3}, a={"do": "rollback", "beta": 2})
    [taken] = both.decide(27, [finding("b"), finding("a")], {"a", "b"})
    assert (str(taken.act), taken.check, taken.to_step, taken.factors) == ("rollback", "a", 20, {"beta": 2})


def test_the_next_rollback_goes_further_back_unless_the_run_was_healthy_between() -> None:
    steps = [0, 10, 20]
    again = actions(a={"do": "rollback", "beta": 2, "times": 9})
    again.healthy_steps = lambda: steps
    assert again.decide(27, [finding()], {"a"})[0].to_step == 20
    # A checkpoint of the steps that were given up is none to go back to.
    steps.append(25)
    assert again.decide(31, [finding()], {"a"})[0].to_step == 10
    steps.append(40)
    assert again.decide(45, [finding()], {"a"})[0].to_step == 40
    steps[:] = [40]
    assert again.decide(50, [finding()], {"a"})[0].to_step == 40, "the only one there is, once more"


def test_without_a_healthy_checkpoint_the_settings_are_changed_alone() -> None:
    [taken] = actions([], a={"do": "rollback", "learning_rate": 0.1}).decide(3, [finding()], {"a"})
    assert (str(taken.act), taken.to_step, taken.factors) == ("adjust", None, {"learning_rate": 0.1})
    assert "no healthy checkpoint to go back to" in taken.sentence


def test_a_state_that_is_gone_on_with_decides_the_same() -> None:
    rule = {"do": "adjust", "learning_rate": 0.5, "times": 2, "wait_steps": 5}
    whole, half = actions(a=rule), actions(a=rule)
    for step in (1, 2, 3):
        assert whole.decide(step, [finding()], {"a"}) == half.decide(step, [finding()], {"a"})
    other = actions(a=rule)
    other.restore(half.state())
    for step in range(4, 20):
        assert whole.decide(step, [finding()], {"a"}) == other.decide(step, [finding()], {"a"})


def test_a_check_whose_action_is_no_longer_wanted_gives_its_adjustments_back() -> None:
    adjust = actions(a={"do": "adjust", "learning_rate": 0.5})
    adjust.decide(1, [finding()], {"a"})
    without = actions(b={"do": "adjust", "beta": 2})
    without.restore(adjust.state())
    assert without.factor("learning_rate") == 1
    with pytest.raises(CheckpointError, match="the state of the actions is damaged"):
        without.restore({"held": {"a": {"taken": 1, "x": 2}}, "abandoned": []})


def level(history: History, facts: Any) -> list[Finding]:
    """Critical where the mean of the last three values is above 1."""
    recent = history.last("x", 3)
    return [finding("level")] if recent.mean > 1 else []


def test_after_a_rollback_checks_do_not_see_the_steps_that_were_given_up() -> None:
    rule = ActionConfig.model_validate({"do": "rollback", "learning_rate": 0.1})
    happened: list[Any] = []
    watch = Watch({"level": level}, FACTS, actions=Actions(rules={"level": rule}), write=happened.append)
    watch.actions.healthy_steps = lambda: [2]
    metrics = lines(8, {"x": [0, 0, 4, 0, 0, 0, 0, 0]})
    written = []
    for line in metrics:
        watch.look(line)
        written.append({**line, **watch.act()})
    # At step 3 the mean is 4/3, so that the run goes back to step 2. Without that it would be 4/3 at steps 4 and 5.
    assert [
        (e.step, str(e.act)) if isinstance(e, ActionTaken) else (e.step, str(e.event)) for e in happened
    ] == [(3, "begins"), (3, "rollback"), (4, "ends")]
    assert [line.get(ROLLED_BACK) for line in written] == [None, None, 2, None, None, None, None, None]
    assert [line["health/actions_count"] for line in written] == [0, 0, 1, 0, 0, 0, 0, 0]
    # Whoever reads the lines afterwards, or goes on from any of them, sees the same.
    told = [event for event in happened if not isinstance(event, ActionTaken)]
    reader = Watch({"level": level}, FACTS)
    assert [event for line in written for event in reader.look(line)] == told
    for stop in range(1, 8):
        first, rest = Watch({"level": level}, FACTS), Watch({"level": level}, FACTS)
        events = [event for line in written[:stop] for event in first.look(line)]
        rest.restore(first.state())
        rest.remember(written[:stop])
        assert events + [event for line in written[stop:] for event in rest.look(line)] == told


def test_then_stop_ends_the_run() -> None:
    rule = {"do": "adjust", "learning_rate": 0.5, "times": 1, "wait_steps": 0, "then": "stop"}
    watch = Watch({"level": level}, FACTS, actions=actions(level=rule))
    for line in lines(2, {"x": 4.0}):
        watch.look(line)
        watch.act()
    assert watch.ill is not None
    assert "was taken 1 times" in watch.ill
