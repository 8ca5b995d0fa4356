from typing import Any

import numpy as np
import pytest

from groupwise.config.rewards import GateConfig
from groupwise.errors import RewardError
from groupwise.objective.advantages.group_zscore import group_zscore
from groupwise.objective.advantages.leave_one_out import leave_one_out
from groupwise.objective.advantages.rank import rank
from groupwise.objective.advantages.sign import sign
from groupwise.records import Verdict
from groupwise.rewards.combine import Part, combine
from groupwise.rewards.normalise import Statistics
from groupwise.rewards.term import Term

A, B = Term(label="a"), Term(label="b")


def one(terms: list[Term], parts: list[Part], **given: Any) -> Verdict:
    """The verdict on a batch of one rollout."""
    return combine(terms, [[part] for part in parts], ["g"], **given).verdicts[0]


def weighted(a: float, b: float) -> list[Term]:
    return [Term(label="a", weight=a), Term(label="b", weight=b)]


def test_the_reward_is_the_weighted_sum() -> None:
    verdict = one(weighted(2.0, -0.5), [Part(value=3.0), Part(value=4.0)])
    assert verdict.reward == 4.0  # 2 x 3 - 0.5 x 4
    assert verdict.parts == {"a": 3.0, "b": 4.0}
    assert verdict.terms == {"a": 6.0, "b": -2.0}
    assert verdict.failure is None


def test_a_part_that_does_not_apply_is_skipped_without_rescaling() -> None:
    assert one(weighted(0.25, 0.75), [Part(value=1.0), Part()]).reward == 0.25


def test_zero_applies() -> None:
    verdict = one([A, B], [Part(value=0.0), Part()])
    assert (verdict.reward, verdict.terms) == (0.0, {"a": 0.0})


def test_nothing_applies() -> None:
    verdict = one([A, B], [Part(), Part()])
    assert (verdict.reward, verdict.terms, verdict.failure) == (None, {}, "no reward applies")


def test_a_part_that_is_only_watched_gives_no_reward_and_takes_none() -> None:
    verdict = one(weighted(0.0, 1.0), [Part(value=9.0), Part()])
    assert (verdict.reward, verdict.parts) == (None, {"a": 9.0, "b": None})
    assert one(weighted(0.0, 1.0), [Part(value=9.0), Part(value=2.0)]).reward == 2.0
    failing = one(weighted(0.0, 1.0), [Part(failure="a broke"), Part(value=2.0)])
    assert (failing.reward, failing.failure, failing.terms) == (2.0, "a broke", {"b": 2.0})


def test_a_failure_without_stand_in_leaves_the_rollout_out() -> None:
    verdict = one([A, B], [Part(value=5.0), Part(failure="b broke")])
    assert (verdict.reward, verdict.parts, verdict.failure) == (None, {"a": 5.0, "b": None}, "b broke")


def test_a_stand_in_enters_the_sum_but_not_the_parts() -> None:
    verdict = one(weighted(1.0, 2.0), [Part(value=5.0), Part(failure="b broke", stand_in=-1.0)])
    assert verdict.reward == 3.0  # 5 + 2 x -1
    assert (verdict.parts, verdict.failure) == ({"a": 5.0, "b": None}, "b broke")


def test_several_failures_are_all_told() -> None:
    verdict = one([A, B], [Part(failure="a broke"), Part(failure="b broke", stand_in=0.0)])
    assert (verdict.reward, verdict.failure) == (None, "a broke; b broke")


def test_a_sum_beyond_floats_is_an_error() -> None:
    with pytest.raises(RewardError, match="weighted sum of the rewards is inf"):
        one(weighted(10.0, 1.0), [Part(value=1e308), Part()])


STYLE = Term(label="style", weight=0.5, gate=GateConfig(reward="right", at_least=1.0))
RIGHT = Term(label="right")


@pytest.mark.parametrize(
    ("right", "style", "reward"),
    [
        (1.0, 0.8, 1.4),  # 1 + 0.5 x 0.8
        (0.0, 0.8, 0.0),  # no credit for style unless right
        (0.999, 0.8, 0.999),
        (None, 0.8, 0.4),  # nothing to decide: style counts by itself
        (1.0, None, 1.0),
        (0.0, None, 0.0),
    ],
)
def test_a_gate_gives_credit_only_where_another_reward_is_high_enough(
    right: float | None, style: float | None, reward: float
) -> None:
    for terms in ([STYLE, RIGHT], [RIGHT, STYLE]):
        said = {"style": style, "right": right}
        verdict = one(terms, [Part(value=said[t.label]) for t in terms])
        assert verdict.reward == reward
        assert verdict.parts == said  # the record keeps what the reward itself said


def test_a_closed_gate_may_count_as_something_else() -> None:
    style = Term(label="style", weight=2.0, gate=GateConfig(reward="right", otherwise=-0.25))
    assert one([RIGHT, style], [Part(value=0.0), Part(value=1.0)]).reward == -0.5  # 0 + 2 x -0.25


def test_a_gate_sees_the_stand_in_of_a_reward_that_failed_and_is_not_opened_by_a_failure() -> None:
    stood_in = one([RIGHT, STYLE], [Part(failure="broke", stand_in=0.0), Part(value=1.0)])
    assert stood_in.reward == 0.0
    left_out = one([RIGHT, STYLE], [Part(failure="broke"), Part(value=1.0)])
    assert left_out.reward is None
    only_decides = Term(label="right", weight=0.0)
    assert one([only_decides, STYLE], [Part(failure="broke"), Part(value=1.0)]).reward is None
    assert one([only_decides, STYLE], [Part(value=1.0), Part(value=1.0)]).reward == 0.5
    assert one([only_decides, STYLE], [Part(value=0.0), Part(value=1.0)]).reward == 0.0


def test_closed_gates_are_counted_over_the_rollouts_that_the_reward_applies_to() -> None:
    right = [Part(value=v) for v in (1.0, 0.0, 0.0)]
    style = [Part(value=0.5), Part(value=0.5), Part()]
    assert combine([RIGHT, STYLE], [right, style], list("xyz")).gates_closed == {"style": [0.0, 1.0]}


def test_a_schedule_is_a_line_between_its_points_and_flat_outside_them() -> None:
    term = Term(label="a", weight=4.0, schedule=((10, 0.0), (20, 1.0), (40, 0.5)))
    # 4 x 0; 4 x 0; 4 x 5/10; 4 x 1; 4 x (1 - 0.5 x 10/20); 4 x 0.5; 4 x 0.5
    wanted = {0: 0.0, 10: 0.0, 15: 2.0, 20: 4.0, 30: 3.0, 40: 2.0, 1000: 2.0}
    assert {step: term.weight_at(step) for step in wanted} == wanted
    assert one([term, B], [Part(value=1.0), Part(value=1.0)], step=30).terms == {"a": 3.0, "b": 1.0}
    # At weight 0 it is only watched, so it cannot take the reward away.
    assert one([term, B], [Part(failure="broke"), Part(value=1.0)], step=0).reward == 1.0
    assert Term(label="a", schedule=((5, 0.25),)).weight_at(0) == 0.25


def test_the_total_is_the_sum_of_the_recorded_terms_in_order() -> None:
    terms = [Term(label=str(i), weight=0.1 * (i + 1)) for i in range(7)]
    verdict = one(terms, [Part(value=0.1)] * 7)
    total = 0.0
    for term in verdict.terms.values():
        total += term
    assert verdict.reward == total


def test_terms_that_cancel_but_for_their_rounding_come_to_exactly_zero() -> None:
    terms = [A, B, Term(label="c")]
    for values in (
        (0.1, 0.2, -0.3),
        (0.7, 0.1, -0.8),
        (0.699999988079071, 0.10000000149011612, -0.800000011920929),
    ):
        # 6e-17, -1e-16, and -2e-8 for the second in float32
        assert values[0] + values[1] + values[2] != 0
        assert one(terms, [Part(value=value) for value in values]).reward == 0.0
    # A small reward stays, alone and beside large terms whose rounding cannot explain it: 1.000001 - 1
    assert one([A], [Part(value=1e-12)]).reward == 1e-12
    assert one([A, B], [Part(value=1.000001), Part(value=-1.0)]).reward == pytest.approx(1e-6, rel=1e-6)


def test_what_cancels_is_no_better_than_nothing_by_any_estimator() -> None:
    """Two answers worth 0, of which one adds up to 6e-17: ranks would be -0.5 and 0.5."""
    parts = [[Part(value=v) for v in values] for values in ((0.1, 0.3), (0.2, 0.0), (-0.3, -0.3))]
    verdicts = combine([A, B, Term(label="c")], parts, ["g", "g"]).verdicts
    rewards_G = np.array([verdict.reward for verdict in verdicts])
    for estimate in (rank, sign, group_zscore, leave_one_out):
        assert estimate(rewards_G).tolist() == [0.0, 0.0]


def test_normalised_rewards_of_unlike_scales_count_alike() -> None:
    """Two rewards, one of them a hundred times as large: the sum is decided by it alone unless each is normalised."""
    a = Term(label="a", normalise="group")
    b = Term(label="b", normalise="group")
    parts = [[Part(value=v) for v in (0.0, 1.0, 2.0)], [Part(value=v) for v in (200.0, 100.0, 0.0)]]
    combined = combine([a, b], parts, ["g"] * 3, statistics=Statistics())
    # a: mean 1, sample std 1: -1, 0, 1. b: mean 100, sample std 100: 1, 0, -1.
    assert [v.terms for v in combined.verdicts] == [
        {"a": -1.0, "b": 1.0},
        {"a": 0.0, "b": 0.0},
        {"a": 1.0, "b": -1.0},
    ]
    assert [v.reward for v in combined.verdicts] == [0.0, 0.0, 0.0]
    assert combined.raw == [200.0, 101.0, 2.0]
    assert [v.parts["b"] for v in combined.verdicts] == [200.0, 100.0, 0.0]


def test_without_statistics_nothing_is_normalised() -> None:
    a = Term(label="a", normalise="group")
    verdicts = combine([a], [[Part(value=3.0), Part(value=5.0)]], ["g"] * 2).verdicts
    assert [v.reward for v in verdicts] == [3.0, 5.0]


def test_a_gate_comes_before_normalisation_and_left_out_rollouts_do_not_enter_it() -> None:
    style = Term(label="style", gate=GateConfig(reward="right"), normalise="group")
    right = Term(label="right", weight=0.0)
    parts = [
        [Part(value=1.0), Part(value=0.0), Part(failure="broke"), Part(value=1.0)],
        [Part(value=2.0), Part(value=9.0), Part(value=50.0), Part(value=1.0)],
    ]
    verdicts = combine([right, style], parts, ["g"] * 4, statistics=Statistics()).verdicts
    # Gated values 2, 0 (closed), left out, 1: mean 1, sample std 1.
    assert [v.reward for v in verdicts] == [1.0, -1.0, None, 0.0]


@pytest.mark.parametrize(
    ("term", "formula"),
    [
        (Term(label="a", weight=0.5), "0.5 a"),
        (STYLE, "0.5 (style if right >= 1 else 0)"),
        (Term(label="a", normalise="batch", smoothing=0.9), "1 z_batch(a, smoothing 0.9)"),
        (
            Term(label="a", gate=GateConfig(reward="b", at_least=0.5, otherwise=-1), normalise="group"),
            "1 z_group(a if b >= 0.5 else -1)",
        ),
        (Term(label="a", weight=2, schedule=((0, 0.0), (9, 1.0))), "2 [0 at step 0, 1 at step 9] a"),
    ],
)
def test_what_a_reward_adds_can_be_read(term: Term, formula: str) -> None:
    assert term.formula() == formula
