from groupwise.health.checks.reward_failures import reward_failures
from groupwise.health.facts import Facts
from tests.health.series import FACTS, ever, history, kinds


def test_one_in_a_hundred_warns_and_a_fifth_is_critical() -> None:
    # 64 rollouts a step: 0.65 failures are 1.02 %, 13 are 20.3 %.
    few = {"reward/failed_count": [0.0, 1.3], "reward/part/judge/failed_count": [0.0, 1.3]}
    found = reward_failures(history(2, few), FACTS)
    assert kinds(found) == [("failed", "warning")]
    assert found[0].summary.endswith("rollouts per step, most by judge")
    assert kinds(reward_failures(history(2, {"reward/failed_count": 13.0}), FACTS)) == [
        ("failed", "critical")
    ]
    assert reward_failures(history(2, {"reward/failed_count": 0.6}), FACTS) == []
    # Without the number of rollouts there is no share.
    assert kinds(reward_failures(history(2, {"reward/failed_count": 0.5}), Facts())) == [
        ("failed", "critical")
    ]


def test_rollouts_without_a_reward() -> None:
    absent = {"reward/failed_count": 0.0, "reward/absent_fraction": 0.3}
    assert kinds(reward_failures(history(10, absent), FACTS)) == [("absent", "warning")]
    assert reward_failures(history(9, absent), FACTS) == []


def test_rewards_that_work_are_silent() -> None:
    assert ever(reward_failures, 20, {"reward/failed_count": 0.0, "reward/absent_fraction": 0.1}) == []
