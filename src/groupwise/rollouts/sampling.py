"""From logits to a token: truncation, and inversion of the cumulative distribution in two levels.

One uniform number per token decides it, so that a rollout can be sampled again. Nothing sorts or normalises the
whole vocabulary: sums over blocks find the block, and a cumulative sum inside it finds the token.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from groupwise.config.rollout import ConfidenceConfig
from groupwise.rollouts.engine import Sampling

_BLOCK = 256
_PART_ELEMENTS = 1 << 19
"""Logits that a CPU makes weights of at a time: 2 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """One token for each of N rollouts."""

    token_N: Tensor
    """Token ids."""
    logprob_N: Tensor
    """Natural-log probability under the distribution drawn from; greedy: under temperature 1."""
    kept_mass_N: Tensor | None
    """Probability that truncation kept; None without truncation."""
    entropy_N: Tensor
    """Entropy in nats before truncation."""
    before_N3: Tensor
    """Log-prob of the token, entropy and log of the sum of exp(logit), all of the logits divided by the temperature and
    before anything else is done to them; float64."""
    mass_RV: Tensor | None
    """exp(logit / temperature), of each row of logits, over that of its largest, before anything else is done. None
    where it was not asked for."""


def uniforms(seed: Sequence[int], prompt_id: str, group_index: int, count: int) -> NDArray[np.float64]:
    """The random numbers of one rollout: in [0, 1), shape [count], a function of the arguments alone.

    Philox (Salmon et al. 2011), a counter-based generator, keyed by a hash of the arguments.
    """
    name = repr((tuple(int(s) for s in seed), prompt_id, int(group_index))).encode()
    key = np.frombuffer(hashlib.sha256(name).digest()[:16], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key)).random(count)


def draw(
    logits_RV: Tensor,
    sampling: Sampling,
    uniform_N: Tensor,
    row_N: Tensor | None = None,
    greedy_N: Tensor | None = None,
    *,
    keep_mass: bool = False,
) -> Drawn:
    """Draw one token for each of N rollouts, several of which may stand on one row of logits.

    Args:
        logits_RV: shape [R, V], float32, not yet divided by the temperature. Overwritten.
        sampling: temperature and truncation.
        uniform_N: shape [N], float64 in [0, 1).
        row_N: the row of each rollout, shape [N]; None when each has its own, in order.
        greedy_N: True where the most likely token is taken whatever `sampling` says, shape [N]; None for nowhere.
        keep_mass: give `mass_RV`.
    """
    if row_N is None:
        row_N = torch.arange(len(uniform_N), device=logits_RV.device)
    likely = sampling.greedy or greedy_N is not None
    warm = 1.0 if sampling.greedy else sampling.temperature
    cold_N = None
    if greedy_N is not None and warm != 1:  # of temperature 1: the largest less the log of the sum
        cold_NV = logits_RV[row_N[greedy_N]]
        cold_NV.sub_(cold_NV.amax(1, keepdim=True)).exp_()
        cold_N = -_blocks(cold_NV).sum(2).double().sum(1).log()
    weight_RV, mass_RB, dot_R, top_R, likely_R = _weights(logits_RV, warm, likely=likely)
    mass_RV = weight_RV if keep_mass else None
    total_R = mass_RB.sum(1)
    log_total_R = total_R.log()
    # H = log Z - sum p l, both in units where the largest logit is 0.
    entropy_R = log_total_R - dot_R.double() / total_R
    factor_N = None
    kept_R = None
    if sampling.greedy:
        token_N = likely_R[row_N]
    else:
        drawn_RV = weight_RV
        if sampling.truncates:
            drawn_RV = truncate(weight_RV, sampling)
            mass_RB = _blocks(drawn_RV).sum(2).double()
            kept_R = mass_RB.sum(1) / total_R
        chosen = sampling.confidence
        if chosen is None:
            token_N = invert(drawn_RV, uniform_N, row_N, mass_RB)
        else:
            redrawn_RV = redrawn(drawn_RV, chosen)
            token_N = invert(redrawn_RV, uniform_N, row_N)
            factor_N = redrawn_RV[row_N, token_N].double() / drawn_RV[row_N, token_N].double()
    if greedy_N is not None:
        token_N = token_N.where(~greedy_N, likely_R[row_N])
    logprob_N = weight_RV[row_N, token_N].double().log() - log_total_R[row_N]
    normalizer_R = top_R.double() + log_total_R
    before_N3 = torch.stack([logprob_N, entropy_R[row_N], normalizer_R[row_N]], 1)
    kept_N = None if kept_R is None else kept_R[row_N]
    if greedy_N is not None and kept_N is not None:
        kept_N = kept_N.masked_fill(greedy_N, 1.0)
    if kept_N is not None:
        logprob_N = logprob_N - kept_N.log()
    if factor_N is not None:
        logprob_N = logprob_N + (factor_N.log() if greedy_N is None else factor_N.log().where(~greedy_N, 0.0))
    if cold_N is not None:
        logprob_N[greedy_N] = cold_N
    return Drawn(
        token_N=token_N,
        logprob_N=logprob_N.float(),
        kept_mass_N=None if kept_N is None else kept_N.float(),
        entropy_N=entropy_R.float()[row_N],
        before_N3=before_N3,
        mass_RV=mass_RV,
    )


def _weights(
    logits_RV: Tensor, temperature: float, *, likely: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """exp((logit - the row's largest) / temperature), written over the logits a few rows at a time, so that a row is in
    the processor's cache from the first operation to the last.

    Returns:
        The weights; sums of their blocks, float64; sum of weight * log(weight) of each row; the largest logit of each,
        divided by the temperature; and where it stands, when `likely` asks for that.
    """
    rows, vocabulary = logits_RV.shape
    step = max(1, _PART_ELEMENTS // vocabulary) if logits_RV.is_cpu else rows
    mass_RB = logits_RV.new_empty(rows, -(-vocabulary // _BLOCK))
    dot_R, top_R = logits_RV.new_empty(rows), logits_RV.new_empty(rows)
    likely_R = torch.empty(rows, dtype=torch.long, device=logits_RV.device)
    room_RV = torch.empty_like(logits_RV[:step])
    for start in range(0, rows, step):
        part = slice(start, start + step)
        here_RV = logits_RV[part]
        if temperature != 1:
            here_RV.div_(temperature)
        if likely:
            torch.max(here_RV, 1, out=(top_R[part], likely_R[part]))
        else:
            torch.amax(here_RV, 1, out=top_R[part])
        shifted_RV = torch.sub(here_RV, top_R[part, None], out=room_RV[: len(here_RV)])
        torch.exp(shifted_RV, out=here_RV)
        torch.sum(_blocks(here_RV), 2, out=mass_RB[part])
        dot_R[part] = torch.linalg.vecdot(here_RV, shifted_RV)
        if not bool(
            dot_R[part].isfinite().all()
        ):  # a logit of -inf has p = 0 and adds nothing, but 0 * inf is NaN
            dot_R[part] = torch.linalg.vecdot(here_RV, shifted_RV.clamp_min_(-1e4))
    return logits_RV, mass_RB.double(), dot_R, top_R, likely_R


def truncate(weight_RV: Tensor, sampling: Sampling) -> Tensor:
    """Weights with the tokens that top-k, top-p and min-p leave out set to 0, in that order, as transformers has it.

    Args:
        weight_RV: unnormalised probabilities, the largest of each row being 1.
        sampling: what to cut.

    Ties at a threshold are kept together, so more than top_k tokens can stay.
    """
    vocabulary = weight_RV.shape[1]
    kept_RV = weight_RV
    if sampling.top_k is not None and sampling.top_k < vocabulary:
        least_R = weight_RV.topk(sampling.top_k, dim=1).values[:, -1:]
        kept_RV = kept_RV.where(kept_RV >= least_R, 0.0)
    if sampling.top_p < 1:
        goal_R = sampling.top_p * kept_RV.sum(1, dtype=torch.float64)
        count = min(256, vocabulary)
        while True:  # few tokens usually hold the mass, so the whole vocabulary is rarely ordered
            values_RK = kept_RV.topk(count, dim=1).values
            mass_RK = values_RK.cumsum(1, dtype=torch.float64)
            if count == vocabulary or bool((mass_RK[:, -1] >= goal_R).all()):
                break
            count = min(count * 8, vocabulary)
        # The token that carries the mass over the goal stays.
        last_R = (mass_RK < goal_R[:, None]).sum(1).clamp_max(count - 1)
        kept_RV = kept_RV.where(kept_RV >= values_RK.gather(1, last_R[:, None]), 0.0)
    if sampling.min_p > 0:
        kept_RV = kept_RV.where(kept_RV >= sampling.min_p, 0.0)  # the largest weight is 1
    return kept_RV


def redrawn(weight_RV: Tensor, confidence: ConfidenceConfig) -> Tensor:
    """Weights of the token that stands after draws made again, with the same sums as the weights given.

    A token with p > threshold is drawn again, at most k times, and the last draw stands. With M the sum of p over
    such tokens, a token below the threshold stands with p (1 + M + ... + M^k), and one above it with p M^k: the first
    k draws were all above. One uniform number decides, as without it, so a rollout can be sampled again.

    Source: a practice of the field (tokens drawn with more than 0.7 are drawn once more); the probabilities follow
    from the process.

    Args:
        weight_RV: unnormalised probabilities after truncation, shape [R, V].
        confidence: threshold, and k.

    Edge case: where one token has all the mass, it stands.
    """
    total_R = weight_RV.sum(1, keepdim=True, dtype=torch.float64)
    above_RV = weight_RV > confidence.threshold * total_R
    mass_R = (weight_RV * above_RV).sum(1, keepdim=True, dtype=torch.float64) / total_R
    last_R = mass_R**confidence.redraws
    series_R = sum((mass_R**k for k in range(confidence.redraws + 1)), start=torch.zeros_like(mass_R))
    return torch.where(above_RV, weight_RV * last_R, weight_RV * series_R).to(weight_RV.dtype)


def _blocks(weight_RV: Tensor) -> Tensor:
    """Seen as [R, blocks, tokens of a block]. Sums within a block may stay in float32, which is off by 1e-7 of them at
    most; one of a whole row in float64 would first write the row out in float64."""
    missing = -weight_RV.shape[1] % _BLOCK
    if missing:
        weight_RV = torch.nn.functional.pad(weight_RV, (0, missing))
    return weight_RV.view(len(weight_RV), weight_RV.shape[1] // _BLOCK, _BLOCK)


def invert(
    weight_RV: Tensor, uniform_N: Tensor, row_N: Tensor | None = None, mass_RB: Tensor | None = None
) -> Tensor:
    """The token at which the cumulative weight passes uniform * total: first the block, then the token in it.

    Args:
        weight_RV: unnormalised probabilities, shape [R, V], not all 0 in any row.
        uniform_N: shape [N], float64 in [0, 1).
        row_N: the row that each is drawn from, shape [N]; None when each has its own, in order.
        mass_RB: sums of the blocks, float64, where they are known.

    Returns:
        Token ids, shape [N]; a token of weight 0 is never drawn.
    """
    rows, vocabulary = weight_RV.shape
    if row_N is None:
        row_N = torch.arange(rows, device=weight_RV.device)
    by_block_RBK = _blocks(weight_RV)
    blocks = by_block_RBK.shape[1]
    if mass_RB is None:
        mass_RB = by_block_RBK.sum(2).double()
    mass_NB = mass_RB.cumsum(1)[row_N]
    # Below the total, since a float64 below 1 is at most 1 - 2^-53, and the product then rounds down.
    goal_N1 = (uniform_N * mass_NB[:, -1])[:, None]
    block_N1 = torch.searchsorted(mass_NB, goal_N1, right=True).clamp_max(blocks - 1)
    before_N1 = torch.where(block_N1 > 0, mass_NB.gather(1, (block_N1 - 1).clamp_min(0)), 0.0)
    mass_NK = by_block_RBK[row_N, block_N1[:, 0]].cumsum(1, dtype=torch.float64)
    # Rounding may leave the goal a hair above the block's mass: the last token with weight is meant then.
    goal_N1 = (goal_N1 - before_N1).clamp_min(0.0)
    token_N1 = torch.searchsorted(mass_NK, goal_N1, right=True)
    last_N1 = torch.searchsorted(mass_NK, mass_NK[:, -1:].contiguous(), right=False)
    token_N1 = torch.minimum(token_N1, last_N1)
    # Weights that are not finite have no such token; any one stands in, and its log-prob is not finite either.
    return (block_N1[:, 0] * _BLOCK + token_N1[:, 0]).clamp_max(vocabulary - 1)
