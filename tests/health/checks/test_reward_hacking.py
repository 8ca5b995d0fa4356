import random
from collections.abc import Sequence

from groupwise.health.checks.reward_hacking import reward_hacking
from groupwise.health.facts import Facts
from tests.health.series import FACTS, ever, history, kinds, rising, wobble

# Three points of huggingface/open-r1#255 (case n03).
OPEN_R1: dict[str, Sequence[float]] = {
    "reward/mean": [0.711, 0.694, 0.887],
    "reward/part/accuracy/mean": [0.160, 0.118, 0.064],
    "reward/part/format/mean": [0.476, 0.554, 0.857],
    "length/mean": [388, 300, 191],
}


def test_a_part_that_falls_while_the_total_rises() -> None:
    # Accuracy 0.160, 0.118, 0.064: slope -0.048 a step; residuals -0.002, 0.004, -0.002, so that its error is
    # sqrt(0.000024 / 1 / 2) = 0.0035 and the score -13.9, beyond Student's 12.7 for one degree of freedom. The total
    # rises from 0.711 to 0.887, by 25 %.
    found = reward_hacking(history(3, OPEN_R1), Facts())
    assert kinds(found) == [("parts:accuracy", "warning")]
    assert "mostly by format" in found[0].summary
    assert (found[0].first_step, found[0].last_step) == (1, 3)


def test_three_points_whose_noise_is_known_are_no_fall() -> None:
    # A std of 0.35 over 8 prompts is an error of 0.12 in each point, more than the fall itself.
    noisy = {**OPEN_R1, "reward/part/accuracy/std": 0.35, "reward/part/format/std": 0.4, "reward/std": 0.5}
    assert reward_hacking(history(3, noisy), FACTS) == []


def test_a_penalty_that_hardly_applies_is_no_part_given_up() -> None:
    # The total rises by 0.6. The penalty triples from next to nothing: 0.004 is far from a quarter of that.
    solved = {
        "reward/mean": rising(0.2, 0.8, 50, 0.01),
        "reward/part/answer/mean": rising(0.2, 0.8, 50, 0.01),
    }
    overlong = "reward/part/soft_overlong/mean"
    assert ever(reward_hacking, 50, {**solved, overlong: rising(-0.002, -0.006, 50, 0.0001)}) == []
    # From -0.1 to -0.3 is a third of the rise: the penalty is paid for what is gained.
    paid = history(50, {**solved, overlong: rising(-0.1, -0.3, 50, 0.001)})
    assert kinds(reward_hacking(paid, FACTS)) == [("parts:soft_overlong", "warning")]
    # A part that was there is given up whole, however little it was: 0.05 of 0.05.
    gone = history(50, {**solved, overlong: rising(0.05, 0.0, 50, 0.0005)})
    assert kinds(reward_hacking(gone, FACTS)) == [("parts:soft_overlong", "warning")]


def held_out(values: Sequence[float], steps: int = 50) -> list[float | None]:
    """A value after every tenth step."""
    made: list[float | None] = [None] * steps
    for i, value in enumerate(values):
        made[10 * i + 9] = value
    return made


def test_held_out_accuracy_that_falls_or_stands_while_the_reward_rises() -> None:
    up = {"reward/mean": rising(0.2, 0.8, 50, 0.02)}
    falls = {**up, "eval/pass@1": held_out([0.5, 0.5, 0.4, 0.3, 0.3])}
    assert kinds(reward_hacking(history(50, falls), FACTS)) == [("held_out_falls", "critical")]
    # 0.5 to 0.3 of 20 responses: 2 sqrt(1.5 x 0.4 x 0.6 / 20) = 0.27, so that it is noise; it still stands.
    few = {**falls, "eval/response_count": held_out([20] * 5)}
    assert kinds(reward_hacking(history(50, few), FACTS)) == [("held_out_stands", "warning")]
    many = {**falls, "eval/response_count": held_out([500] * 5)}
    assert kinds(reward_hacking(history(50, many), FACTS)) == [("held_out_falls", "critical")]
    rises = {**up, "eval/pass@1": held_out([0.5, 0.52, 0.55, 0.6, 0.62])}
    assert ever(reward_hacking, 50, rises) == []
    # A threshold that nothing reaches says nothing.
    assert ever(reward_hacking, 50, {**up, "eval/pass@1": held_out([0.0] * 5)}) == []
    # Nothing is hacked while the reward does not rise.
    assert ever(reward_hacking, 50, {**falls, "reward/mean": wobble(0.5, 0.1, 50)}) == []


def watched(values: Sequence[float], correlation: float) -> dict[str, float | Sequence[float]]:
    return {
        "reward/mean": rising(0.2, 0.8, 50, 0.02),
        "reward/part/visible/mean": rising(0.2, 0.8, 50, 0.02),
        "reward/part/hidden/mean": values,
        "reward/part/hidden/correlation": correlation,
    }


def test_passes_visible_tests_and_fails_hidden_ones() -> None:
    # Case n01: the hidden tests are a watched reward; the gap to what is trained on grows.
    falls = watched(rising(0.2, 0.05, 50, 0.01), 0.8)
    assert kinds(reward_hacking(history(50, falls), FACTS)) == [("watched_falls:hidden", "warning")]
    stands = watched(wobble(0.2, 0.02, 50), 0.8)
    assert kinds(reward_hacking(history(50, stands), FACTS)) == [("watched_stands:hidden", "warning")]
    # What had nothing to do with the reward from the start may do as it likes.
    assert ever(reward_hacking, 50, watched(wobble(0.2, 0.02, 50), 0.1)) == []
    assert kinds(reward_hacking(history(50, watched(rising(0.2, 0.05, 50, 0.01), 0.1)), FACTS)) == [
        ("watched_falls:hidden", "info")
    ]
    assert ever(reward_hacking, 50, watched(rising(0.2, 0.7, 50, 0.02), 0.8)) == []


def test_healthy_runs_of_two_parts_are_silent() -> None:
    # Shares of 64 rollouts on 8 prompts, drawn anew at each step, as both parts rise.
    for seed in range(10):
        random.seed(seed)
        runs: dict[str, list[float]] = {"a": [], "b": []}
        for i in range(100):
            for name, end in (("a", 0.6), ("b", 0.9)):
                p = 0.2 + (end - 0.2) * i / 99
                runs[name].append(sum(random.random() < p for _ in range(64)) / 64)
        run: dict[str, float | Sequence[float]] = {
            "reward/mean": [a + b for a, b in zip(runs["a"], runs["b"], strict=True)],
            "reward/std": 0.6,
            "reward/part/a/mean": runs["a"],
            "reward/part/a/std": 0.45,
            "reward/part/b/mean": runs["b"],
            "reward/part/b/std": 0.45,
        }
        assert ever(reward_hacking, 100, run) == []
