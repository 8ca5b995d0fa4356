import math

import pytest

from groupwise.health.checks.non_finite import non_finite
from tests.health.series import FACTS, ever, history, kinds

FINE = {"policy/loss": 0.1, "grad/norm": 1.0, "training/skipped_updates": 0.0, "ratio/clamped_count": 0.0}


@pytest.mark.parametrize(
    ("bad", "source"),
    [
        ({"reward/mean": math.inf, "policy/loss": math.nan}, "reward"),
        ({"advantage/std": math.nan, "policy/loss": math.nan}, "zero_std"),
        ({"sampler/gap_abs_max": 35.0, "policy/loss": math.nan}, "extreme_logprob"),
        ({"sampler/gap_abs_mean": math.inf}, "extreme_logprob"),
        ({"ratio/max": math.inf, "policy/loss": math.inf}, "ratio_overflow"),
        ({"ratio/clamped_count": 3.0, "grad/norm": math.nan}, "ratio_overflow"),
        ({"kl/token_mean": math.inf, "policy/loss": math.inf}, "kl_overflow"),
        ({"grad/norm": math.nan}, "loss"),
        ({"training/skipped_updates": 1.0}, "loss"),
        ({"time/step_seconds": math.nan}, "other"),
    ],
)
def test_the_source_is_the_first_in_the_chain(bad: dict[str, float], source: str) -> None:
    found = non_finite(history(2, {**FINE, **bad}), FACTS)
    assert kinds(found) == [(source, "critical")]
    assert found[0].causes
    assert found[0].remedies


def test_finite_numbers_are_silent() -> None:
    # Clamping alone is the business of ratio_extremes, a gap alone that of sampler_mismatch.
    assert ever(non_finite, 5, {**FINE, "ratio/clamped_count": 2.0, "sampler/gap_abs_max": 30.0}) == []
