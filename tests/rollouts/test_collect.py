import time
from collections.abc import Sequence

import pytest

from groupwise.errors import RewardError
from groupwise.model.load import Policy
from groupwise.records import Prompt, Rollout, Verdict
from groupwise.rollouts.collect import Redraw, collect
from groupwise.rollouts.engine import Sampling
from groupwise.rollouts.in_process import InProcessEngine
from tests.rollouts.examples import engine_of, random_prompts, token_ids

SAMPLING = Sampling(max_new_tokens=6)


def name_of(rollout: Rollout) -> str:
    return f"{rollout.prompt_id}/{rollout.group_index}"


class Score:
    """Remembers what it was asked, and names each rollout in its verdict."""

    def __init__(self) -> None:
        self.calls: list[list[tuple[Prompt, Rollout]]] = []

    def __call__(self, prompts: Sequence[Prompt], rollouts: Sequence[Rollout]) -> list[Verdict]:
        self.calls.append(list(zip(prompts, rollouts, strict=True)))
        return [Verdict(reward=float(i), parts={name_of(r): 1.0}) for i, r in enumerate(rollouts)]


@pytest.fixture
def engine(policy: Policy) -> InProcessEngine:
    return engine_of(policy)


def test_every_rollout_meets_its_own_verdict(engine: InProcessEngine) -> None:
    prompts, score = random_prompts((9, 2, 5)), Score()
    collected = collect(engine, prompts, SAMPLING, score, group_size=4, seed=(0, 1))
    [pairs] = score.calls  # one call, so that rewards may work on the whole batch
    assert len(pairs) == 12
    assert all(prompt.id == rollout.prompt_id for prompt, rollout in pairs)
    assert [group.prompt for group in collected.groups] == prompts
    for p, group in enumerate(collected.groups):
        assert [r.group_index for r in group.rollouts_G] == [0, 1, 2, 3]
        assert [v.reward for v in group.verdicts_G] == [4 * p + g for g in range(4)]
        for rollout, verdict in zip(group.rollouts_G, group.verdicts_G, strict=True):
            assert list(verdict.parts) == [name_of(rollout)]
    direct = engine.generate(prompts, SAMPLING, group_size=4, seed=(0, 1))
    assert token_ids([g.rollouts_G for g in collected.groups]) == token_ids(direct)


def test_the_seed_and_group_size_reach_the_engine(engine: InProcessEngine) -> None:
    prompts = random_prompts((3, 5))
    rollouts = [
        token_ids(
            [
                g.rollouts_G
                for g in collect(engine, prompts, SAMPLING, Score(), group_size=2, seed=seed).groups
            ]
        )
        for seed in ((0, 1), (0, 1), (0, 2))
    ]
    assert rollouts[0] == rollouts[1] != rollouts[2]
    assert [len(group) for group in rollouts[0]] == [2, 2]


def test_no_prompts(engine: InProcessEngine) -> None:
    assert collect(engine, [], SAMPLING, Score(), group_size=4, seed=(0,)).groups == []


def test_the_seconds_are_told_apart(engine: InProcessEngine) -> None:
    def slow(prompts: Sequence[Prompt], rollouts: Sequence[Rollout]) -> list[Verdict]:
        time.sleep(0.05)
        return Score()(prompts, rollouts)

    started = time.perf_counter()
    collected = collect(engine, random_prompts((3,)), SAMPLING, slow, group_size=2, seed=(0,))
    whole = time.perf_counter() - started
    assert collected.reward_seconds >= 0.05
    assert collected.generate_seconds > 0
    assert collected.generate_seconds + collected.reward_seconds <= whole


@pytest.mark.parametrize("surplus", [-1, 1])
def test_a_wrong_number_of_verdicts(engine: InProcessEngine, surplus: int) -> None:
    def careless(prompts: Sequence[Prompt], rollouts: Sequence[Rollout]) -> list[Verdict]:
        return [Verdict(reward=0.0, parts={})] * (len(rollouts) + surplus)

    with pytest.raises(RewardError, match=rf"scoring gave {6 + surplus} verdicts for 6 rollouts"):
        collect(engine, random_prompts((3, 5)), SAMPLING, careless, group_size=3, seed=(0,))


def test_a_greedy_response_is_scored_with_the_others_and_stands_beside_them(engine: InProcessEngine) -> None:
    prompts, score = random_prompts((3, 5)), Score()
    collected = collect(engine, prompts, SAMPLING, score, group_size=2, seed=(0, 1), greedy=True)
    [pairs] = score.calls
    assert [rollout.group_index for _, rollout in pairs] == [0, 1, 2, 0, 1, 2]
    for p, group in enumerate(collected.groups):
        assert [r.group_index for r in group.rollouts_G] == [0, 1]
        assert group.greedy is not None
        assert group.greedy.rollout.group_index == 2
        assert group.greedy.verdict.reward == 3 * p + 2
        assert list(group.greedy.verdict.parts) == [name_of(group.greedy.rollout)]
    plain = collect(engine, prompts, SAMPLING, Score(), group_size=2, seed=(0, 1)).groups
    assert all(group.greedy is None for group in plain)
    assert token_ids([g.rollouts_G for g in plain]) == token_ids([g.rollouts_G for g in collected.groups])


def redraw_from(spare: list[Prompt], flat: set[str], rounds: int) -> Redraw:
    waiting = list(spare)

    def more(count: int) -> list[Prompt]:
        taken, waiting[:] = waiting[:count], waiting[count:]
        return taken

    return Redraw(rounds=rounds, more=more, has_spread=lambda group: group.prompt.id not in flat)


def test_groups_without_spread_are_replaced_by_further_prompts(engine: InProcessEngine) -> None:
    prompts = random_prompts((3, 4, 5, 6, 7, 8))
    ids = [prompt.id for prompt in prompts]
    score = Score()
    found = collect(
        engine,
        prompts[:3],
        SAMPLING,
        score,
        group_size=2,
        seed=(0, 1),
        redraw=redraw_from(prompts[3:], {ids[0], ids[2], ids[3]}, rounds=5),
    )
    # Of 0, 1, 2 only 1 has spread; of 3 and 4 only 4; then 5. What was replaced is kept for the account.
    assert [group.prompt.id for group in found.groups] == [ids[1], ids[4], ids[5]]
    assert [group.prompt.id for group in found.left_out] == [ids[0], ids[2], ids[3]]
    assert found.redraws == 2
    assert [len(call) for call in score.calls] == [6, 4, 2]
    direct = engine.generate(prompts[4:5], SAMPLING, group_size=2, seed=(0, 1))
    assert token_ids([found.groups[1].rollouts_G]) == token_ids(direct)


@pytest.mark.parametrize("rounds", [1, 2, 9])
def test_redraws_are_bounded_and_the_batch_stays_whole(engine: InProcessEngine, rounds: int) -> None:
    prompts = random_prompts((3, 4, 5, 6, 7, 8))
    every = {prompt.id for prompt in prompts}
    found = collect(
        engine,
        prompts[:2],
        SAMPLING,
        Score(),
        group_size=2,
        seed=(0, 1),
        redraw=redraw_from(prompts[2:], every, rounds),
    )
    # Two prompts a round, and four are spare, so from the third round on there are none.
    assert found.redraws == min(rounds, 2)
    assert [group.prompt for group in found.groups] == prompts[:2]
    assert len(found.left_out) == 2 * min(rounds, 2)


def test_with_spread_everywhere_nothing_is_drawn_again(engine: InProcessEngine) -> None:
    prompts = random_prompts((3, 4))
    plain = collect(engine, prompts, SAMPLING, Score(), group_size=2, seed=(0, 1))
    redraw = redraw_from(random_prompts((5,)), set(), 3)
    same = collect(engine, prompts, SAMPLING, Score(), group_size=2, seed=(0, 1), redraw=redraw)
    assert token_ids([g.rollouts_G for g in same.groups]) == token_ids([g.rollouts_G for g in plain.groups])
    assert (same.left_out, same.redraws) == ([], 0)
