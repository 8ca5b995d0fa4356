"""The chance that at least one of k samples passes, estimated from n of them without bias."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

from groupwise.errors import ConfigError
from groupwise.evaluate.intervals import Estimate, share_interval


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """1 - C(n - c, k) / C(n, k): the share of the k-subsets of n samples that hold one of the c that pass.

    Chen et al. 2021 (arXiv 2107.03374), equation 1, in whole numbers, so exact to the last bit of its quotient. It is
    the mean of "one of k passes" over all subsets, and so unbiased; 1 - (1 - c/n)^k is too low.

    Args:
        samples: n, at least k.
        passed: c, how many of them pass.
        k: how many tries.

    Raises:
        ValueError: more tries than samples, or more passed than sampled.
    """
    if not 1 <= k <= samples or not 0 <= passed <= samples:
        raise ValueError(f"pass@{k} of {samples} samples of which {passed} pass is not defined")
    if samples - passed < k:
        return 1.0
    return (comb(samples, k) - comb(samples - passed, k)) / comb(samples, k)


def pass_at(passed_PG: Sequence[Sequence[bool]], k: int) -> Estimate:
    """The mean of `pass_at_k` over prompts, with an interval over prompts.

    Args:
        passed_PG: for each prompt whether each sample passes; prompts may differ in their number of samples.
        k: how many tries.

    Raises:
        ConfigError: a prompt has fewer samples than k.
    """
    least = min(len(passed_G) for passed_G in passed_PG)
    if least < k:
        raise ConfigError(
            f"pass@{k} needs {k} samples of each prompt, but there are {least}; set evaluate.samples to {k} or more"
        )
    rates_P = [pass_at_k(len(passed_G), sum(passed_G), k) for passed_G in passed_PG]
    # n samples hold n / k sets of k that share nothing.
    return share_interval(rates_P, draws=max(1, least // k))
