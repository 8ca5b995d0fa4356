from pathlib import Path
from typing import Any

import pytest

from groupwise.config import load
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
        "truncation is off, so that its thresholds or stop would do",
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
    assert len(checks) == 17
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
