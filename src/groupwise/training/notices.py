"""What whoever watches a run should be asked about, from the metrics of a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from groupwise.config.objective import ObjectiveConfig
from groupwise.health.metric import Metric

Told = tuple[str, str]


def questions(
    step: int,
    metrics: Mapping[str, Metric],
    objective: ObjectiveConfig,
    clip_width: float | None,
    keeps_unit: bool,
) -> Iterator[Told]:
    """Sentences, each with its kind, so that each kind is told once.

    Args:
        step: 1 for the first batch.
        metrics: of the step.
        objective: what was computed.
        clip_width: how far the ratio may move before a bound bites; None for a surrogate without bounds.
        keeps_unit: advantages are in units of reward, so that a small spread stays small.

    Yields:
        `sequence_ratio_unnormalised` when the product over a response spreads beyond the clip, or beyond 1 without one;
        `tiny_spread` when groups with two rewards that hardly differ were scaled to full advantages;
        `kl_capped` when a cap held the KL of some token;
        `still` when the step changed no weight though nothing was skipped.
    """
    yield from _ratio(metrics, objective, clip_width)
    yield from _tiny_spread(metrics, keeps_unit)
    yield from _capped(metrics, objective)
    yield from _still(step, metrics)


def _value(metrics: Mapping[str, Metric], name: str) -> float:
    """Of a metric; 0 where there is none."""
    metric = metrics.get(name)
    return 0.0 if metric is None else metric.value


def _ratio(
    metrics: Mapping[str, Metric], objective: ObjectiveConfig, clip_width: float | None
) -> Iterator[Told]:
    spread, bound = _value(metrics, "ratio/log_std"), 1.0 if clip_width is None else clip_width
    if objective.ratio == "sequence_product" and spread > bound:
        length = _value(metrics, "length/mean")
        yield (
            "sequence_ratio_unnormalised",
            f"sequence_ratio_unnormalised: the log-ratios of whole responses spread by {spread:.2g} nats (responses of "
            f"{length:.0f} tokens on average), beyond {bound:g}, so that few responses decide the update; set "
            "objective.ratio to sequence_geometric, or make fewer updates per batch",
        )


def _tiny_spread(metrics: Mapping[str, Metric], keeps_unit: bool) -> Iterator[Told]:
    share = _value(metrics, "reward/tiny_spread_fraction")
    if share > 0 and not keeps_unit:
        yield (
            "tiny_spread",
            f"tiny_spread: in {share:.0%} of the groups rewards take two values that differ by less than a hundredth, "
            "and the advantage scales that to full size; if the difference is noise, round the reward or take "
            "objective.advantage=group_mean",
        )


def _capped(metrics: Mapping[str, Metric], objective: ObjectiveConfig) -> Iterator[Told]:
    share = _value(metrics, "kl/capped_fraction")
    if share > 0:
        caps = {"cap_token": objective.kl.cap_token, "cap_rollout": objective.kl.cap_rollout}
        named = " and ".join(f"objective.kl.{key}={cap:g}" for key, cap in caps.items() if cap is not None)
        yield (
            "kl_capped",
            f"kl_capped: {named} held the KL of {share:.1%} of the tokens, where the leash now has no gradient and "
            "lets go; raise the cap, or beta so that the KL stays below it",
        )


def _still(step: int, metrics: Mapping[str, Metric]) -> Iterator[Told]:
    if "critic/loss" in metrics and "policy/loss" not in metrics:  # the policy waits for the critic
        return
    if _value(metrics, "training/skipped_updates") == 0 and _value(metrics, "grad/norm") == 0:
        yield (
            "still",
            f"step {step} changed no weight: no rollout of its batch has an advantage (rewards are absent, or equal "
            "within every group) and no KL acts; if that goes on, nothing is learned",
        )
