"""The reward still to come at each token, whitened over the batch."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt, Le
from numpy.typing import NDArray

from groupwise.objective.spread import zero_spread

FORMULA = (
    "A_t = (R_t - mean(R)) / (std(R) + {eps:g}),  R_t = r_t + {discount:g} R_(t+1); "
    "mean and std (population) over all trained tokens of the batch"
)


def token_whitening(
    rewards_NT: tuple[NDArray[np.float64], ...],
    *,
    discount: Annotated[float, Gt(0), Le(1)] = 1.0,
    eps: Annotated[float, Ge(0)] = 1e-8,
) -> list[NDArray[np.float64]]:
    """A_t = (R_t - mean(R)) / (std(R) + eps), with R_t the sum of the rewards from token t on.

    The rewards hold the KL penalty of each token where `objective.kl.place` is `reward`, and the response's own reward
    at its last token.

    Source: REINFORCE++ (Hu et al. 2025, arXiv 2501.03262), its advantage and its normalisation over the global batch.

    Assumption: a reward means the same on every prompt, since no prompt has a baseline of its own; G may be 1.

    Edge case: returns that are all equal (up to a relative 1e-6) give exactly 0; a rollout without trained tokens gives
    an empty array.

    Args:
        rewards_NT: per rollout the reward of each trained token, finite.
        discount: factor per token of what comes later.
        eps: added to the std, in units of reward.

    Returns:
        Advantages per rollout and trained token, without unit, with mean 0 over the batch.
    """
    returns_NT = []
    for rewards_T in rewards_NT:
        returns, later = [], 0.0
        for reward in reversed(rewards_T.tolist()):
            later = reward + discount * later
            returns.append(later)
        returns_NT.append(np.array(returns[::-1], dtype=np.float64))
    every = np.concatenate([np.zeros(0), *returns_NT])
    if zero_spread(every):
        return [np.zeros_like(returns_T) for returns_T in returns_NT]
    std = float(every.std())
    return [(returns_T - every.mean()) / (std + eps) for returns_T in returns_NT]
