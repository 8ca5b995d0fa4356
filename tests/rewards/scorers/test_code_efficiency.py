from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from groupwise.config.rewards import RewardConfig
from groupwise.errors import ConfigError
from groupwise.rewards import build
from groupwise.rewards.sandbox.growth import Growth
from groupwise.rewards.scorers import code_efficiency as module
from groupwise.rewards.scorers.code_efficiency import code_efficiency
from tests.rewards.sandbox.conftest import isolation, ways

__all__ = ["isolation"]

SORTS = "```python\ndef f(a):\n    return sorted(a)\n```"
WRONG = "```python\ndef f(a):\n    return a\n```"
TESTS = "assert f([2, 1]) == [1, 2]"
WORK = (
    "import random\n"
    "def arguments(n):\n"
    "    return ([random.random() for _ in range(n)],)\n"
    "def reference(a):\n"
    "    return sorted(a)\n"
)


@pytest.mark.parametrize("isolation", ways(), indirect=True)
def test_right_and_fast_scores_1_and_wrong_0(isolation: Any) -> None:
    completions = [SORTS, WRONG, SORTS, ""]
    columns = ([TESTS] * 4, ["f"] * 4, [WORK, WORK, None, WORK])
    # Under 2 ms at each of these sizes: too fast to be told, which is as fast as can be asked for.
    assert code_efficiency(completions, *columns, sizes=(5, 10, 20), isolation=isolation) == [
        1.0,
        0.0,
        None,
        0.0,
    ]


@pytest.mark.parametrize("isolation", ways(), indirect=True)
def test_the_exponent_of_the_row_or_the_usual_one(isolation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = Growth(seconds={}, exponent=1.9, finished=True)
    monkeypatch.setattr(module, "measure_growth", lambda *arguments, **keywords: measured)
    columns = ([TESTS] * 3, ["f"] * 3, [WORK] * 3, [None, 2, 0.9])
    # 1 - (1.9 - 1 - 0.4) = 0.5; nothing off; 1 - (1.9 - 0.9 - 0.4) = 0.4.
    assert code_efficiency([SORTS] * 3, *columns, isolation=isolation) == pytest.approx([0.5, 1.0, 0.4])
    [value] = code_efficiency(
        [SORTS], [TESTS], ["f"], [WORK], isolation=isolation, usual_exponent=1.2, slack=0.0
    )
    assert value == pytest.approx(0.3)


@pytest.mark.parametrize("isolation", ways(), indirect=True)
def test_columns_of_the_wrong_kind_are_named(isolation: Any) -> None:
    with pytest.raises(ValueError, match="workload and entry_point are texts, not 3"):
        code_efficiency([SORTS], [TESTS], ["f"], [3], isolation=isolation)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"sizes": [10, 20]}, "sizes"),
        ({"sizes": [10, 30, 20]}, "rising order"),
        ({"sizes": [10, 10, 20]}, "rising order"),
        ({"sizes": [0, 10, 20]}, "above 0"),
        ({"slack": -0.1}, "slack"),
        ({"repeats": 0}, "repeats"),
        ({"isolation": "host"}, "isolation"),
    ],
)
def test_wrong_settings_are_found_before_anything_runs(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build([RewardConfig(name="code_efficiency", settings=settings)], base=Path())
