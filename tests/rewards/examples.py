"""Prompts and rollouts to be judged."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.config.rewards import RewardConfig
from groupwise.records import Prompt, Rollout, StopReason
from groupwise.rewards import Rewards, build

HERE = Path(__file__).parent


def pairs(
    texts: Sequence[str],
    *,
    chat: bool = False,
    columns: Mapping[str, Sequence[Any]] | None = None,
    ids: Sequence[Sequence[int]] | None = None,
    stop: Sequence[StopReason] | None = None,
) -> tuple[list[Prompt], list[Rollout]]:
    """One prompt per text, `question i`, and its rollout; by default of i + 1 tokens, ended by a stop token."""
    prompts, rollouts = [], []
    for i, text in enumerate(texts):
        token_ids = np.array(ids[i] if ids else range(i + 1), dtype=np.int32)
        prompts.append(
            Prompt(
                id=f"data.jsonl:{i}",
                source="data.jsonl",
                messages=({"role": "user", "content": f"question {i}"},) if chat else None,
                text=f"<|user|>question {i}" if chat else f"question {i}",
                token_ids=np.array([1, 2], dtype=np.int32),
                columns={name: values[i] for name, values in (columns or {}).items()},
            )
        )
        rollouts.append(
            Rollout(
                prompt_id=f"data.jsonl:{i}",
                group_index=0,
                token_ids_T=token_ids,
                trainable_T=np.ones(len(token_ids), dtype=np.bool_),
                sampler_logprobs_T=np.full(len(token_ids), -0.5, dtype=np.float32),
                kept_mass_T=None,
                entropy_T=None,
                stop_reason=stop[i] if stop else StopReason.STOP,
                policy_version=0,
                text=text,
            )
        )
    return prompts, rollouts


def one(function: Any, **changes: Any) -> Rewards:
    """A function as the only reward, with the fields of its configuration that are not default."""
    rewards = build([], base=HERE, functions=[function])
    if not changes:
        return rewards
    import tests.rewards.examples as module

    module.chosen = function
    return build([RewardConfig(name="tests.rewards.examples:chosen", **changes)], base=HERE.parents[1])


chosen: Any = None


def values(rewards: Rewards, texts: list[str], **given: Any) -> list[float | None]:
    return [verdict.reward for verdict in rewards.score(*pairs(texts, **given))]


def fragile(completions: list[str]) -> list[float]:
    """1 / (letters - 3), so that it fails on three letters."""
    return [1.0 / (len(c) - 3) for c in completions]


async def fragile_later(completions: list[str]) -> list[float]:
    """The same, later."""
    await asyncio.sleep(0)
    return fragile(completions)
