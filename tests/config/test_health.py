import re
from pathlib import Path
from typing import Any

import pytest

from groupwise import registry
from groupwise.config import load
from groupwise.config.health import CHECKS
from groupwise.errors import ConfigError
from groupwise.health.watch import checks_of

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"off": ["kl_runawy"]}, "off: no check is called 'kl_runawy': did you mean 'kl_runaway'?"),
    ({"stop": ["x"]}, "stop: no check is called 'x': there are dead_groups, "),
    ({"thresholds": {"x": {}}}, "thresholds: no check is called 'x'"),
    (
        {"thresholds": {"kl_runaway": {"limit": 1}}},
        "thresholds.kl_runaway: kl_runaway has no setting 'limit'",
    ),
    ({"thresholds": {"kl_runaway": {"token_limit": "high"}}}, "token_limit: 'high' is not a number"),
    ({"thresholds": {"kl_runaway": {"window": 2.5}}}, "window: 2.5 is not a whole number"),
    ({"thresholds": {"kl_runaway": 1}}, "should be a mapping of keys to values"),
    ({"add": ["mine"]}, "add: 'mine' is not of yours; write module:function"),
    (
        {"off": ["truncation"], "stop": ["truncation"]},
        "truncation is off, so that its thresholds, stop or action would do",
    ),
    (
        {"actions": {"kl_runawy": {"do": "adjust", "beta": 2}}},
        "actions: no check is called 'kl_runawy': did you",
    ),
    (
        {"actions": {"kl_runaway": {"do": "adjust"}}},
        "adjust changes no setting, so that the same would happen",
    ),
    ({"actions": {"kl_runaway": {"do": "rollback", "beta": 1}}}, "rollback changes no setting"),
    ({"actions": {"kl_runaway": {"do": "undo", "beta": 2}}}, "do: 'undo'"),
    ({"actions": {"kl_runaway": {"beta": 2}}}, "health.actions.kl_runaway.do"),
    ({"actions": {"kl_runaway": "rollback"}}, "health.actions.kl_runaway"),
    ({"actions": {"kl_runaway": {"do": "adjust", "beta": 0}}}, "beta: 0 should be greater than"),
    (
        {"actions": {"kl_runaway": {"do": "adjust", "beta": 2, "tims": 3}}},
        "did you mean health.actions.kl_runaway.times?",
    ),
    ({"actions": {"kl_runaway": {"do": "adjust", "beta": 2, "times": 0}}}, "times: 0 should be"),
    (
        {"actions": {"kl_runaway": {"do": "rollback", "beta": 2, "revert": True}}},
        "revert and wait_steps are of",
    ),
    (
        {"stop": ["kl_runaway"], "actions": {"kl_runaway": {"do": "adjust", "beta": 2}}},
        "kl_runaway stands in stop and in actions",
    ),
    (
        {"every_steps": None, "actions": {"kl_runaway": {"do": "adjust", "beta": 2}}},
        "actions: every_steps is null, so that no check is made",
    ),
    (
        {"actions": {"kl_runaway": {"do": "adjust", "temperature": 100, "times": 3}}},
        "health.actions.kl_runaway.temperature is 100, and 3 times make",
    ),
    ({"every_steps": 0}, "health.every_steps: 0 should be greater than or equal to 1"),
    ({"action": "warn"}, "unknown key health.action"),
]


@pytest.mark.parametrize(("section", "why"), WRONG, ids=[why[:40] for _, why in WRONG])
def test_a_wrong_value_is_one_sentence(section: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load({"health": section})
    assert why in str(caught.value), str(caught.value)
    assert "\n" not in str(caught.value)


def test_checks_off_added_and_with_other_thresholds(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def odd(history, facts, *, level=1.0):\n    return [] if history.step else [level]\n"
    )
    tree = {
        "off": ["truncation"],
        "add": ["mine.py:odd"],
        "thresholds": {"kl_runaway": {"token_limit": 0.5}, "mine.py:odd": {"level": 2.0}},
    }
    checks = checks_of(load({"health": tree}).config.health, base=tmp_path)
    assert "truncation" not in checks
    assert len(checks) == len(registry.names(CHECKS)), "one is off, and one is added"
    assert checks["kl_runaway"].keywords["token_limit"] == 0.5  # type: ignore[attr-defined]
    assert checks["mine.py:odd"].keywords == {"level": 2.0}  # type: ignore[attr-defined]
    tree["thresholds"] = {"mine.py:odd": {"levle": 2.0}}
    with pytest.raises(ConfigError, match=r"health\.thresholds\.mine\.py:odd: .*did you mean 'level'"):
        checks_of(load({"health": tree}).config.health, base=tmp_path)
    with pytest.raises(ConfigError, match="there is no file"):
        checks_of(load({"health": {"add": ["none.py:odd"]}}).config.health, base=tmp_path)


def test_one_threshold_from_the_command_line() -> None:
    config = load(
        {"health": {"thresholds": {"truncation": {"limit": 0.3}}}}, ["health.thresholds.kl_runaway.jump=8"]
    )
    assert config.config.health.thresholds == {"truncation": {"limit": 0.3}, "kl_runaway": {"jump": 8}}


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        ({"objective": {"kl": {"beta": 0}}}, "beta is set, but objective.kl.beta is 0"),
        ({"checkpoint": {"save": False}}, "rolls back to a checkpoint, but checkpoint.save is false"),
        (
            {"checkpoint": {"every_steps": None}},
            "rolls back to a checkpoint, but checkpoint.every_steps is null",
        ),
        ({"method": "dpo"}, "health.actions is set, but with method dpo"),
    ],
)
def test_an_action_that_could_not_be_taken_is_refused(tree: dict[str, Any], why: str) -> None:
    action = {"kl_runaway": {"do": "rollback", "beta": 2}}
    with pytest.raises(ConfigError, match=re.escape(why)):
        load({**tree, "health": {"actions": action}})
