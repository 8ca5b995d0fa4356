"""What may not change the loss or its gradient."""

import numpy as np
import pytest
import torch

from tests.objective.batches import OnPackage, random_batch
from tests.reference.objective import Response, Settings

FULL = Settings(std="population", dual=3.0, high=0.28, beta=0.1, entropy_bonus=0.01, cap=2.0)
SEQUENCE = Settings(
    advantage="batch_zscore",
    ratio="sequence_geometric",
    low=0.02,
    high=0.03,
    kl="k3_ratio",
    beta=0.1,
    cap_token=0.3,
    cap_rollout=0.5,
    cap=2.0,
)
PRODUCT = Settings(
    advantage="token_whitening", ratio="sequence_product", surrogate="cispo", kl="k2", beta=0.1
)
OBJECTIVES = {"clip": FULL, "sequence": SEQUENCE, "product": PRODUCT}
AGGREGATIONS = ["sequence_mean", "token_mean", "constant", "sequence_sum"]


def full(aggregation: str, objective: str = "clip") -> Settings:
    return Settings(**{**vars(OBJECTIVES[objective]), "aggregation": aggregation})


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("micro", [1, 2, 3, 8, 20])
def test_micro_batches_add_up_to_the_batch(aggregation: str, objective: str, micro: int) -> None:
    # Cases a01 and m02: whatever the split, the same loss and the same gradient.
    batch = random_batch(3)
    settings = full(aggregation, objective)
    whole, split = OnPackage(batch, settings), OnPackage(batch, settings)
    expected = whole.loss().loss
    expected.backward()
    numbers = list(range(len(split.rows)))
    total = 0.0
    for start in range(0, len(numbers), micro):
        part = split.loss(numbers[start : start + micro]).loss
        part.backward()
        total += part.item()
    assert total == pytest.approx(expected.item(), rel=1e-12)
    for got, right in zip(split.gradients(), whole.gradients(), strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_the_order_of_rollouts_and_groups_does_not_matter(aggregation: str, objective: str) -> None:
    rng = np.random.default_rng(0)
    batch = random_batch(4)
    order = [rng.permutation(len(group)) for group in batch]
    shuffled = [[batch[g][i] for i in order[g]] for g in rng.permutation(len(batch))]
    settings = full(aggregation, objective)
    package, other = OnPackage(batch, settings), OnPackage(shuffled, settings)
    package.loss().loss.backward()
    other.loss().loss.backward()
    assert other.loss().loss.item() == pytest.approx(package.loss().loss.item(), rel=1e-12)
    place = {id(row): i for i, row in enumerate(other.rows)}
    for i, row in enumerate(package.rows):
        np.testing.assert_allclose(
            other.gradients()[place[id(row)]], package.gradients()[i], rtol=1e-10, atol=1e-15
        )


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("reward", [0.0, 0.3, -7.7, 1 / 3])
@pytest.mark.parametrize(
    "advantage",
    ["group_zscore", "group_mean", "leave_one_out", "rank", "sign", "batch_zscore", "token_whitening"],
)
def test_constant_rewards_change_nothing_without_a_leash(
    aggregation: str, reward: float, advantage: str
) -> None:
    batch = random_batch(5)
    for group in batch:
        for response in group:
            response.reward = reward
    package = OnPackage(batch, Settings(advantage=advantage, aggregation=aggregation, cap=2.0))
    loss = package.loss().loss
    loss.backward()
    assert loss.item() == 0.0
    assert all(value == 0.0 for row in package.gradients() for value in row)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("filler", [0.0, 1e6, float("nan")])
def test_what_is_not_trained_changes_no_bit(aggregation: str, filler: float, objective: str) -> None:
    # Case a09: untrained positions hold anything at all, NaN too, and a row without trained tokens gives 0.
    batch = random_batch(6)
    package = OnPackage(batch, full(aggregation, objective))
    package.loss().loss.backward()
    for group in batch:
        for response in group:
            for values in (
                response.policy,
                response.old,
                response.sampler,
                response.reference,
                response.entropy,
            ):
                values[:] = [v if m else filler for v, m in zip(values, response.trainable, strict=True)]
    other = OnPackage(batch, full(aggregation, objective))
    other.loss().loss.backward()
    assert other.loss().loss.item() == package.loss().loss.item()
    assert other.gradients() == package.gradients()


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_a_rollout_without_trained_tokens_counts_in_no_divisor(aggregation: str) -> None:
    batch = random_batch(8)
    settings = full(aggregation)
    package = OnPackage(batch, settings)
    empty = Response(reward=0.0, trainable=[], policy=[], old=[], sampler=[], reference=[], entropy=[])
    more = OnPackage([*batch, [empty, empty]], settings)
    assert more.loss().loss.item() == package.loss().loss.item()


def test_a_rollout_with_no_advantage_counts_in_every_divisor() -> None:
    # Two rollouts of 2 tokens at ratio 1, advantages +-1 / sqrt(2) less eps; beside them a group of equal rewards.
    def response(reward: float, n: int) -> Response:
        return Response(reward, [True] * n, [-1.0] * n, [-1.0] * n, [-1.0] * n, [-1.0] * n, [0.0] * n)

    groups = [[response(0.0, 1), response(2.0, 3)], [response(1.0, 4), response(1.0, 4)]]
    # group_mean: advantages -1, 1, 0, 0. sequence_mean: -(-1 + 1 + 0 + 0) / 4 = 0;
    # token_mean: -(-1 x 1 + 1 x 3) / (1 + 3 + 4 + 4) = -2 / 12; constant at 16: -2 / (4 x 16); sequence_sum: -2 / 4
    for aggregation, expected in (
        ("sequence_mean", 0.0),
        ("token_mean", -2 / 12),
        ("constant", -2 / 64),
        ("sequence_sum", -0.5),
    ):
        package = OnPackage(groups, Settings(advantage="group_mean", aggregation=aggregation, length=16))
        assert package.loss().loss.item() == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_in_float32_the_gradient_stays_close() -> None:
    batch = random_batch(9)
    exact, rough = OnPackage(batch, FULL), OnPackage(batch, FULL, dtype=torch.float32)
    exact.loss().loss.backward()
    rough.loss().loss.backward()
    right, got = (np.concatenate([np.array(row) for row in p.gradients()]) for p in (exact, rough))
    assert np.linalg.norm(got - right) / np.linalg.norm(right) < 1e-4
