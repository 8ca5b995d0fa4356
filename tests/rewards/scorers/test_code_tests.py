"""The scorer over the sandbox; the sandbox itself is tested in tests/rewards/sandbox."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from groupwise.config.rewards import RewardConfig
from groupwise.errors import ConfigError, GroupwiseError, SandboxError
from groupwise.rewards import build
from groupwise.rewards.sandbox import batch, cell
from groupwise.rewards.scorers.code_tests import code_tests
from tests.rewards.examples import pairs
from tests.rewards.sandbox.conftest import isolation, ways

__all__ = ["isolation"]

SQUARE = "```python\ndef sq(n):\n    return n * n\n```"
DOUBLE = "```python\ndef sq(n):\n    return n + n\n```"
TESTS = "assert sq(2) == 4\nassert sq(3) == 9\nassert sq(0) == 0\nassert sq(-1) == 1"


@pytest.mark.parametrize("isolation", ways(), indirect=True)
class TestScores:
    def test_all_or_nothing(self, isolation: Any) -> None:
        chat = [{"role": "assistant", "content": SQUARE}]
        completions = [SQUARE, DOUBLE, "", "I cannot do that.", chat]
        assert code_tests(completions, [TESTS] * 5, isolation=isolation) == [1.0, 0.0, 0.0, 0.0, 1.0]

    def test_the_share_of_tests(self, isolation: Any) -> None:
        # n + n is n * n at 2 and 0: two tests of four.
        completions = [SQUARE, DOUBLE, "```python\nimport os\nos._exit(0)\n```"]
        assert code_tests(completions, [TESTS] * 3, credit="share", isolation=isolation) == [1.0, 0.5, 0.0]

    def test_each_row_has_its_own_form_of_tests(self, isolation: Any) -> None:
        script = "```python\nprint(int(input()) ** 2)\n```"
        tests = [TESTS, [{"stdin": "3\n", "stdout": "9\n"}], [{"args": [4], "expected": 16}], None]
        points = [None, None, "sq", None]
        assert code_tests([SQUARE, script, SQUARE, SQUARE], tests, points, isolation=isolation) == [
            1.0,
            1.0,
            1.0,
            None,
        ]

    def test_tests_that_check_nothing_are_told(
        self, isolation: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING):
            assert code_tests([SQUARE, SQUARE], ["", TESTS], isolation=isolation) == [0.0, 1.0]
        assert (
            "the tests of 1 of 2 rows check nothing of the program and score 0; the first: ''" in caplog.text
        )

    def test_in_a_run_as_its_configuration_names_it(self, isolation: Any) -> None:
        config = RewardConfig(name="code_tests", settings={"isolation": isolation, "credit": "share"})
        rewards = build([config], base=Path())
        prompts, rollouts = pairs([SQUARE, DOUBLE], columns={"tests": [TESTS, TESTS]})
        assert [verdict.reward for verdict in rewards.score(prompts, rollouts)] == [1.0, 0.5]


def test_the_weaker_mode_is_told_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "check", lambda isolation, python: None)
    monkeypatch.setattr(batch, "_told", set())
    with caplog.at_level(logging.WARNING):
        code_tests([], [], isolation="restricted")
        code_tests([], [], isolation="restricted")
    assert caplog.text.count("the weaker mode, isolation: restricted") == 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"seconds": 0}, "seconds"),
        ({"seconds": -1.0}, "seconds"),
        ({"memory_mb": 1}, "memory_mb"),
        ({"processes": 0}, "processes"),
        ({"isolation": "none"}, "isolation"),
        ({"isolation": "docker"}, "isolation"),
        ({"credit": "some"}, "credit"),
        ({"tolerance": -1.0}, "tolerance"),
        ({"workers": 0}, "workers"),
        ({"second": 3}, "did you mean 'seconds'"),
        ({"tests": "assert 1"}, "filled from the rollouts or the data"),
    ],
)
def test_wrong_settings_are_found_before_anything_runs(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build([RewardConfig(name="code_tests", settings=settings)], base=Path())


def test_missing_isolation_is_found_with_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(isolation: str, python: str | None) -> None:
        raise SandboxError("there is no bubblewrap here; install it")

    monkeypatch.setattr(batch, "check", nothing)
    with pytest.raises(GroupwiseError, match="install it"):
        build([RewardConfig(name="code_tests")], base=Path())


def test_an_interpreter_that_is_not_there_is_found_with_the_configuration() -> None:
    with pytest.raises(GroupwiseError, match="'/nowhere/python' does not run"):
        build([RewardConfig(name="code_tests", settings={"python": "/nowhere/python"})], base=Path())


def test_tests_of_no_known_form_are_named() -> None:
    try:
        cell.check("restricted", None)
    except SandboxError as error:
        pytest.skip(str(error))
    with pytest.raises(ValueError, match="Python source or a list, not 3"):
        code_tests([SQUARE], [3], isolation="restricted")
