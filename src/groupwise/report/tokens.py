"""A group down to its tokens, as data for the page. Arrays keep every bit of the records."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.records import Rollout, TrainingGroup, Verdict
from groupwise.report.choosing import MOST_TOKENS

Pieces = Callable[[Sequence[int]], list[str]]
"""Token ids to the text of each."""

MOST_CHARACTERS = 20_000
"""Of one text: a prompt, the columns of its row, or a response."""


def group_data(step: int, number: int, entry: TrainingGroup, pieces: Pieces | None) -> dict[str, Any]:
    """One group with its rollouts and their tokens.

    Args:
        step: its batch.
        number: in the batch.
        entry: as read from the records.
        pieces: texts of tokens; None where no tokenizer is at hand.
    """
    prompt = entry.group.prompt
    rollouts = [
        _rollout(rollout, verdict, entry, i, pieces)
        for i, (rollout, verdict) in enumerate(
            zip(entry.group.rollouts_G, entry.group.verdicts_G, strict=True)
        )
    ]
    greedy = entry.group.greedy
    if greedy is not None:
        rollouts.append({**_answer(greedy.rollout, greedy.verdict), "greedy": True})
        rollouts[-1] |= _arrays(greedy.rollout, pieces)
    return {
        "step": step,
        "group": number,
        "id": prompt.id,
        "prompt": shortened(prompt.text),
        "columns": shortened(json.dumps(dict(prompt.columns), ensure_ascii=False, indent=1)),
        "zero_spread": entry.zero_spread,
        "rollouts": rollouts,
    }


def shortened(text: str, most: int = MOST_CHARACTERS) -> str:
    """The text, or its beginning and how much is missing."""
    return text if len(text) <= most else f"{text[:most]} [... {len(text) - most:,} more characters]"


def _answer(rollout: Rollout, verdict: Verdict) -> dict[str, Any]:
    return {
        "i": rollout.group_index,
        "text": shortened(rollout.text),
        "length": len(rollout.token_ids_T),
        "stop": str(rollout.stop_reason),
        "version": rollout.policy_version,
        "reward": number(verdict.reward),
        "parts": {label: number(value) for label, value in verdict.parts.items()},
        "terms": {label: number(value) for label, value in verdict.terms.items()},
        "failure": verdict.failure,
    }


def _rollout(
    rollout: Rollout, verdict: Verdict, entry: TrainingGroup, i: int, pieces: Pieces | None
) -> dict[str, Any]:
    data = _answer(rollout, verdict) | _arrays(rollout, pieces)
    data["in_loss"] = bool(entry.in_loss_G[i])
    data["old"] = _same(entry.old_logprobs_GT[i], rollout.sampler_logprobs_T)
    advantages_T = entry.advantages_GT[i]
    trained = advantages_T[rollout.trainable_T]
    data["advantage"] = number(float(trained.mean())) if len(trained) else 0.0
    if len(trained) and (trained != trained[0]).any():
        data["advantages"] = packed(advantages_T, np.float64)
    for name, arrays in (
        ("reference", entry.reference_logprobs_GT),
        ("value", entry.values_GT),
        ("target", entry.value_targets_GT),
    ):
        if arrays is not None and not np.isnan(arrays[i]).all():
            data[name] = packed(arrays[i], np.float32)
    if verdict.token_rewards is not None:
        earned = [math.nan if value is None else value for value in verdict.token_rewards]
        data["earned"] = packed(np.array(earned), np.float64)
    return data


def _arrays(rollout: Rollout, pieces: Pieces | None) -> dict[str, Any]:
    data: dict[str, Any] = {
        "ids": packed(rollout.token_ids_T, np.int32),
        "sampler": packed(rollout.sampler_logprobs_T, np.float32),
    }
    if pieces is not None:
        data["pieces"] = pieces(rollout.token_ids_T[:MOST_TOKENS].tolist())
    if not rollout.trainable_T.all():
        data["trainable"] = "".join("01"[bool(x)] for x in rollout.trainable_T[:MOST_TOKENS])
    if rollout.entropy_T is not None:
        data["entropy"] = packed(rollout.entropy_T, np.float32)
    if rollout.kept_mass_T is not None:
        data["kept"] = packed(rollout.kept_mass_T, np.float32)
    return data


def _same(old_T: NDArray[np.float32], sampler_T: NDArray[np.float32]) -> str | None:
    """The old log-probs; `=` where they are the sampler's bit for bit, None where they were not computed."""
    if np.isnan(old_T).all():
        return None
    return "=" if old_T.tobytes() == sampler_T.tobytes() else packed(old_T, np.float32)


def packed(array: NDArray[Any], kind: Any) -> str:
    """The first MOST_TOKENS numbers as base64 of little-endian bytes."""
    little = np.asarray(array[:MOST_TOKENS], dtype=np.dtype(kind).newbyteorder("<"))
    return base64.b64encode(little.tobytes()).decode("ascii")


def number(value: float | None) -> float | str | None:
    """A number as strict JSON holds it."""
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
