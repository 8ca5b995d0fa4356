"""`metrics.jsonl`: one line of strict JSON per step, and what every metric means.

JSON has no NaN and no infinity. A metric that is one is evidence, so it is written as the text "NaN", "Infinity" or
"-Infinity" and read back as the float.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from groupwise.records.lines_file import LinesFile, read_lines

METRICS: Mapping[str, str] = {
    "step": "Number of the batch; the first is 1, and 0 is the evaluation before it.",
    "reward/mean": "Mean total reward over the rollouts that have one, in units of reward.",
    "reward/std": "Population std of the total reward over the whole batch, in units of reward.",
    "reward/min": "Smallest total reward of the batch, in units of reward.",
    "reward/max": "Largest total reward of the batch, in units of reward.",
    "reward/greedy_mean": "Mean total reward of the greedy baselines, in units of reward; absent when there are none.",
    "reward/group_std_mean": "Mean over groups of the population std of the rewards in the group, in units of reward.",
    "reward/zero_spread_fraction": "Share of groups whose rewards are all equal, so that they teach nothing.",
    "reward/tiny_spread_fraction": "Share of groups whose rewards take exactly two values that differ by less than a "
    "hundredth of the larger.",
    "reward/low_spread_fraction": "Share of groups whose rewards have a population std below 0.1.",
    "reward/all_right_fraction": "Share of groups whose rewards are all equal and reach evaluate.pass_reward. Like "
    "everything about right and wrong, absent where a reward is normalised in training.",
    "reward/all_wrong_fraction": "Share of groups whose rewards are all equal, at most 0 and below "
    "evaluate.pass_reward.",
    "reward/pass_fraction": "Share of rollouts with a reward whose total reaches evaluate.pass_reward: the right ones.",
    "reward/part/{label}/mean": "Mean of one reward, unweighted, over the rollouts where it applied.",
    "reward/part/{label}/std": "Population std of one reward, unweighted, over the rollouts where it applied.",
    "reward/part/{label}/failed_count": "Rollouts that one reward failed on in the step: it raised, took too long, "
    "lost its process, or gave NaN or infinity.",
    "reward/part/{label}/weight": "Weight of one reward at this step, where it has a schedule.",
    "reward/part/{label}/gate_closed_fraction": "Share of the rollouts it applies to whose gate was closed.",
    "reward/part/{label}/running_std": "Std over earlier steps that one reward is divided by, where it has smoothing.",
    "reward/part/{label}/correlation": "Pearson correlation with the total reward, over the batch, of a reward that is "
    "only watched (weight 0).",
    "reward/raw_mean": "Mean weighted sum before normalisation; absent where no reward is normalised.",
    "reward/logged/{name}": "Mean of what the rewards gave to `log_metric` under this name in the step.",
    "reward/failed_count": "Rollouts for which a reward failed (it raised, or gave NaN or infinity); a None, for "
    "a reward that does not apply, is no failure.",
    "reward/absent_fraction": "Share of rollouts without a total reward; they are left out of the loss.",
    "advantage/mean": "Mean over the rollouts in the loss of the mean advantage of their trained tokens.",
    "advantage/std": "Population std over the rollouts in the loss of the mean advantage of their trained tokens.",
    "kl/token_mean": "Mean over trained tokens of the KL estimate between policy and reference, in nats per token; "
    "over all updates of the step, of which the first sees the policy that sampled. With the KL in the reward: of that "
    "policy alone, over the rollouts that have a reward. Before any cap.",
    "kl/rollout_mean": "Mean over rollouts of the KL estimate summed over their tokens, in nats per rollout.",
    "kl/capped_fraction": "Share of trained tokens whose KL was held by objective.kl.cap_token or cap_rollout, so that "
    "it has no gradient there.",
    "kl/beta": "Coefficient of the KL at this step.",
    "policy/loss": "The loss that was minimised, aggregated as configured, KL and entropy terms included.",
    "policy/token_loss": "Mean over trained tokens of the negative surrogate alone, whatever the aggregation.",
    "policy/entropy": "Mean entropy over the sampled tokens of the temperature-scaled, untruncated policy, in nats.",
    "ratio/mean": "Mean probability ratio of policy to old policy over trained tokens.",
    "ratio/min": "Smallest probability ratio of policy to old policy over trained tokens.",
    "ratio/max": "Largest probability ratio of policy to old policy over trained tokens.",
    "ratio/clamped_count": "Trained tokens whose log-ratio was beyond +-20 and was clamped.",
    "ratio/log_std": "Population std over trained tokens of log rho; for a ratio over the response, all of its tokens "
    "have the same.",
    "clip/low_fraction": "Share of trained tokens with negative advantage whose ratio fell below the lower bound, "
    "of all trained tokens.",
    "clip/high_fraction": "Share of trained tokens with positive advantage whose ratio rose above the upper bound, "
    "of all trained tokens; for cispo those of either sign whose weight was held at its bound.",
    "critic/loss": "Mean over trained tokens of the critic's loss at each of its updates, in squared units of reward.",
    "critic/clip_fraction": "Share of trained tokens whose value had moved beyond critic.clip and had no gradient.",
    "critic/explained_variance": "What share of the targets' variance the critic knew, 1 - var(target - value) / "
    "var(target) over trained tokens, before it learned "
    "from the batch: 1 when it knew all, 0 when it knew no more than the mean; absent when all targets are equal.",
    "critic/value_mean": "Mean over trained tokens of what the critic expected of the batch, in units of reward.",
    "critic/target_mean": "Mean over trained tokens of what the critic was to learn, in units of reward.",
    "critic/grad_norm": "Norm of the critic's gradient before it is scaled down, mean over the step's updates.",
    "critic/learning_rate": "Learning rate of the critic in this step.",
    "critic/skipped_updates": "Updates of the critic skipped in this step since loss or gradient was not finite.",
    "critic/memory_mb": "What the critic's weights, gradients and optimiser state take, activations left out, in "
    "megabytes of 2^20 bytes; on the first step.",
    "critic/memory_ratio": "The same as a share of what the policy takes: 1 doubles it; on the first step.",
    "dpo/loss": "Mean loss of the step's pairs (method dpo).",
    "dpo/accuracy": "Share of the step's pairs whose chosen response has the higher implied reward; a tie counts one "
    "half, so the reference itself has 0.5.",
    "dpo/margin_mean": "Mean over the step's pairs of the chosen response's implied reward less the rejected one's.",
    "dpo/chosen_reward_mean": "Mean implied reward of the chosen responses: beta times the log-prob under the policy "
    "less that under the reference, summed over tokens.",
    "dpo/rejected_reward_mean": "Mean implied reward of the rejected responses.",
    "length/mean": "Mean length of the responses, in tokens.",
    "length/min": "Shortest response, in tokens.",
    "length/max": "Longest response, in tokens.",
    "length/truncated_fraction": "Share of responses that the limit of new tokens cut off.",
    "length/right_mean": "Mean length of right responses, in tokens; see reward/pass_fraction.",
    "length/right_min": "Shortest right response, in tokens.",
    "length/right_max": "Longest right response, in tokens.",
    "length/right_truncated_fraction": "Share of right responses that the limit of new tokens cut off.",
    "length/wrong_mean": "Mean length of wrong responses, in tokens.",
    "length/wrong_min": "Shortest wrong response, in tokens.",
    "length/wrong_max": "Longest wrong response, in tokens.",
    "length/wrong_truncated_fraction": "Share of wrong responses that the limit of new tokens cut off.",
    "sampler/temperature": "What logits were divided by, in sampling and in training.",
    "precision/gap_abs_mean": "Mean absolute change of log-probs, in nats, when layers compute in model.precision "
    "instead of float32, on tokens of the first prompts; on step 1, absent in float32.",
    "precision/gap_abs_max": "The largest of those changes, in nats.",
    "sampler/gap_token_mean": "Mean over trained tokens of the policy's log-prob less the sampler's, in nats, at the "
    "first update of the batch. Where log-probs of sampling serve in that update (tokens/reused), the policy's are "
    "those that its backward pass finds: of tokens with a gradient, or of 64 to 127 of them where it need not make all "
    "logits again.",
    "sampler/gap_abs_mean": "Mean over trained tokens of the absolute gap between the policy's log-prob and the "
    "sampler's, in nats, at the first update of the batch; float error when nothing is truncated.",
    "sampler/gap_abs_max": "Largest absolute gap between the policy's log-prob and the sampler's, in nats, at the "
    "first update of the batch; float error when nothing is truncated.",
    "sampler/correction_mean": "Mean importance weight from sampler to old policy, after the cap; absent when off.",
    "sampler/effective_fraction": "Effective sample size as a share, (sum w)^2 / (n sum w^2) of the importance weights "
    "w of the n trained tokens; 1 when all weights are equal, absent when off.",
    "sampler/lag_updates_mean": "Mean over rollouts of the updates that the policy had made since the weights that "
    "sampled them, at the first update of the batch.",
    "sampler/kept_mass_mean": "Mean probability that top-p, top-k or min-p kept; absent when nothing was cut.",
    "sampler/redraws": "How often more prompts were drawn in this step since groups had no spread; absent when never.",
    "sampler/left_out_groups": "Groups without spread that were sampled, scored and replaced; absent when none was.",
    "curriculum/threshold": "Difficulty (1 less the estimated success) above which a prompt waited in this step.",
    "curriculum/ready_fraction": "Share of the training prompts that were ready for this step.",
    "curriculum/success_mean": "Mean over the training prompts of their estimated success, after this step.",
    "filter/left_out_fraction": "Share of rollouts that objective.filter leaves out of the loss.",
    "filter/length_fraction": "Share of rollouts outside its bounds on tokens.",
    "filter/format_fraction": "Share of rollouts that do not hold its pattern.",
    "filter/reward_fraction": "Share of rollouts outside its bounds on a reward.",
    "teaching/rollouts": "Wrong answers of this step that a note was put into.",
    "teaching/tokens": "Tokens of these notes.",
    "diversity/distinct_1": "Distinct tokens divided by all tokens of the batch's responses.",
    "diversity/distinct_2": "Distinct pairs of neighbouring tokens divided by all pairs of the batch's responses.",
    "diversity/group_distinct_fraction": "Mean over groups of distinct responses divided by group size.",
    "diversity/repeated_4_fraction": "Share of the runs of four tokens in a response that stood in it before; over all "
    "such runs of the batch.",
    "diversity/self_bleu": "Mean BLEU of a response against the others of its group, by tokens: 1 when all are "
    "the same; of four groups, their first eight responses and of each the first 256 tokens.",
    "reference/drift_abs_max": "Largest change of the reference's log-prob of a token, in nats, on a fixed probe since "
    "its first measurement; on step 1 and every health.probe_steps.",
    "grad/norm": "Norm of the gradient before it is scaled down, mean over the step's updates.",
    "grad/clipped_fraction": "Share of the step's updates whose gradient was scaled down to training.max_grad_norm.",
    "training/learning_rate": "Learning rate of the step's last update.",
    "training/weights_millions": "Weights of the model, in millions, those of an adapter included; on step 1.",
    "training/updates": "How often the optimiser has changed the weights so far, over all steps.",
    "training/skipped_updates": "Updates skipped in this step since the loss or the gradient was not finite.",
    "training/epoch": "How much of the training data has been used after this step; 1.5 is halfway through the second "
    "pass.",
    "tokens/generated": "Response tokens sampled in this step, those of replaced groups included.",
    "tokens/left_out": "Response tokens of groups that were replaced; absent when none was.",
    "tokens/trained": "Trainable response tokens in the loss of this step, each counted once per batch, however many "
    "passes are made over it.",
    "tokens/reused": "Tokens, prompts included, for which the layers' outputs of sampling served in the step's first "
    "update, see training.reuse_sampling; 0 when the update computed all anew.",
    "tokens/per_second": "Response tokens sampled in this step divided by the seconds spent on sampling.",
    "memory/peak_rss_mb": "Largest memory that the process has held so far, in megabytes of 2^20 bytes.",
    "time/generate_seconds": "Seconds spent on sampling.",
    "time/reward_seconds": "Seconds spent on scoring.",
    "time/reward/{label}_seconds": "Seconds of all calls of one reward, added up; calls that run at a time count each.",
    "time/logprobs_seconds": "Seconds spent on the reference's log-probs, and on old ones that are not the sampler's; "
    "with method dpo once, ahead of the first step.",
    "time/critic_seconds": "Seconds spent on the critic's values of the batch; its updates are in time/update_seconds.",
    "time/update_seconds": "Seconds spent on forward, backward and optimiser.",
    "time/wait_seconds": "With rollout.overlap, seconds that training waited for the next batch after its own updates.",
    "time/weights_seconds": "Seconds spent on giving the engine the new weights; absent when it samples from them.",
    "time/record_seconds": "Seconds spent on writing the step's rollout file.",
    "time/evaluate_seconds": "Seconds spent on held-out evaluation.",
    "time/step_seconds": "Seconds of the whole step, evaluation included and recording left out.",
    "eval/pass@1": "Share of held-out responses whose total reward reaches evaluate.pass_reward.",
    "eval/pass@{label}": "Chance that one of so many responses to a held-out prompt passes, estimated without bias "
    "from all of evaluate.samples; for each of evaluate.k.",
    "eval/greedy_pass@1": "Share of held-out prompts whose greedy response passes, beside the sampled ones; with "
    "evaluate.greedy.",
    "eval/response_count": "Held-out responses that were sampled.",
    "eval/reward_mean": "Mean total reward on the held-out prompts, in units of reward.",
    "eval/length_mean": "Mean length of the held-out responses, in tokens.",
    "eval/dpo_loss": "Mean loss of the held-out pairs.",
    "eval/dpo_accuracy": "Share of the held-out pairs whose chosen response has the higher implied reward; a tie "
    "counts one half.",
    "eval/dpo_margin_mean": "Mean over the held-out pairs of the chosen response's implied reward less the rejected "
    "one's.",
    "eval/dpo_chosen_reward_mean": "Mean implied reward of the held-out chosen responses.",
    "eval/dpo_rejected_reward_mean": "Mean implied reward of the held-out rejected responses.",
    "health/actions_count": "What health.actions did after the step: adjustments, adjustments taken back, and "
    "rollbacks; absent where it names no check.",
    "health/rolled_back_to": "After this step the weights went back to those of that step, by a rollback of "
    "health.actions; the next step goes on from them.",
    "eval/truncated_fraction": "Share of held-out responses that the limit of new tokens cut off.",
}
"""Name, or pattern with `{label}` for a reward's label or `{name}` for one of the user's, to its meaning and unit."""

NOT_COMPARABLE = ("time/", "memory/", "tokens/per_second")
"""Beginnings of names that depend on the machine's mood; everything else is the same bit for bit in a repeated run."""

_SPELLED = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class MetricsFile(LinesFile):
    """Appends to `metrics.jsonl`, one line per step."""

    def append(self, step: int, values: Mapping[str, float]) -> None:
        """Write one line: `step` first, then the metrics sorted by name.

        Raises:
            ValueError: a metric called `step`, or a value that is not a number; names it.
            RunFolderError: the line cannot be written, for example since the disk is full.
        """
        line: dict[str, int | float | str] = {"step": step}
        for name in sorted(values):
            if name == "step":
                raise ValueError("a metric cannot be called 'step', which numbers the line")
            line[name] = spelled(name, values[name])
        self.put(line)


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Every whole line as a mapping of metric names to floats; `step` is an int.

    A torn last line (the run was killed while writing it) is left out, and a warning says so.

    Warns:
        UserWarning: the last line was cut short; says which, and how many whole ones there are.

    Raises:
        RunFolderError: no such file, or a line that is not one of ours; names its number.
    """

    def read(line: Mapping[str, object]) -> dict[str, float]:
        step = line.get("step")
        if not isinstance(step, int):
            raise ValueError("it has no step")
        return {name: step if name == "step" else number_of(value) for name, value in line.items()}

    return read_lines(path, read, what="metrics")


def nothing_learned(lines: Iterable[Mapping[str, float]]) -> str | None:
    """What is said of a run whose rewards changed no weight, the same wherever it is told; None for other runs.

    Told by advantages and not by the spread of rewards, since some estimators compare with something else than the
    group. A run without advantages, such as one on preference pairs, is not meant.

    Args:
        lines: of metrics.jsonl.
    """
    steps = [line for line in lines if line.get("step", 0) > 0]
    told = [line[name] for line in steps for name in ("advantage/mean", "advantage/std") if name in line]
    if told and not any(told):
        return "nothing from rewards: every advantage was 0, in every step"
    sampled = any("length/mean" in line and "dpo/loss" not in line for line in steps)
    if sampled and not any("reward/mean" in line for line in steps):
        return "nothing: no rollout had a reward, as when the right answers are null or cannot be read"
    return None


def comparable(values: Mapping[str, float]) -> dict[str, float]:
    """The metrics that a repeated run on the same machine gives again bit for bit: without times, memory and rates."""
    return {name: value for name, value in values.items() if not name.startswith(NOT_COMPARABLE)}


def spelled(name: str, value: float) -> float | str:
    """A number as strict JSON holds it; text for one that is not finite."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"the metric {name} is {value!r}, which is not a number") from None
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def number_of(value: object) -> float:
    """What `spelled` was given.

    Raises:
        ValueError: it is no number.
    """
    if isinstance(value, str) and value in _SPELLED:
        return _SPELLED[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number")
    return float(value)
