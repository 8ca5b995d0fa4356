from __future__ import annotations

import io

import pytest
from rich.console import Console

from groupwise.errors import ConfigError
from groupwise.workbench.smoke import RISE, Smoke, lowercase_share, smoke


def test_the_verdict_compares_the_last_quarter_with_the_first() -> None:
    # 8 steps: quarters of 2. (0.1 + 0.3) / 2 = 0.2 and (0.5 + 0.3) / 2 = 0.4: a rise of 0.2.
    found = Smoke(rewards=[0.1, 0.3, 9, 9, 9, 9, 0.5, 0.3], seconds=1.0)
    assert (found.first, found.last) == (pytest.approx(0.2), pytest.approx(0.4))
    just_over = Smoke(rewards=[0.0] * 4 + [RISE + 1e-9] * 4, seconds=1.0)
    just_under = Smoke(rewards=[0.0] * 4 + [RISE - 1e-9] * 4, seconds=1.0)
    assert just_over.passed
    assert not just_under.passed
    assert just_over.sentence.startswith(
        "PASS: the mean reward rose from 0.000 in the first 2 of 8 steps to 0.200"
    )
    assert just_under.sentence.startswith("FAIL: the mean reward went from 0.000 ")


def test_nan_is_no_pass() -> None:
    assert not Smoke(rewards=[0.1] * 6 + [float("nan")] * 2, seconds=1.0).passed


def test_the_reward() -> None:
    # 3 of 5 characters are lower-case letters; digits, capitals and signs are not.
    assert lowercase_share(["abC1z", "", "ABC", "xyz"]) == [0.6, 0.0, 0.0, 1.0]


def test_an_unknown_control() -> None:
    with pytest.raises(ConfigError, match="did you mean flipped-sign"):
        smoke(control="fliped-sign")


def shorter(control: str | None) -> Smoke:
    words = ["training.steps=12", "rollout.prompts_per_step=4"]
    return smoke(5, words, control=control, console=Console(file=io.StringIO()))


@pytest.fixture(scope="module")
def honest() -> Smoke:
    return shorter(None)


@pytest.mark.parametrize("control", ["learning-rate-zero", "shuffled-rewards", "flipped-sign"])
def test_controls_break_what_they_say(control: str, honest: Smoke) -> None:
    broken = shorter(control)
    assert broken.rewards[0] == honest.rewards[0]  # the same weights and samples before any update
    assert broken.rewards[1:] != honest.rewards[1:]
    assert honest.last - honest.first > broken.last - broken.first + 0.05
    if control == "flipped-sign":
        assert broken.last < broken.first - 0.05


def test_a_seed_decides_everything() -> None:
    words = ["training.steps=3"]
    runs = [smoke(seed, words, console=Console(file=io.StringIO())).rewards for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
