"""The columns of a rollout file, each with what it means; docs/records.md is written from here."""

from __future__ import annotations

import pyarrow as pa

SCHEMA_VERSION = 4
"""Raised when a column comes or changes its name, type or meaning; readers refuse what is newer than they are."""

VERSION_KEY = b"groupwise.rollouts.schema_version"
"""Where a file's metadata say its version."""


def _field(name: str, kind: pa.DataType, description: str, *, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=nullable, metadata={"description": description})


def _list(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind, nullable=False))


_TOKENS = "one per token of the response"

SCHEMA = pa.schema(
    [
        _field("step", pa.int64(), "Batch that the rollout was drawn for; the first is 1."),
        _field(
            "group",
            pa.int32(),
            "Which group of the step, from 0; the same prompt may be drawn twice in a step.",
        ),
        _field(
            "group_index",
            pa.int32(),
            "Which rollout of the group, from 0 to group size - 1; a greedy baseline has the group size.",
        ),
        _field(
            "greedy",
            pa.bool_(),
            "True for a greedy baseline: sampled and scored, never trained; null in files of version 1 and 2.",
            nullable=True,
        ),
        _field(
            "prompt_id", pa.string(), "`source:row` of the prompt; equal texts on two rows are two prompts."
        ),
        _field("source", pa.string(), "File or function that the prompt came from."),
        _field(
            "prompt",
            pa.string(),
            "What the model read, rendered by its chat template where there are messages.",
        ),
        _field("messages", pa.string(), "The chat turns as JSON; null for a text prompt.", nullable=True),
        _field("columns", pa.string(), "The other columns of the prompt's row, as a JSON object."),
        _field("response", pa.string(), "The sampled ids as text, without the stop token."),
        _field("reward", pa.float64(), "Weighted sum of the parts; null when there is none.", nullable=True),
        _field(
            "parts",
            pa.map_(pa.string(), pa.field("value", pa.float64(), nullable=True)),
            "Each reward's own value by label, unweighted; null where it did not apply or failed.",
        ),
        _field(
            "terms",
            pa.map_(pa.string(), pa.field("value", pa.float64(), nullable=False)),
            "What each reward added to `reward` by label: weight x value, after gate, stand-in and normalisation; null "
            "in files of version 1.",
            nullable=True,
        ),
        _field(
            "token_reward",
            pa.list_(pa.field("element", pa.float64(), nullable=True)),
            f"What was earned with each token, {_TOKENS}, summing to `reward`; null at a token with which nothing was "
            "said, and null altogether where every reward gave one number.",
            nullable=True,
        ),
        _field(
            "failure",
            pa.string(),
            "Why a reward is absent or was stood in for; null when all went well.",
            nullable=True,
        ),
        _field(
            "advantage",
            pa.float64(),
            "What the policy gradient of each trained token is weighted with; 0 for a rollout left out; null where "
            "tokens differ.",
            nullable=True,
        ),
        _field(
            "token_advantage",
            _list(pa.float64()),
            f"The same where tokens differ, {_TOKENS} and 0 where not trained; null where `advantage` holds for all.",
            nullable=True,
        ),
        _field("in_loss", pa.bool_(), "True when the rollout entered the loss and its divisors."),
        _field("zero_spread", pa.bool_(), "True when the rewards of its group were all equal."),
        _field("stop_reason", pa.string(), "`stop`: a stop token was drawn; `length`: the limit came first."),
        _field("policy_version", pa.int64(), "How often the optimiser had changed the sampling weights."),
        _field("prompt_token_ids", _list(pa.int32()), "Ids of the prompt, as sampled from and trained on."),
        _field("token_ids", _list(pa.int32()), "Ids of the response as sampled, the stop token included."),
        _field(
            "trainable", _list(pa.bool_()), f"True where the token is trained when the rollout is, {_TOKENS}."
        ),
        _field(
            "sampler_logprob",
            _list(pa.float32()),
            f"Log-probability in nats under the distribution drawn from, truncation and redraws included, {_TOKENS}; "
            "that of `old_logprob` at inserted tokens and at those that follow a note.",
        ),
        _field(
            "old_logprob",
            _list(pa.float32()),
            f"Log-probability in nats under the policy that began the batch, untruncated, {_TOKENS}; NaN when it "
            "was not scored, as where the rollout did not enter the loss.",
        ),
        _field(
            "ref_logprob",
            _list(pa.float32()),
            f"Log-probability in nats under the reference, {_TOKENS}; NaN when it was not scored, as where the "
            "rollout did not enter the loss; null when no reference was used.",
            nullable=True,
        ),
        _field(
            "value",
            _list(pa.float32()),
            f"What the critic expected when the batch began, in units of reward, {_TOKENS}; NaN when the rollout did "
            "not enter the loss, null without a critic.",
            nullable=True,
        ),
        _field(
            "value_target",
            _list(pa.float32()),
            f"What the critic was to learn, {_TOKENS}; NaN where not trained, null without a critic.",
            nullable=True,
        ),
        _field(
            "kept_mass",
            _list(pa.float32()),
            f"Probability that top-p, top-k or min-p kept, {_TOKENS}; null when nothing was cut.",
            nullable=True,
        ),
        _field(
            "entropy",
            _list(pa.float32()),
            f"Entropy in nats of the policy that sampled, before truncation, {_TOKENS}; null if unknown.",
            nullable=True,
        ),
        _field(
            "inserted",
            _list(pa.bool_()),
            f"True at the tokens of a note put in after sampling, {_TOKENS}; null where there is none, and in files of "
            "version 1 to 3.",
            nullable=True,
        ),
        _field(
            "max_new_tokens",
            pa.int32(),
            "The row's own limit on new tokens; null for the run's, and in files of version 1 to 3.",
            nullable=True,
        ),
    ],
    metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()},
)
"""The columns in their order, each with its `description` in the metadata."""
