"""Prompts and responses of random tokens, and the architectures that they are scored under."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from groupwise.model.shared_prefix import Family

RAGGED = ((5, (3, 1, 7)), (11, (4, 4)), (2, (1,)), (1, (1, 1)), (3, (6, 2, 2, 5)))
"""Prompt tokens, and tokens of each response: ragged, of equal length, of one token."""


def random_families(
    shape: Sequence[tuple[int, Sequence[int]]] = RAGGED,
    *,
    vocabulary: int = 366,
    seed: int = 1,
    stem: int = 0,
) -> list[Family]:
    """Families of this shape, each prompt behind a stem of so many tokens."""
    rng = np.random.default_rng(seed)

    def ids(count: int) -> np.ndarray:
        return rng.integers(0, vocabulary, count).astype(np.int32)

    common = ids(stem)
    return [
        Family(prompt_ids=np.concatenate([common, ids(n)]), responses=[ids(k) for k in lengths])
        for n, lengths in shape
    ]


def one_by_one(
    model: torch.nn.Module, families: Sequence[Family], *, temperature: float
) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies written down as plainly as can be: each sequence alone, no padding, no mask."""
    logprobs: list[Tensor] = []
    entropies: list[Tensor] = []
    for family in families:
        for response in family.responses:
            ids = torch.from_numpy(np.concatenate([family.prompt_ids, response]).astype(np.int64))
            logits = model(input_ids=ids[None], use_cache=False).logits[0] / temperature
            for t in range(len(response)):
                position = len(family.prompt_ids) + t
                distribution = torch.distributions.Categorical(logits=logits[position - 1])
                logprobs.append(distribution.log_prob(ids[position]))
                entropies.append(distribution.entropy())
    return torch.stack(logprobs), torch.stack(entropies)


def gradient_of(model: torch.nn.Module, logprobs_M: Tensor, entropy_M: Tensor) -> Tensor:
    """The gradient of all parameters, flat, of a loss in which every log-prob and entropy has a weight of its own."""
    model.zero_grad()
    weight_M = torch.linspace(-1, 1, len(logprobs_M), dtype=logprobs_M.dtype)
    ((weight_M * logprobs_M.exp()).sum() + (weight_M.flip(0) * entropy_M).sum()).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).clone()


def relative(a: Tensor, b: Tensor) -> float:
    """Norm of the difference over the norm."""
    return float((a - b).norm() / b.norm())
