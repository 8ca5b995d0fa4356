from dataclasses import replace

from groupwise.health.checks.sampler_mismatch import sampler_mismatch
from tests.health.series import FACTS, ever, history, kinds


def test_a_gap_of_more_than_a_tenth_of_the_clip() -> None:
    # The clip is 0.2 wide: a tenth is 0.02.
    found = sampler_mismatch(history(1, {"sampler/gap_abs_mean": 0.021}), FACTS)
    assert kinds(found) == [("gap", "warning")]
    assert "0.021 nats per token, more than 0.1 of the clip's width of 0.2" in found[0].summary
    assert sampler_mismatch(history(1, {"sampler/gap_abs_mean": 0.019}), FACTS) == []
    # GSPO's clip is 3e-4, and a bf16 server's gap 1e-2.
    gspo = replace(FACTS, clip_width=3e-4)
    assert kinds(sampler_mismatch(history(1, {"sampler/gap_abs_mean": 0.01}), gspo)) == [("gap", "warning")]


def test_without_bounds_the_gap_itself_counts() -> None:
    free = replace(FACTS, clip_width=None)
    assert len(sampler_mismatch(history(1, {"sampler/gap_abs_mean": 0.06}), free)) == 1
    assert sampler_mismatch(history(1, {"sampler/gap_abs_mean": 0.04}), free) == []


def test_importance_weights_that_are_not_1_on_average() -> None:
    found = sampler_mismatch(history(5, {"sampler/correction_mean": 0.7}), FACTS)
    assert "is 0.70, not 1" in found[0].summary
    assert sampler_mismatch(history(4, {"sampler/correction_mean": 0.7}), FACTS) == []


def test_float_error_is_silent() -> None:
    assert ever(sampler_mismatch, 30, {"sampler/gap_abs_mean": 1e-6, "sampler/correction_mean": 0.99}) == []
