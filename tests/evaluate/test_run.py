import dataclasses
from collections.abc import Callable, Sequence

import pytest

from groupwise.config.evaluate import EvaluateConfig
from groupwise.config.rollout import RolloutConfig
from groupwise.evaluate.run import Evaluation, evaluate
from groupwise.health.metric import Mean, values
from groupwise.model.load import Policy
from groupwise.records import Prompt, Rollout, Verdict
from groupwise.rollouts.in_process import InProcessEngine
from tests.rollouts.examples import engine_of, random_prompts, token_ids

ROLLOUT = RolloutConfig(max_new_tokens=8, temperature=0.9, top_k=1)
"""`top_k` of training is not to act in evaluation, which has settings of its own."""


@pytest.fixture
def engine(build_policy: Callable[..., Policy]) -> InProcessEngine:
    return engine_of(build_policy(stop_token_ids=tuple(range(3, 60))))


def constant(reward: float | None) -> Callable[[Sequence[Prompt], Sequence[Rollout]], list[Verdict]]:
    return lambda prompts, rollouts: [Verdict(reward=reward, parts={}) for _ in rollouts]


def run(
    engine: InProcessEngine,
    score: Callable[[Sequence[Prompt], Sequence[Rollout]], list[Verdict]] | None = None,
    *,
    lengths: Sequence[int] = (5, 2, 9, 4),
    seed: Sequence[int] = (0,),
    **settings: object,
) -> Evaluation:
    config = EvaluateConfig(**settings)  # type: ignore[arg-type]
    return evaluate(engine, random_prompts(lengths), score or constant(1.0), config, ROLLOUT, seed=seed)


def by_index(
    rewards: Sequence[float | None],
) -> Callable[[Sequence[Prompt], Sequence[Rollout]], list[Verdict]]:
    """The reward of each rollout in turn."""

    def score(prompts: Sequence[Prompt], rollouts: Sequence[Rollout]) -> list[Verdict]:
        return [Verdict(reward=reward, parts={}) for reward, _ in zip(rewards, rollouts, strict=True)]

    return score


def test_what_passes(engine: InProcessEngine) -> None:
    # Passes: 1, 1.5, and ten times 0.1, which is 0.9999999999999999. Not: 0.99, None.
    rewards = [1.0, 1.5, sum([0.1] * 10), 0.99, None]
    found = run(engine, by_index(rewards), lengths=(5, 2, 9, 4, 3))
    assert found.metrics["eval/pass@1"].value == pytest.approx(3 / 5)
    assert found.metrics["eval/pass@1"] == Mean(3.0, 5.0)
    # The rollout without a reward counts among those that do not pass, but not in the mean: 4.49 / 4.
    assert found.metrics["eval/reward_mean"].value == pytest.approx(4.49 / 4)


@pytest.mark.parametrize(
    ("threshold", "share"), [(0.5, 0.75), (0.50001, 0.5), (2.0, 0.25), (-1.0, 1.0), (2.1, 0.0)]
)
def test_the_threshold_is_the_configured_one(engine: InProcessEngine, threshold: float, share: float) -> None:
    assert (
        run(engine, by_index([0.0, 0.5, 1.0, 2.0]), pass_reward=threshold).metrics["eval/pass@1"].value
        == share
    )


def test_no_rewards_at_all(engine: InProcessEngine) -> None:
    found = run(engine, constant(None))
    assert found.metrics["eval/pass@1"].value == 0.0
    assert "eval/reward_mean" not in values(found.metrics)


def test_greedy_is_repeatable(engine: InProcessEngine) -> None:
    first, again = run(engine, seed=(0, 1)), run(engine, seed=(5,))
    assert token_ids([g.rollouts_G for g in first.groups]) == token_ids([g.rollouts_G for g in again.groups])
    assert values(first.metrics) == values(again.metrics)


def test_sampling_follows_the_seed_and_its_own_temperature(engine: InProcessEngine) -> None:
    sampled = [run(engine, seed=seed, temperature=1.0, samples=6) for seed in ((0,), (0,), (1,))]
    ids = [token_ids([g.rollouts_G for g in found.groups]) for found in sampled]
    assert ids[0] == ids[1] != ids[2]
    assert all(len({tuple(response) for response in group}) > 1 for group in ids[0])
    assert all(r.kept_mass_T is None for g in sampled[0].groups for r in g.rollouts_G)


def test_several_samples_are_averaged(engine: InProcessEngine) -> None:
    # Four prompts of three samples: 3, 1, 0 and 2 pass, so 6 of 12.
    rewards = [1, 1, 1, 0, 1, 0, 0, 0, 0, 1, 0, 1]
    found = run(engine, by_index(rewards), temperature=1.0, samples=3)
    assert [len(g.rollouts_G) for g in found.groups] == [3] * 4
    assert [[v.reward for v in g.verdicts_G] for g in found.groups] == [
        [1, 1, 1],
        [0, 1, 0],
        [0, 0, 0],
        [1, 0, 1],
    ]
    assert found.metrics["eval/pass@1"] == Mean(6.0, 12.0)


def test_only_the_first_prompts(engine: InProcessEngine) -> None:
    asked: list[str] = []

    def score(prompts: Sequence[Prompt], rollouts: Sequence[Rollout]) -> list[Verdict]:
        asked.extend(prompt.id for prompt in prompts)
        return constant(1.0)(prompts, rollouts)

    found = run(engine, score, prompts=2)
    assert asked == [g.prompt.id for g in found.groups] == ["examples:0", "examples:1"]
    assert len(run(engine, prompts=9).groups) == 4


@pytest.mark.parametrize(("own", "limit"), [(None, 8), (3, 3)])
def test_lengths(engine: InProcessEngine, own: int | None, limit: int) -> None:
    found = run(engine, max_new_tokens=own, temperature=1.0, samples=5)
    rollouts = [r for g in found.groups for r in g.rollouts_G]
    lengths = [len(r.token_ids_T) for r in rollouts]
    assert max(lengths) == limit
    assert found.metrics["eval/length_mean"].value == pytest.approx(sum(lengths) / 20)
    truncated = sum(int(r.token_ids_T[-1]) not in range(3, 60) for r in rollouts)
    assert 0 < truncated < 20
    assert found.metrics["eval/truncated_fraction"] == Mean(float(truncated), 20.0)


def test_pass_at_k_beside_pass_at_1(engine: InProcessEngine) -> None:
    # Four prompts of three samples: 3, 1, 0 and 2 pass. pass@2 is 1, 1 - C(2,2)/C(3,2) = 2/3, 0 and 1, mean 2/3; pass@3
    # is 1, 1, 0 and 1, mean 3/4.
    rewards = [1, 1, 1, 0, 1, 0, 0, 0, 0, 1, 0, 1]
    found = run(engine, by_index(rewards), temperature=1.0, samples=3, k=(1, 2, 3))
    assert values(found.metrics)["eval/pass@2"] == pytest.approx(2 / 3)
    assert values(found.metrics)["eval/pass@3"] == pytest.approx(3 / 4)
    assert found.metrics["eval/pass@1"] == Mean(6.0, 12.0)
    assert "eval/pass@2" not in run(engine, temperature=1.0, samples=3).metrics


def test_a_greedy_response_beside_the_sampled_ones(engine: InProcessEngine) -> None:
    # Two prompts, two samples and a greedy one each, scored in that order: the greedy ones pass, once.
    found = run(engine, by_index([0, 0, 1, 1, 0, 0]), lengths=(5, 2), temperature=1.0, samples=2, greedy=True)
    assert found.metrics["eval/greedy_pass@1"] == Mean(1.0, 2.0)
    assert found.metrics["eval/pass@1"] == Mean(1.0, 4.0)
    assert found.metrics["eval/response_count"].value == 4
    alone = run(engine, lengths=(5, 2))
    greedy = [group.greedy for group in found.groups]
    assert all(each is not None for each in greedy)
    assert token_ids([[each.rollout] for each in greedy if each is not None]) == token_ids(
        [g.rollouts_G for g in alone.groups]
    )


def test_each_row_counts_once_whatever_the_training_group(engine: InProcessEngine) -> None:
    # Case e08: 3 rows and a training group of 4 by 2 prompts; evaluation has a size of its own and no padding.
    config = RolloutConfig(max_new_tokens=4, group_size=4, prompts_per_step=2)
    asked: list[str] = []

    def score(prompts: Sequence[Prompt], rollouts: Sequence[Rollout]) -> list[Verdict]:
        asked.extend(prompt.id for prompt in prompts)
        return constant(1.0)(prompts, rollouts)

    prompts = random_prompts((5, 2, 9))
    found = evaluate(engine, prompts, score, EvaluateConfig(), config, seed=(0,))
    assert asked == [prompt.id for prompt in prompts]
    assert [len(group.rollouts_G) for group in found.groups] == [1, 1, 1]


def test_equal_prompts_of_two_rows_are_two_groups(engine: InProcessEngine) -> None:
    # Case e03: the same question with the answers 1 and 2. Each group has its own row's answer.
    (first,) = random_prompts((5,))
    prompts = [
        dataclasses.replace(first, id="a:0", columns={"answer": 1}),
        dataclasses.replace(first, id="a:1", columns={"answer": 2}),
    ]

    def score(prompts: Sequence[Prompt], rollouts: Sequence[Rollout]) -> list[Verdict]:
        return [Verdict(reward=float(prompt.columns["answer"] == 1), parts={}) for prompt in prompts]

    config = EvaluateConfig(temperature=1.0, samples=2)
    found = evaluate(engine, prompts, score, config, ROLLOUT, seed=(0,))
    assert [[v.reward for v in g.verdicts_G] for g in found.groups] == [[1.0, 1.0], [0.0, 0.0]]
    assert found.metrics["eval/pass@1"].value == 0.5
