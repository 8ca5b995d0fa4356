"""Combinations of settings that do not do what they seem to: told by name, at the start of a run and by `check`."""

from __future__ import annotations

from groupwise.config.objective import ADVANTAGES
from groupwise.config.run import RunConfig
from groupwise.objective.estimator import Estimator
from groupwise.registry import find


def warnings(config: RunConfig) -> dict[str, str]:
    """Name of each warning that applies, to its sentence, which begins with the name. docs/choosing.md lists all."""
    found = {
        "k1_in_loss": _k1_in_loss(config),
        "sequence_ratio_unnormalised": _sequence_ratio(config),
        "small_group": _small_group(config),
        "leash_without_reference": _leash_without_reference(config),
    }
    return {name: f"{name}: {sentence}" for name, sentence in found.items() if sentence is not None}


def _k1_in_loss(config: RunConfig) -> str | None:
    kl = config.objective.kl
    if kl.beta == 0 or kl.place != "loss" or kl.estimator != "k1":
        return None
    return (
        "objective.kl.estimator is k1 and its place the loss, where its expected gradient is 0 while the policy "
        "samples for itself, so that it does not hold the policy back; take k2 or k3, or place it in the reward"
    )


def _sequence_ratio(config: RunConfig) -> str | None:
    updates = config.training.updates_per_batch * config.training.mini_batches
    if config.objective.ratio != "sequence_product" or updates == 1:
        return None
    return (
        f"objective.ratio is sequence_product with {updates} updates per batch: the log-ratio of a response is the sum "
        f"over up to {config.rollout.max_new_tokens} tokens, which soon leaves any bound; take sequence_geometric, or "
        "watch ratio/log_std"
    )


def _small_group(config: RunConfig) -> str | None:
    name, size = config.objective.advantage.name, config.rollout.group_size
    if size >= 4 or ":" in name or not Estimator(find(ADVANTAGES, name)).compares:
        return None
    return (
        f"rollout.group_size is {size}: fewer than 4 rollouts say little of the mean and less of the spread that "
        f"{name} compares with; 8 or more is usual"
    )


def _leash_without_reference(config: RunConfig) -> str | None:
    kl = config.objective.kl
    given = [key for key in ("cap_token", "cap_rollout") if getattr(kl, key) is not None]
    given += ["place"] if kl.place == "reward" else []
    if kl.beta > 0 or not given:
        return None
    return (
        f"objective.kl.{given[0]} is set, but beta is 0, so no reference is loaded and no KL acts or is measured; give "
        "a beta above 0, however small"
    )
