import random

import pytest

from groupwise.health.checks.dead_groups import dead_groups
from groupwise.health.facts import Facts
from tests.health.series import FACTS, ever, history, kinds, wobble


def run(dead: float, right: float, wrong: float, passed: float) -> dict[str, float]:
    return {
        "reward/zero_spread_fraction": dead,
        "reward/all_right_fraction": right,
        "reward/all_wrong_fraction": wrong,
        "reward/pass_fraction": passed,
        "reward/low_spread_fraction": dead,
    }


@pytest.mark.parametrize(
    ("dead", "right", "wrong", "passed", "kind"),
    [
        (0.6, 0.5, 0.1, 0.7, ("all_right", "warning")),
        (0.6, 0.1, 0.5, 0.3, ("all_wrong", "warning")),
        (0.95, 0.0, 0.95, 0.01, ("all_wrong", "critical")),
        (0.6, 0.1, 0.1, 0.4, ("equal", "warning")),  # 0.6 - 0.1 - 0.1 = 0.4 in between
        (0.95, 0.95, 0.0, 0.97, ("all_right", "info")),  # nine in ten are right: solved
    ],
)
def test_the_kinds_are_told_apart(
    dead: float, right: float, wrong: float, passed: float, kind: tuple[str, str]
) -> None:
    assert kinds(dead_groups(history(10, run(dead, right, wrong, passed)), FACTS)) == [kind]


def test_groups_that_became_all_right_are_a_task_being_solved() -> None:
    # No group is dead in the first five steps, and 0.6 are in the last ten.
    dead = [0.0] * 5 + [0.6] * 10
    solving = run(0.6, 0.5, 0.1, 0.8) | {"reward/zero_spread_fraction": dead}
    assert kinds(dead_groups(history(15, solving), FACTS)) == [("all_right", "info")]
    failing = run(0.6, 0.1, 0.5, 0.2) | {"reward/zero_spread_fraction": dead}
    assert kinds(dead_groups(history(15, failing), FACTS)) == [("all_wrong", "warning")]


def test_of_an_unknown_run_only_the_share_is_known() -> None:
    assert kinds(dead_groups(history(10, {"reward/zero_spread_fraction": 0.7}), FACTS)) == [
        ("equal", "warning")
    ]


def test_the_limit_is_of_the_mean_over_ten_steps() -> None:
    # nine steps of 0.5 and one of 0.4: 0.49 on average
    assert dead_groups(history(10, {"reward/zero_spread_fraction": [*([0.5] * 9), 0.4]}), FACTS) == []
    assert len(dead_groups(history(10, {"reward/zero_spread_fraction": 0.5}), FACTS)) == 1
    assert dead_groups(history(4, {"reward/zero_spread_fraction": 1.0}), FACTS) == []


def test_little_spread_is_an_info() -> None:
    low = {"reward/zero_spread_fraction": 0.1, "reward/low_spread_fraction": 0.8}
    assert kinds(dead_groups(history(10, low), FACTS)) == [("low_spread", "info")]


def test_the_group_size_that_would_do() -> None:
    # Case n05: p = 0.1819. p^G + (1 - p)^G is 0.0331 + 0.6693 = 0.702 for 2, 0.449 for 4, 0.2007 for 8 and 0.040 for
    # 16, so that a fifth at most needs 16.
    found = dead_groups(history(10, run(0.702, 0.033, 0.669, 0.1819)), Facts(group_size=2))
    assert kinds(found) == [("all_wrong", "warning")]
    assert found[0].remedies[0].startswith("set rollout.group_size to 16: with 18% right")
    assert "is 4% there" in found[0].remedies[0]
    assert found[0].evidence["group size to try"] == 16
    large = dead_groups(history(10, run(0.702, 0.033, 0.669, 0.1819)), Facts(group_size=32))
    assert not any("group_size" in remedy for remedy in large[0].remedies)


@pytest.mark.parametrize(("size", "share"), [(2, 0.702), (4, 0.449), (8, 0.201), (16, 0.040)])
def test_the_formula_against_drawn_groups(size: int, share: float) -> None:
    # Case n05: 2,000 groups of Bernoulli rewards, within 3 points.
    random.seed(5)
    groups = [[random.random() < 0.1819 for _ in range(size)] for _ in range(2000)]
    equal = sum(len(set(group)) == 1 for group in groups) / 2000
    assert equal == pytest.approx(share, abs=0.03)
    assert 0.1819**size + 0.8181**size == pytest.approx(share, abs=0.001)


def test_a_run_with_some_dead_groups_is_silent() -> None:
    some = {"reward/zero_spread_fraction": wobble(0.3, 0.15, 40), "reward/low_spread_fraction": 0.35}
    assert ever(dead_groups, 40, some) == []
