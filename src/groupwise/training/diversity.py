"""How much the responses of a batch differ: from each other, and each from itself."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from groupwise.health.metric import Mean, Metric
from groupwise.records import Group, Rollout

_REPEATED = 4
_ORDERS = 4
_BLEU_GROUPS, _BLEU_ROLLOUTS, _BLEU_TOKENS = 4, 8, 256


def diversity(groups: Sequence[Group]) -> dict[str, Metric]:
    """Distinct-n, distinct and like responses within groups, and repetition within responses, by token ids."""
    rollouts = [r for g in groups for r in g.rollouts_G]
    distinct = [len({r.token_ids_T.tobytes() for r in g.rollouts_G}) / len(g.rollouts_G) for g in groups]
    return {
        "diversity/distinct_1": _distinct(rollouts, 1),
        "diversity/distinct_2": _distinct(rollouts, 2),
        "diversity/group_distinct_fraction": Mean.of(distinct),
        "diversity/repeated_4_fraction": _repeated(rollouts),
        "diversity/self_bleu": _self_bleu(groups),
    }


def _distinct(rollouts: Sequence[Rollout], n: int) -> Mean:
    """Different n-grams of tokens over all n-grams of the batch (Li et al. 2016, distinct-n)."""
    grams: set[tuple[int, ...]] = set()
    total = 0
    for rollout in rollouts:
        ids = rollout.token_ids_T.tolist()
        mine = list(zip(*(ids[k:] for k in range(n)), strict=False))
        grams.update(mine)
        total += len(mine)
    return Mean(float(len(grams)), float(total))


def _repeated(rollouts: Sequence[Rollout]) -> Mean:
    """Runs of four tokens that stood in the same response before, over all such runs (Welleck et al. 2019)."""
    repeated = total = 0
    for rollout in rollouts:
        ids = rollout.token_ids_T.tolist()
        runs = list(zip(*(ids[k:] for k in range(_REPEATED)), strict=False))
        repeated += len(runs) - len(set(runs))
        total += len(runs)
    return Mean(float(repeated), float(total))


def _self_bleu(groups: Sequence[Group]) -> Mean:
    """Mean over responses of the BLEU of each against the others of its group, on a sample of the batch.

    Self-BLEU (Zhu et al. 2018, Texygen, arXiv 1802.01886) over tokens: 1 when the responses of a group are the same.
    The sample is four groups at even distances, their first eight responses and of each the first 256 tokens, which
    bounds the time that it takes.
    """
    chosen = {len(groups) * i // _BLEU_GROUPS for i in range(_BLEU_GROUPS)} if groups else set()
    scores = []
    for index in sorted(chosen):
        rollouts = groups[index].rollouts_G[:_BLEU_ROLLOUTS]
        scores += self_bleu([r.token_ids_T[:_BLEU_TOKENS].tolist() for r in rollouts])
    return Mean.of(scores)


def self_bleu(responses: Sequence[Sequence[int]]) -> list[float]:
    """Of each response the BLEU with the others as its references; none of a single response.

    BLEU-4 (Papineni et al. 2002), for a shorter response of as many orders as it has; from pairs on, one is added to
    both parts of each precision (Lin and Och 2004, "ORANGE", section 4), since a short text has rarely a run of four in
    common with another. The brevity penalty is that of the reference next in length, the shorter of two.

    Args:
        responses: token ids.

    Edge case: an empty response scores 1 where another is empty too, and 0 otherwise.
    """
    if len(responses) < 2:
        return []
    counts = [[_grams(ids, n) for n in range(1, _ORDERS + 1)] for ids in responses]
    highest = [_two_highest([of[n] for of in counts]) for n in range(_ORDERS)]
    lengths = [len(ids) for ids in responses]
    return [
        _bleu(counts[i], highest, lengths[i], [length for j, length in enumerate(lengths) if j != i], i)
        for i in range(len(responses))
    ]


_Gram = tuple[int, ...]


def _grams(ids: Sequence[int], n: int) -> Counter[_Gram]:
    return Counter(zip(*(ids[k:] for k in range(n)), strict=False))


def _two_highest(counts: Sequence[Counter[_Gram]]) -> dict[_Gram, tuple[int, int, int]]:
    """For each run of tokens its largest count in one response, which one that is, and the largest in another."""
    found: dict[_Gram, tuple[int, int, int]] = {}
    for i, each in enumerate(counts):
        for gram, count in each.items():
            first, owner, second = found.get(gram, (0, -1, 0))
            found[gram] = (count, i, first) if count > first else (first, owner, max(second, count))
    return found


def _bleu(
    own: Sequence[Counter[_Gram]],
    highest: Sequence[dict[_Gram, tuple[int, int, int]]],
    length: int,
    others: Sequence[int],
    index: int,
) -> float:
    if length == 0:
        return float(0 in others)
    logs = []
    for n in range(min(_ORDERS, length)):
        matched = total = 0
        for gram, count in own[n].items():
            first, owner, second = highest[n][gram]
            matched += min(count, second if owner == index else first)
            total += count
        added = n > 0
        if matched + added == 0:
            return 0.0
        logs.append(math.log((matched + added) / (total + added)))
    nearest = min(others, key=lambda other: (abs(other - length), other))
    brevity = min(0.0, 1 - nearest / length)
    return math.exp(brevity + sum(logs) / len(logs))
