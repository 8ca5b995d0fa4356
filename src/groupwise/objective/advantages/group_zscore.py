"""The z-score of each reward within its group."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from groupwise.objective.spread import zero_spread

FORMULA = "A_i = (r_i - mean(r)) / (std(r) + {eps:g}),  std: {std}"


def group_zscore(
    rewards_G: NDArray[np.float64],
    *,
    std: Literal["sample", "population"] = "sample",
    eps: Annotated[float, Ge(0)] = 1e-4,
) -> NDArray[np.float64]:
    """A_i = (r_i - mean(r)) / (std(r) + eps).

    Source: DeepSeekMath (Shao et al. 2024, arXiv 2402.03300), section 4.1.2, outcome supervision. The paper does not
    say which std; TRL, verl and OpenRLHF divide by G - 1 (`sample`). eps is 1e-4 in TRL and 1e-6 in verl.

    Assumption: the rewards of a group are comparable with each other. Dividing by the std weighs a group whose
    answers nearly all agree as much as one evenly split.

    Edge case: rewards that are all equal (up to a relative 1e-6) give exactly 0; so does G = 1.

    Args:
        rewards_G: shape [G], finite.
        std: `sample` divides the sum of squares by G - 1, `population` by G.
        eps: added to the std, in units of reward.

    Returns:
        Advantages, shape [G], without unit, summing to 0.
    """
    rewards_G = np.asarray(rewards_G, dtype=np.float64)
    if zero_spread(rewards_G):
        return np.zeros_like(rewards_G)
    deviations_G = rewards_G - rewards_G.mean()
    divisor = len(rewards_G) - 1 if std == "sample" else len(rewards_G)
    std_of_group = float(np.sqrt(np.sum(deviations_G**2) / divisor))
    advantages_G: NDArray[np.float64] = deviations_G / (std_of_group + eps)
    return advantages_G
