"""Groups of given texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from groupwise.records import Group, Prompt, Rollout, StopReason, Verdict


def group_of(
    texts: Sequence[str],
    rewards: Sequence[float | None] | None = None,
    *,
    name: str = "made:0",
    text: str = "What?",
    columns: Mapping[str, Any] | None = None,
    ids: Sequence[Sequence[int]] | None = None,
) -> Group:
    """A group of responses with these texts, rewards and token ids."""
    prompt = Prompt(
        id=name,
        source="made",
        messages=None,
        text=text,
        token_ids=np.array([3, 4, 5], dtype=np.int32),
        columns=dict(columns or {}),
    )
    rollouts = []
    for i, said in enumerate(texts):
        tokens = np.array([7, 8] if ids is None else ids[i], dtype=np.int32)
        rollouts.append(
            Rollout(
                prompt_id=name,
                group_index=i,
                token_ids_T=tokens,
                trainable_T=np.ones(len(tokens), dtype=np.bool_),
                sampler_logprobs_T=np.zeros(len(tokens), dtype=np.float32),
                kept_mass_T=None,
                entropy_T=None,
                stop_reason=StopReason.STOP,
                policy_version=0,
                text=said,
            )
        )
    verdicts = [Verdict(reward=r, parts={}) for r in rewards or [None] * len(texts)]
    return Group(prompt=prompt, rollouts_G=tuple(rollouts), verdicts_G=tuple(verdicts))
