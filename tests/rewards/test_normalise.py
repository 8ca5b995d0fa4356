import json
import math
import random
import statistics

import pytest

from groupwise.errors import CheckpointError
from groupwise.rewards.normalise import Statistics
from groupwise.rewards.term import Term

GROUP = Term(label="r", normalise="group")
BATCH = Term(label="r", normalise="batch")


def test_by_group_each_group_has_its_own_mean_and_std() -> None:
    values = [1.0, 2.0, 4.0, 2.0, 10.0, 30.0]
    groups = ["x", "x", "y", "x", "y", "y"]
    got = Statistics().normalised(GROUP, values, groups)
    # x: 1, 2, 2: mean 5/3, sample variance (4/9 + 1/9 + 1/9) / 2 = 1/3.
    # y: 4, 10, 30: mean 44/3, sample variance ((-32/3)^2 + (-14/3)^2 + (46/3)^2) / 2 = 3336/18 = 185.3333
    sx, sy = math.sqrt(1 / 3), math.sqrt(3336 / 18)
    low, high = (1 - 5 / 3) / sx, (2 - 5 / 3) / sx
    wanted = [low, high, (4 - 44 / 3) / sy, high, (10 - 44 / 3) / sy, (30 - 44 / 3) / sy]
    assert got == pytest.approx(wanted, rel=1e-12)


def test_by_batch_all_share_one_mean_and_std() -> None:
    got = Statistics().normalised(BATCH, [1.0, 3.0, None, 5.0], ["x", "y", "y", "z"])
    assert got == [-1.0, 0.0, None, 1.0]  # mean 3, sample std 2


def test_against_a_plain_reference() -> None:
    rng = random.Random(3)
    values = [rng.choice([None, rng.gauss(3, 2), rng.gauss(-1, 9)]) for _ in range(200)]
    groups = [rng.choice("abcdefgh") for _ in values]
    wanted = []
    for value, group in zip(values, groups, strict=True):
        mine = [v for v, g in zip(values, groups, strict=True) if g == group and v is not None]
        wanted.append(None if value is None else (value - statistics.fmean(mine)) / statistics.stdev(mine))
    got = Statistics().normalised(GROUP, values, groups)
    assert [g is None for g in got] == [w is None for w in wanted]
    pairs = [(g, w) for g, w in zip(got, wanted, strict=True) if g is not None and w is not None]
    assert [g for g, _ in pairs] == pytest.approx([w for _, w in pairs], rel=1e-9)


def test_scale_and_offset_of_a_reward_do_not_matter() -> None:
    values, groups = [0.1, 0.7, 0.4, 0.9], ["x", "x", "y", "y"]
    plain = Statistics().normalised(GROUP, values, groups)
    moved = Statistics().normalised(GROUP, [1000 * v - 77 for v in values], groups)
    assert moved == pytest.approx(plain, rel=1e-9)


@pytest.mark.parametrize("term", [GROUP, BATCH])
def test_equal_or_single_values_are_exactly_zero(term: Term) -> None:
    nearly = 0.3 + 1e-9
    assert Statistics().normalised(term, [0.3, nearly, 0.3], ["g"] * 3) == [0.0, 0.0, 0.0]
    assert Statistics().normalised(term, [5.0], ["g"]) == [0.0]
    assert Statistics().normalised(term, [None, None], ["g"] * 2) == [None, None]
    smooth = Term(label="r", normalise="group", smoothing=0.5)
    kept = Statistics()
    kept.normalised(smooth, [0.0, 2.0], ["g"] * 2)
    assert kept.normalised(smooth, [0.3, nearly, 0.3], ["g"] * 3) == [0.0, 0.0, 0.0]


def test_smoothing_by_batch_by_hand() -> None:
    term = Term(label="r", normalise="batch", smoothing=0.5)
    kept = Statistics()
    # Step 1: mean 1, variance 2. m = 0.5 x 1 = 0.5, corrected by 1 - 0.5: 1. v = 1, corrected: 2.
    assert kept.normalised(term, [0.0, 2.0], ["g", "g"]) == pytest.approx(
        [-1 / math.sqrt(2), 1 / math.sqrt(2)]
    )
    # Step 2: mean 6, variance 8. m = 0.25 + 3 = 3.25, corrected by 0.75: 13/3. v = 0.5 + 4 = 4.5, corrected: 6.
    got = kept.normalised(term, [4.0, 8.0], ["g", "g"])
    assert got == pytest.approx([(4 - 13 / 3) / math.sqrt(6), (8 - 13 / 3) / math.sqrt(6)], rel=1e-12)
    assert kept.std(term) == pytest.approx(math.sqrt(6), rel=1e-12)


def test_smoothing_by_group_keeps_each_groups_own_centre() -> None:
    term = Term(label="r", normalise="group", smoothing=0.75)
    kept = Statistics()
    values, groups = [0.0, 2.0, 10.0, 16.0, 5.0], ["x", "x", "y", "y", "alone"]
    # Variances 2 and 18, mean 10; a group of one says nothing. v = 0.25 x 10 = 2.5, corrected by 1 - 0.75: 10.
    s = math.sqrt(10)
    assert kept.normalised(term, values, groups) == pytest.approx(
        [-1 / s, 1 / s, -3 / s, 3 / s, 0.0], rel=1e-12
    )
    # Then one group of variance 0.02: v = 0.75 x 2.5 + 0.25 x 0.02 = 1.88, corrected by 1 - 0.5625: 4.297142857.
    got = kept.normalised(term, [0.0, 0.2], ["x", "x"])
    assert got == pytest.approx([-0.1 / math.sqrt(1.88 / 0.4375), 0.1 / math.sqrt(1.88 / 0.4375)], rel=1e-12)


def test_a_step_without_values_changes_nothing() -> None:
    term = Term(label="r", normalise="batch", smoothing=0.5)
    kept = Statistics()
    kept.normalised(term, [0.0, 2.0], ["g", "g"])
    before = kept.state()
    kept.normalised(term, [None, None], ["g", "g"])
    assert kept.state() == before


def test_a_restored_state_goes_on_bit_for_bit() -> None:
    term = Term(label="r", normalise="batch", smoothing=0.9)
    steps = [[random.Random(i).gauss(0, 1) for _ in range(5)] for i in range(6)]
    whole = Statistics()
    wanted = [whole.normalised(term, values, ["g"] * 5) for values in steps]
    first, second = Statistics(), Statistics()
    got = [first.normalised(term, values, ["g"] * 5) for values in steps[:3]]
    second.restore(json.loads(json.dumps(first.state())))
    got += [second.normalised(term, values, ["g"] * 5) for values in steps[3:]]
    assert got == wanted


@pytest.mark.parametrize(
    "state", [{"r": {"updates": 1}}, {"r": 3}, {"r": {"updates": "x", "mean": 0, "variance": 0}}]
)
def test_a_damaged_state_is_one_sentence(state: dict[str, object]) -> None:
    with pytest.raises(CheckpointError, match="saved statistics of the rewards are damaged"):
        Statistics().restore(state)
