from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from groupwise.errors import CheckpointError, ConfigError, DataError
from groupwise.prompts import PromptOrder


def order(
    count: int = 5, per_step: int = 2, *, shuffle: bool = True, seed: int = 0, drop_last: bool = False
) -> PromptOrder:
    return PromptOrder(count, per_step, shuffle=shuffle, seed=seed, drop_last=drop_last)


def test_without_shuffling_the_order_is_that_of_the_data_and_no_batch_crosses_an_epoch() -> None:
    # 5 prompts, 2 per step: 2 + 2 + 1 each epoch.
    batches = order(shuffle=False)
    assert batches.steps_per_epoch == 3
    assert [batches.next() for _ in range(6)] == [[0, 1], [2, 3], [4], [0, 1], [2, 3], [4]]


def test_epoch_is_that_of_the_next_batch() -> None:
    batches = order()
    seen = []
    for _ in range(7):
        seen.append(batches.epoch)
        batches.next()
    assert seen == [0, 0, 0, 1, 1, 1, 2]


@pytest.mark.parametrize("per_step", [1, 2, 5, 7])
def test_every_prompt_is_used_once_per_epoch(per_step: int) -> None:
    batches = order(per_step=per_step)
    orders = []
    for _ in range(3):
        epoch = list(itertools.chain.from_iterable(batches.next() for _ in range(batches.steps_per_epoch)))
        assert sorted(epoch) == [0, 1, 2, 3, 4]
        orders.append(epoch)
    assert len({tuple(o) for o in orders}) > 1


def test_drop_last_leaves_out_the_smaller_batch_and_other_prompts_each_epoch() -> None:
    batches = order(drop_last=True)
    assert batches.steps_per_epoch == 2
    left_out = set()
    for _ in range(30):
        used = batches.next() + batches.next()
        assert len(used) == len(set(used)) == 4
        left_out |= set(range(5)) - set(used)
    assert left_out == {0, 1, 2, 3, 4}
    assert batches.epoch == 30
    assert order(count=4, drop_last=True).steps_per_epoch == order(count=4).steps_per_epoch == 2


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    def first_epochs(seed: int) -> list[list[int]]:
        batches = order(count=50, per_step=50, seed=seed)
        return [batches.next() for _ in range(3)]

    assert first_epochs(1) == first_epochs(1)
    different = [tuple(e) for seed in (0, 1, 2) for e in first_epochs(seed)]
    assert len(set(different)) == 9


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("done", range(8))
def test_after_restoring_the_sequence_is_that_of_an_uninterrupted_run(
    shuffle: bool, drop_last: bool, done: int
) -> None:
    straight = order(seed=3, shuffle=shuffle, drop_last=drop_last)
    for _ in range(done):
        straight.next()
    state = straight.state()
    resumed = order(seed=3, shuffle=shuffle, drop_last=drop_last)
    resumed.next()
    resumed.restore(state)
    assert resumed.epoch == straight.epoch
    assert [resumed.next() for _ in range(10)] == [straight.next() for _ in range(10)]
    assert state == {
        "epoch": done // straight.steps_per_epoch,
        "prompt": 2 * (done % straight.steps_per_epoch),
    }


@pytest.mark.parametrize(
    "state",
    [{}, {"epoch": 0}, {"epoch": -1, "prompt": 0}, {"epoch": 0, "prompt": 1.0}, {"epoch": True, "prompt": 0}],
)
def test_a_damaged_position_is_refused(state: dict[str, int]) -> None:
    with pytest.raises(CheckpointError, match="not an epoch and a prompt"):
        order().restore(state)


def test_a_position_beyond_this_data_is_refused() -> None:
    with pytest.raises(CheckpointError, match="at prompt 5 of an epoch, but an epoch has 5 prompts"):
        order().restore({"epoch": 0, "prompt": 5})


def test_orders_without_a_batch_are_refused() -> None:
    with pytest.raises(DataError, match="no prompts"):
        order(count=0)
    with pytest.raises(ConfigError, match="prompts_per_step is 0"):
        order(per_step=0)
    with pytest.raises(ConfigError, match=r"5 prompts do not fill one batch of 8 .*at most 5"):
        order(per_step=8, drop_last=True)


def test_passes_count_prompts_not_batches() -> None:
    order = PromptOrder(5, 2, shuffle=False, seed=0, drop_last=False)
    passes = []
    for _ in range(4):
        order.next()
        passes.append(order.passes)
    assert passes == [0.4, 0.8, 1.0, 1.4]  # 2, 4 and all 5 of the prompts, then 2 of the second epoch
    dropping = PromptOrder(5, 2, shuffle=False, seed=0, drop_last=True)
    dropping.next()
    assert dropping.passes == 0.5  # 2 of the 4 that an epoch uses


def test_more_prompts_within_a_step_are_others_and_cross_the_end_of_an_epoch() -> None:
    batches = order(shuffle=False)
    taken = batches.next()
    assert taken == [0, 1]
    assert batches.more(2, taken) == [2, 3]
    # One is left in this epoch; of the next, 0 and 1 are taken, and so is 2 by then.
    assert batches.more(3, [0, 1, 2, 3]) == [4]
    assert batches.state()["epoch"] >= 1
    assert sorted(order().more(9, ())) == [0, 1, 2, 3, 4]  # no more than there are


def test_only_prompts_that_are_ready_are_taken() -> None:
    ready = np.array([False, True, False, True, True])
    batches = order(shuffle=False)
    assert [batches.next(ready) for _ in range(3)] == [[1, 3], [4, 1], [3, 4]]
    assert batches.more(2, [1], ready) == [3, 4] or batches.more(2, [1], ready) == [4, 3]
    only = np.array([False, False, True, False, False])
    assert order().next(only) == [2]
    everything = np.ones(6, dtype=bool)
    assert [order(count=6).next(everything) for _ in range(1)] == [order(count=6).next()]


MIXED = {"count": 12, "sources": ["a"] * 9 + ["b"] * 3}


def mixed(per_step: int = 4, weights: dict[str, float] | None = None, **settings: object) -> PromptOrder:
    chosen = {**MIXED, "shuffle": True, "seed": 3, "drop_last": False, **settings}
    return PromptOrder(per_step=per_step, weights=weights or {"a": 1.0, "b": 1.0}, **chosen)  # type: ignore[arg-type]


def test_weights_are_the_shares_of_an_epoch_and_of_every_batch() -> None:
    batches = mixed()
    seen: Counter[int] = Counter()
    for _ in range(6 * 3):  # six epochs of three batches
        batch = batches.next()
        assert len(set(batch)) == 4
        assert sum(index >= 9 for index in batch) == 2  # half and half
        seen.update(batch)
    # Each source goes round its own: 36 places over 9 prompts, and 36 over 3.
    assert {seen[index] for index in range(9)} == {4}
    assert {seen[index] for index in range(9, 12)} == {12}


def test_weights_are_exact_after_restoring_and_differ_from_seed_to_seed() -> None:
    straight = mixed()
    head = [straight.next() for _ in range(4)]
    state = straight.state()
    tail = [straight.next() for _ in range(5)]
    resumed = mixed()
    resumed.restore(state)
    assert [resumed.next() for _ in range(5)] == tail
    other = mixed(seed=4)
    assert [other.next() for _ in range(4)] != head


def test_a_prompt_never_comes_twice_in_a_batch_where_rounds_meet() -> None:
    for seed in range(30):
        batches = mixed(per_step=5, weights={"a": 2.0, "b": 1.0}, seed=seed)
        for _ in range(12):
            batch = batches.next()
            assert len(batch) == len(set(batch))


def test_only_how_weights_stand_to_each_other_matters() -> None:
    for factor in (1e-300, 3.0, 8e307):
        batches, same = (
            mixed(per_step=4, weights={"a": 2.0 * each, "b": 1.0 * each}) for each in (factor, 1.0)
        )
        assert [batches.next() for _ in range(6)] == [same.next() for _ in range(6)]


def test_weights_that_cannot_be_kept_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"source b has the weight 0\.001, which gives it none of the 12 places"
    ):
        mixed(weights={"a": 1.0, "b": 0.001})
    with pytest.raises(ConfigError, match=r"source b has 3 prompts, but its weight of 9 asks for 8 of the 8"):
        mixed(per_step=8, weights={"a": 1.0, "b": 9.0})
    with pytest.raises(DataError, match="source c has a weight, but no prompt of it is left"):
        mixed(weights={"a": 1.0, "c": 1.0})
