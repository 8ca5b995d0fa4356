"""Self-BLEU worked out by hand, against a plain computation, and what it does not depend on."""

import math
import random
from collections import Counter

import pytest

from groupwise.training.diversity import self_bleu


def test_by_hand() -> None:
    # Two responses of four tokens, the first three of them alike, each the other's only reference:
    # p1 = 3/4; p2 = (2+1)/(3+1) = 3/4; p3 = (1+1)/(2+1) = 2/3; p4 = (0+1)/(1+1) = 1/2; equally long.
    # (3/4 * 3/4 * 2/3 * 1/2)^(1/4) = 0.1875^(1/4) = 0.658037
    assert self_bleu([[1, 2, 3, 4], [1, 2, 3, 5]]) == pytest.approx([0.658037, 0.658037], abs=1e-6)


def test_a_short_response_is_held_back_by_brevity() -> None:
    # [1, 2] against [1, 2, 3, 4]: p1 = 2/2, p2 = (1+1)/(1+1), brevity exp(1 - 4/2) = exp(-1).
    # [1, 2, 3, 4] against [1, 2]: p1 = 2/4, p2 = (1+1)/(3+1), p3 = (0+1)/(2+1), p4 = (0+1)/(1+1); no penalty.
    long = (1 / 2 * 1 / 2 * 1 / 3 * 1 / 2) ** 0.25
    assert self_bleu([[1, 2], [1, 2, 3, 4]]) == pytest.approx([math.exp(-1), long], abs=1e-12)


def test_the_extremes() -> None:
    assert self_bleu([[7, 8, 9, 7]] * 3) == pytest.approx([1, 1, 1])
    assert self_bleu([[1, 2, 3], [4, 5, 6]]) == [0, 0]
    assert self_bleu([[1, 2]]) == []
    assert self_bleu([[], []]) == [1, 1]
    assert self_bleu([[], [1]]) == [0, 0]


def plain(responses: list[list[int]], index: int) -> float:
    """Clipped by the largest count in any single reference, references gone through one by one."""
    own, others = responses[index], [r for j, r in enumerate(responses) if j != index]
    product, orders = 1.0, min(4, len(own))
    for n in range(1, orders + 1):
        grams = Counter(tuple(own[k : k + n]) for k in range(len(own) - n + 1))
        matched = 0
        for gram, count in grams.items():
            best = max(sum(tuple(o[k : k + n]) == gram for k in range(len(o) - n + 1)) for o in others)
            matched += min(count, best)
        product *= (matched + (n > 1)) / (sum(grams.values()) + (n > 1))
    nearest = min((len(o) for o in others), key=lambda length: (abs(length - len(own)), length))
    return product ** (1 / orders) * min(1.0, math.exp(1 - nearest / len(own)))


@pytest.mark.parametrize("seed", range(20))
def test_against_the_plain_computation(seed: int) -> None:
    draw = random.Random(seed)
    responses = [
        [draw.randrange(3) for _ in range(draw.randrange(1, 12))] for _ in range(draw.randrange(2, 6))
    ]
    found = self_bleu(responses)
    assert found == pytest.approx([plain(responses, i) for i in range(len(responses))], abs=1e-12)
    order = list(range(len(responses)))
    draw.shuffle(order)
    assert self_bleu([responses[i] for i in order]) == pytest.approx([found[i] for i in order], abs=1e-12)
