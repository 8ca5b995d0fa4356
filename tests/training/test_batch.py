from dataclasses import replace

import numpy as np
import pytest
import torch

from groupwise.objective.aggregations.token_mean import token_mean
from groupwise.records import Rollout, StopReason
from groupwise.training.batch import Row, assemble, divide, families_of, mini_batches, split, weighted

P = [np.arange(n, dtype=np.int32) for n in (3, 5)]


def row(
    prompt: int, tokens: int, advantage: float | list[float] = 1.0, trainable: list[bool] | None = None
) -> Row:
    rollout = Rollout(
        prompt_id=str(prompt),
        group_index=0,
        token_ids_T=np.arange(10, 10 + tokens, dtype=np.int32),
        trainable_T=np.array(trainable or [True] * tokens),
        sampler_logprobs_T=-np.arange(1, tokens + 1, dtype=np.float32),
        kept_mass_T=None,
        entropy_T=None,
        stop_reason=StopReason.STOP,
        policy_version=0,
        text="",
    )
    return Row(
        prompt_ids=P[prompt],
        rollout=rollout,
        advantages_T=np.broadcast_to(np.array(advantage), tokens),
        weight=0.0,
        old_logprobs_T=-np.arange(1, tokens + 1, dtype=np.float32),
        reference_logprobs_T=None,
        correction_T=None,
    )


def test_the_budget_counts_a_shared_prompt_once() -> None:
    rows = [row(0, 4), row(0, 4), row(1, 4)]
    # 3 + 4 + 4 = 11 tokens for the first two; the third brings 5 + 4 = 9 more.
    assert [len(p) for p in split(rows, tokens=11, rollouts=None, shared=True)] == [2, 1]
    assert [len(p) for p in split(rows, tokens=20, rollouts=None, shared=True)] == [3]
    assert [len(p) for p in split(rows, tokens=10, rollouts=None, shared=True)] == [1, 1, 1]
    assert [len(p) for p in split(rows, tokens=1, rollouts=None, shared=True)] == [1, 1, 1], (
        "a row over the budget goes alone"
    )
    assert [len(p) for p in split(rows, tokens=100, rollouts=2, shared=True)] == [2, 1]


def test_unshared_prompts_cost_whole_padded_rows() -> None:
    rows = [row(0, 4), row(0, 2), row(1, 4)]
    # Lengths 7, 5 and 9: two rows padded to 7 are 14, three padded to 9 are 27.
    assert [len(p) for p in split(rows, tokens=13, rollouts=None, shared=False)] == [1, 1, 1]
    assert [len(p) for p in split(rows, tokens=14, rollouts=None, shared=False)] == [2, 1]
    assert [len(p) for p in split(rows, tokens=26, rollouts=None, shared=False)] == [2, 1]
    assert [len(p) for p in split(rows, tokens=27, rollouts=None, shared=False)] == [3]


def test_neighbours_of_one_prompt_are_a_family() -> None:
    families = families_of([row(0, 1), row(0, 2), row(1, 3)])
    assert [len(f.responses) for f in families] == [2, 1]
    assert [len(f.prompt_ids) for f in families] == [3, 5]


def test_mini_batches_are_disjoint_and_whole() -> None:
    rows = [row(0, n) for n in range(1, 8)]
    parts = mini_batches(rows, 3)
    assert [len(p) for p in parts] == [3, 2, 2]
    assert [id(r) for p in parts for r in p] == [id(r) for r in rows]
    assert mini_batches([], 3) == []


def test_weights_come_from_the_whole_optimiser_batch() -> None:
    rows = weighted([row(0, 1), row(0, 3)], token_mean)  # 4 tokens in all
    assert [r.weight for r in rows] == [0.25, 0.25]


def test_only_trainable_tokens_are_assembled() -> None:
    rows = weighted([row(0, 3, [2.0, 1e6, 3.0], [True, False, True]), row(1, 2, -1.0)], token_mean)
    batch = assemble(rows, device=torch.device("cpu"), dtype=torch.float64)
    assert batch.trainable.tolist() == [0, 2, 3, 4]
    assert batch.advantages_M.tolist() == [2.0, 3.0, -1.0, -1.0]
    assert batch.weights_M.tolist() == pytest.approx([0.25] * 4)
    assert batch.old_logprobs_M.tolist() == [-1.0, -3.0, -1.0, -2.0]
    assert batch.reference_logprobs_M is None
    assert batch.rollout_M.tolist() == [0, 0, 1, 1]


def test_an_advantage_counts_where_a_token_is_trained() -> None:
    assert row(0, 2, [0.0, 1.0]).has_advantage
    assert not row(0, 2, [0.0, 1.0], [True, False]).has_advantage
    assert not row(0, 2, 0.0).has_advantage


def test_ranks_get_whole_groups_as_alike_in_tokens_as_can_be() -> None:
    prompts = [np.arange(2, dtype=np.int32) for _ in range(4)]
    # Groups of 2 + 2 x 4 = 10, 2 + 8 = 10, 2 + 28 = 30 and 2 + 8 = 10 tokens; middles at 5, 15, 35 and 55 of 60.
    sizes = [(4, 4), (4, 4), (14, 14), (4, 4)]
    rows = [replace(row(0, n), prompt_ids=prompts[g]) for g, of_group in enumerate(sizes) for n in of_group]
    shared = [[rows.index(each) for each in part] for part in divide(rows, 2)]
    assert shared == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [[rows.index(each) for each in part] for part in divide(rows, 3)] == [[0, 1, 2, 3], [4, 5], [6, 7]]
    assert divide(rows, 1) == [rows]
    assert [len(part) for part in divide(rows[:2], 3)] == [0, 2, 0]
    assert divide([], 2) == [[], []]
    for count in range(1, 9):
        parts = divide(rows, count)
        assert len(parts) == count
        assert [each for part in parts for each in part] == rows
        for g in range(4):
            assert sum(any(each.prompt_ids is prompts[g] for each in part) for part in parts) == 1
