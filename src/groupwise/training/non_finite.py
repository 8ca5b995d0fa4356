"""Where numbers that are not finite came from: which quantity, which rollouts, which tokens.

Three sources are classic: an advantage divided by a spread of zero, a ratio that overflows, a KL that overflows. Behind
the last two stands a log-prob that is extreme.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from groupwise.records import Rollout
from groupwise.records.health_file import MOST_SHOWN, Fault, Offender
from groupwise.training.advantages import Judged
from groupwise.training.logprobs import Logprobs

EXTREME_NATS = 40.0
"""A log-prob below minus this (4e-18) is called extreme; its gradient is small, but what divides by it is not."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seen:
    """What one micro-batch computed, detached; its graph is not held."""

    rollouts: Sequence[Rollout]
    """In the order of `rollout_M`."""
    rollout_M: Tensor
    """Which of them each token is of."""
    values: Mapping[str, Tensor | None]
    """Shape [M] each, by source, causes before effects; None for what is not computed."""
    clamped_M: Tensor | None = None
    """True where the log-ratio was clamped; None without a ratio."""
    log_ratio_M: Tensor | None = None
    """Before the clamp."""


def explain(seen: Sequence[Seen], loss: float, norm: float, gradients: Sequence[str]) -> Fault:
    """Why an update cannot be made.

    Args:
        seen: every micro-batch of it.
        loss: of the update.
        norm: of its gradient.
        gradients: names of the weights whose gradient is not finite.
    """
    result = f"the loss is {loss:g} and the gradient's norm {norm:g}"
    for source in dict.fromkeys(name for each in seen for name in each.values):
        offenders = [o for each in seen for o in _offenders(each, each.values.get(source))]
        if offenders:
            first = offenders[0]
            return Fault(
                source=source,
                sentence=f"{result}, since the {_spoken(source)} is {first.value:g} at {_place(first)}"
                f"{_more(offenders)}",
                offenders=offenders,
            )
    suspect = _clamped(seen) or _extreme(seen)
    where = f"; the gradient of {gradients[0]} is not finite" if gradients else "; the norm itself overflows"
    if suspect is None:
        return Fault(source="gradient", sentence=f"{result}, though every token's terms are finite{where}")
    source, offenders = suspect
    worst = f"{offenders[0].value:g} nats at {_place(offenders[0])}{_more(offenders)}"
    return Fault(
        source=source, sentence=f"{result}, most likely by {_an(source)}: {worst}{where}", offenders=offenders
    )


def without_faults(
    judged: Sequence[Judged],
    logprobs: Sequence[Logprobs],
    values: Sequence[Sequence[NDArray[Any]]] | None = None,
) -> tuple[list[Judged], Fault | None]:
    """The batch as it is, or with nothing in the loss when a number that advantages are made from is not finite.

    Args:
        judged: the batch.
        logprobs: of the same groups.
        values: per group and rollout what a critic expects at each token [T]; None without one.

    Returns:
        The batch, and what is wrong with it; None for nothing.
    """
    for source in ("sampler log-prob", "old log-prob", "reference log-prob", "value"):
        offenders = []
        for g, (one, of_group) in enumerate(zip(judged, logprobs, strict=True)):
            rollouts = one.group.rollouts_G
            known_GT = {
                "sampler log-prob": tuple(r.sampler_logprobs_T for r in rollouts),
                "old log-prob": of_group.old_GT,
                "reference log-prob": of_group.reference_GT,
                "value": None if values is None else values[g],
            }[source]
            for i in np.flatnonzero(one.in_loss_G if source == "value" else one.scored_G).tolist():
                if known_GT is not None:
                    bad_T = rollouts[i].trainable_T & ~np.isfinite(known_GT[i])
                    offenders += [
                        _offender(rollouts[i], t, float(known_GT[i][t]))
                        for t in np.flatnonzero(bad_T).tolist()
                    ]
        if offenders:
            first = f"{offenders[0].value:g} at {_place(offenders[0])}{_more(offenders)}"
            fault = Fault(source=source, sentence=f"the {_spoken(source)} is {first}", offenders=offenders)
            return [_left_out(one) for one in judged], fault
    return list(judged), None


def _left_out(one: Judged) -> Judged:
    return replace(one, in_loss_G=np.zeros_like(one.in_loss_G), counted_G=np.zeros_like(one.counted_G))


def _offenders(seen: Seen, values_M: Tensor | None) -> Iterator[Offender]:
    if values_M is not None:
        yield from _at(seen, ~values_M.isfinite(), values_M)


def _clamped(seen: Sequence[Seen]) -> tuple[str, list[Offender]] | None:
    found = [
        o
        for each in seen
        if each.clamped_M is not None and each.log_ratio_M is not None
        for o in _at(each, each.clamped_M.bool(), each.log_ratio_M)
    ]
    return ("ratio overflow", sorted(found, key=lambda o: -abs(o.value))) if found else None


def _extreme(seen: Sequence[Seen]) -> tuple[str, list[Offender]] | None:
    found = []
    for each in seen:
        logprobs_M = each.values.get("policy log-prob")
        if logprobs_M is not None:
            found += list(_at(each, logprobs_M < -EXTREME_NATS, logprobs_M))
    return ("extreme log-prob", sorted(found, key=lambda o: o.value)) if found else None


def _at(seen: Seen, where_M: Tensor, values_M: Tensor) -> Iterator[Offender]:
    """The tokens where something holds, with their values; the first ones of a micro-batch, as many as are shown."""
    for m in torch.nonzero(where_M).flatten().tolist()[:MOST_SHOWN]:
        i = int(seen.rollout_M[m])
        nth = int((seen.rollout_M[:m] == i).sum())
        rollout = seen.rollouts[i]
        yield _offender(rollout, int(np.flatnonzero(rollout.trainable_T)[nth]), float(values_M[m]))


def _offender(rollout: Rollout, token: int, value: float) -> Offender:
    return Offender(prompt_id=rollout.prompt_id, group_index=rollout.group_index, token=token, value=value)


def _place(offender: Offender) -> str:
    return f"token {offender.token} of rollout {offender.group_index} of prompt {offender.prompt_id}"


def _more(offenders: Sequence[Offender]) -> str:
    return f" (and {len(offenders) - 1} more)" if len(offenders) > 1 else ""


def _spoken(source: str) -> str:
    return {
        "ratio overflow": "ratio",
        "KL overflow": "KL",
        "policy log-prob": "policy's log-prob",
        "old log-prob": "old policy's log-prob",
        "sampler log-prob": "sampler's log-prob",
        "reference log-prob": "reference's log-prob",
        "value": "critic's value",
        "value target": "critic's target",
        "correction": "weight from sampler to old policy",
    }.get(source, source)


def _an(source: str) -> str:
    return f"{'an' if source[0] in 'aeiou' else 'a'} {source}"
