"""What whoever watches a run should be asked about, from the metrics of a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from groupwise.health.metric import Metric


def questions(
    step: int, metrics: Mapping[str, Metric], clip_width: float | None
) -> Iterator[tuple[str, str]]:
    """Sentences, each with its kind, so that each kind is told once.

    Args:
        step: 1 for the first batch.
        metrics: of the step.
        clip_width: how far the ratio may move before a bound bites; None for a surrogate without bounds.

    Yields:
        `gap` when sampler and trainer differ, per token and on average, by more than a tenth of the clip's width;
        `still` when the step changed no weight though nothing was skipped.
    """
    gap = metrics.get("sampler/gap_abs_mean")
    if gap is not None and clip_width is not None and gap.value > clip_width / 10:
        yield (
            "gap",
            f"sampler and trainer differ by {gap.value:.2g} nats per token, more than a tenth of the clip's width of "
            f"{clip_width:g}; set objective.old_source to trainer, or sample in the training precision",
        )
    skipped, norm = metrics.get("training/skipped_updates"), metrics.get("grad/norm")
    if "critic/loss" in metrics and "policy/loss" not in metrics:  # the policy waits for the critic
        return
    if (skipped is None or skipped.value == 0) and (norm is None or norm.value == 0):
        yield (
            "still",
            f"step {step} changed no weight: no rollout of its batch has an advantage (rewards are absent, or equal "
            "within every group) and no KL acts; if that goes on, nothing is learned",
        )
