"""The nouns that cross borders between rooms: frozen, slotted, keyword-only.

Axes are capital letters at the end of names: P prompts, G rollouts of one prompt, N rollouts of a batch,
T tokens of one response. No torch here: arrays are NumPy's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int32]
FloatArray = NDArray[np.float32]
BoolArray = NDArray[np.bool_]
Messages = tuple[Mapping[str, Any], ...]


NONE_APPLIES = "no reward applies"
"""The `failure` of a verdict that has no reward though nothing failed: every reward gave None, as it may."""


class StopReason(StrEnum):
    """Why a rollout ended."""

    STOP = "stop"  # the model drew a stop token; it is the last token of the response and is trained
    LENGTH = "length"  # the limit of new tokens came first: a truncated rollout


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prompt:
    """One row of the data, tokenised once."""

    id: str
    """`source:row`; two rows with the same text are two prompts."""
    source: str
    """The file or function that the row came from."""
    messages: Messages | None
    """The chat turns as the row gave them (system prompt included), or None for a text prompt."""
    text: str
    """What the model reads, rendered by its chat template where there are messages."""
    token_ids: IntArray
    """Shape [prompt tokens]; what is sampled from and trained on."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """The row's other columns, handed to rewards by name."""
    max_new_tokens: int | None = None
    """The row's own limit on new tokens, where it is lower than the run's; None for the run's."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rollout:
    """One sampled response, with what its sampler knew. The sampled ids are the record; text is derived."""

    prompt_id: str
    """`Prompt.id` of its prompt."""
    group_index: int
    """0 .. G-1 within the group."""
    token_ids_T: IntArray
    """The sampled ids, the stop token included where one was drawn."""
    trainable_T: BoolArray
    """True where the token is trained: the policy chose it, or it is of a note that is to be learned."""
    sampler_logprobs_T: FloatArray
    """Natural-log probability under the distribution really sampled from (temperature and truncation in it)."""
    kept_mass_T: FloatArray | None
    """Probability that top-p, top-k or min-p kept at each token; None when nothing was cut."""
    entropy_T: FloatArray | None
    """Entropy in nats of the temperature-scaled distribution at each token, before truncation; None if unknown."""
    stop_reason: StopReason
    """Why it ended."""
    policy_version: int
    """How many updates the sampling weights had seen."""
    text: str
    """The ids decoded, without the stop token and padding; everything else is kept."""
    inserted_T: BoolArray | None = None
    """True at the tokens of a note that was put in after sampling; None where there is none. Old log-probs stand in for
    the sampler's there, and wherever a token follows something else than when it was sampled."""

    def __post_init__(self) -> None:
        lengths = {len(self.token_ids_T), len(self.trainable_T), len(self.sampler_logprobs_T)}
        lengths |= {len(x) for x in (self.kept_mass_T, self.entropy_T, self.inserted_T) if x is not None}
        if len(lengths) != 1:
            raise ValueError(
                f"rollout {self.group_index} of {self.prompt_id}: arrays of lengths {sorted(lengths)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the rewards say of one rollout."""

    reward: float | None
    """The weighted sum of the parts that apply; None when there is none, with the reason in `failure`."""
    parts: Mapping[str, float | None]
    """Each reward's own value, unweighted; None where it did not apply or failed."""
    failure: str | None = None
    """Why a reward is absent or stands in for one that failed; None when all went well."""
    token_rewards: tuple[float | None, ...] | None = None
    """What was earned with each token, [T], summing to `reward`; None at tokens with which nothing was said, and None
    altogether where every reward gave one number for the response."""
    terms: Mapping[str, float] = field(default_factory=dict)
    """What each reward added to `reward`: weight x value, after gate, stand-in and normalisation; empty without one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Baseline:
    """A greedy response to a prompt, sampled and scored for what its reward says of the others. It is never trained."""

    rollout: Rollout
    """The response; its `group_index` is G, behind the rollouts of its group."""
    verdict: Verdict
    """What the rewards say of it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """The G rollouts of one prompt with their verdicts."""

    prompt: Prompt
    """What they answer."""
    rollouts_G: tuple[Rollout, ...]
    """In order of `group_index`."""
    verdicts_G: tuple[Verdict, ...]
    """One per rollout, in the same order."""
    greedy: Baseline | None = None
    """The greedy response beside them; None when none was asked for."""

    def __post_init__(self) -> None:
        if len(self.rollouts_G) != len(self.verdicts_G):
            raise ValueError(
                f"group {self.prompt.id}: {len(self.rollouts_G)} rollouts but {len(self.verdicts_G)} verdicts"
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingGroup:
    """A group with everything the update needs. Entries are in the order of `group.rollouts_G`."""

    group: Group
    """The rollouts and verdicts."""
    advantages_GT: tuple[NDArray[np.float64], ...]
    """Per rollout, shape [T]: what the policy gradient of each token is weighted with; 0 at tokens that are not trained
    and throughout a rollout that is left out."""
    in_loss_G: BoolArray
    """True where the rollout enters the loss and its divisors (not dropped, masked or without a reward)."""
    zero_spread: bool
    """True when the group's rewards are all equal, so that it teaches nothing but the KL."""
    old_logprobs_GT: tuple[FloatArray, ...]
    """Per rollout, shape [T]: of the policy that starts this batch, at the sampling temperature, untruncated.
    NaN throughout for a rollout that is not in the loss and was not scored."""
    reference_logprobs_GT: tuple[FloatArray, ...] | None
    """Per rollout, shape [T]: of the frozen reference; NaN as above; None when no reference is used."""
    values_GT: tuple[FloatArray, ...] | None = None
    """Per rollout, shape [T]: what the critic expected before each token, when the batch began; NaN throughout a
    rollout that is not in the loss; None without a critic."""
    value_targets_GT: tuple[FloatArray, ...] | None = None
    """Per rollout, shape [T]: what the critic is to learn; NaN where not trained; None without a critic."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepRecord:
    """What one step leaves behind."""

    step: int
    """1 for the first batch."""
    groups: tuple[TrainingGroup, ...]
    """The batch."""
    metrics: Mapping[str, float]
    """Names as in docs/records.md."""


class Severity(StrEnum):
    """How bad a finding is."""

    INFO = "info"  # worth knowing; nothing need be done
    WARNING = "warning"  # the run is likely to end worse than it could
    CRITICAL = "critical"  # what is trained from here on is likely to be thrown away


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that a health check sees in a run: what, since when, by which numbers, why, and what to try."""

    check: str
    """Name of the check."""
    kind: str
    """Which of the faults that the check knows."""
    severity: Severity
    """How bad."""
    first_step: int
    """First step of those that it was judged by."""
    last_step: int
    """Last step of those that it was judged by, the one after which the check was made."""
    summary: str
    """What was seen, with its numbers, as one clause."""
    evidence: Mapping[str, float]
    """The numbers that decided, limits included, by name; a metric's value bears the metric's name."""
    causes: tuple[str, ...]
    """The likeliest first."""
    remedies: tuple[str, ...]
    """The cheapest first."""

    @property
    def key(self) -> str:
        """`check/kind`: two findings with the same key are of the same fault."""
        return f"{self.check}/{self.kind}"
