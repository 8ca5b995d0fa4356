"""Generalised advantage estimation: each token against what a critic expected."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray

FORMULA = (
    "A_t = sum_l ({gamma:g} x {lam:g})^l d_(t+l),  d_t = r_t + {gamma:g} V_(t+1) - V_t,  V from the critic, "
    "whitened over the batch: {whiten}"
)

_EPS = 1e-8


def gae(
    rewards_NT: tuple[NDArray[np.float64], ...],
    values_NT: tuple[NDArray[np.float64], ...],
    *,
    gamma: Annotated[float, Ge(0), Le(1)] = 1.0,
    lam: Annotated[float, Ge(0), Le(1)] = 0.95,
    whiten: bool = True,
) -> list[NDArray[np.float64]]:
    """A_t = sum_l (gamma lam)^l d_(t+l), with d_t = r_t + gamma V_(t+1) - V_t and V = 0 behind the last token.

    Source: "High-Dimensional Continuous Control Using Generalized Advantage Estimation" (Schulman et al. 2016, arXiv
    1506.02438), equations 11 and 16, one token being one step; whitening, with the population std and 1e-8 under the
    root, is practice (Ziegler et al. 2019, OpenRLHF), not in the paper.

    Assumption: the critic knows what is still to come. lam = 1 trusts the rewards alone and the critic as a baseline
    only; lam = 0 looks one token ahead and trusts the critic for the rest.

    Edge case: advantages that are all equal are 0 once whitened; a rollout without trained tokens has none.

    Args:
        rewards_NT: reward earned at each trained token of each rollout, KL penalties included, shape [T] each.
        values_NT: what the critic expects before each of these tokens is drawn, shape [T] each, in units of reward.
        gamma: discount per token.
        lam: how fast the critic's word is trusted over the rewards behind it.
        whiten: take off the mean and divide by the std of all trained tokens of the batch.

    Returns:
        Advantages of each rollout, shape [T] each.
    """
    advantages_NT = [_gae(r_T, v_T, gamma, lam) for r_T, v_T in zip(rewards_NT, values_NT, strict=True)]
    if not whiten or not advantages_NT:
        return advantages_NT
    together_M = np.concatenate(advantages_NT)
    if not len(together_M):
        return advantages_NT
    mean = float(together_M.mean())
    scale = float(np.sqrt(together_M.var() + _EPS))
    return [(advantages_T - mean) / scale for advantages_T in advantages_NT]


def value_targets(
    rewards_NT: tuple[NDArray[np.float64], ...],
    values_NT: tuple[NDArray[np.float64], ...],
    *,
    gamma: Annotated[float, Ge(0), Le(1)] = 1.0,
    lam: Annotated[float, Ge(0), Le(1)] = 0.95,
) -> list[NDArray[np.float64]]:
    """What the critic is to learn: A_t + V_t, the lambda-return, before any whitening.

    Args:
        rewards_NT: as in `gae`.
        values_NT: as in `gae`.
        gamma: as in `gae`.
        lam: as in `gae`.

    Returns:
        Targets of each rollout, shape [T] each, in units of reward.
    """
    return [_gae(r_T, v_T, gamma, lam) + v_T for r_T, v_T in zip(rewards_NT, values_NT, strict=True)]


def _gae(
    rewards_T: NDArray[np.float64], values_T: NDArray[np.float64], gamma: float, lam: float
) -> NDArray[np.float64]:
    advantages_T = np.zeros(len(rewards_T))
    following = after = 0.0
    for t in range(len(rewards_T) - 1, -1, -1):
        following = rewards_T[t] + gamma * after - values_T[t] + gamma * lam * following
        advantages_T[t] = following
        after = values_T[t]
    return advantages_T
