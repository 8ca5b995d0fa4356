"""Each reward less the median of its group, held within bounds: an outlier moves the others little."""

import numpy as np

FORMULA = "A_i = clip(r_i - median(r), -{bound:g}, {bound:g})"


def group_median(rewards_G, *, bound: float = 5.0):
    """A_i = clip(r_i - median(r), -bound, bound), of the rewards of one group."""
    return np.clip(rewards_G - np.median(rewards_G), -bound, bound)
