"""Prompts of random tokens, and a model whose next token is decided beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from groupwise.model.load import Policy
from groupwise.model.logprobs import TokenLogprobs
from groupwise.model.shared_prefix import Family
from groupwise.records import Prompt, Rollout
from groupwise.rollouts.in_process import InProcessEngine


def prompt_of(token_ids: Sequence[int], name: str = "examples:0") -> Prompt:
    ids = np.array(token_ids, dtype=np.int32)
    return Prompt(id=name, source="examples", messages=None, text=" ".join(map(str, ids)), token_ids=ids)


def random_prompts(
    lengths: Sequence[int],
    *,
    vocabulary: int = 366,
    seed: int = 1,
    source: str = "examples",
    stem: int = 0,
) -> list[Prompt]:
    """Prompts of these lengths, each behind a stem of so many tokens."""
    rng = np.random.default_rng(seed)
    common = rng.integers(3, vocabulary, stem).tolist()
    return [
        prompt_of(common + rng.integers(3, vocabulary, n).tolist(), f"{source}:{row}")
        for row, n in enumerate(lengths)
    ]


def engine_of(policy: Policy, *, share_prefix: bool = True, cache_megabytes: int = 2048) -> InProcessEngine:
    scorer = TokenLogprobs(policy.model, longest_tokens=policy.context_tokens, share_prefix=share_prefix)
    return InProcessEngine(policy, scorer, cache_megabytes=cache_megabytes, pack_weights=True)


def families_of(prompts: Sequence[Prompt], rollouts_PG: Sequence[Sequence[Rollout]]) -> list[Family]:
    return [
        Family(prompt_ids=prompt.token_ids, responses=[rollout.token_ids_T for rollout in rollouts])
        for prompt, rollouts in zip(prompts, rollouts_PG, strict=True)
    ]


def token_ids(rollouts_PG: Sequence[Sequence[Rollout]]) -> list[list[list[int]]]:
    return [[rollout.token_ids_T.tolist() for rollout in rollouts] for rollouts in rollouts_PG]


@torch.no_grad()
def chain(policy: Policy, following: Mapping[int, int]) -> None:
    """Make the token `following[a]` all but certain after the token a, whatever came before.

    Attention and feed-forward layers are made to add nothing, so that the hidden state is the embedding, of norm 8
    after the last layer norm (the root of 64 entries). The head's row of the next token points the same way, 20 long:
    its logit is 160, those of other rows at random angles far less, and of rows not in the chain 0.
    """
    model = policy.model
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    embedding = model.get_input_embeddings().weight
    head = model.get_output_embeddings().weight
    assert head is not embedding, "the head must be its own: build_policy(tied=False)"
    head.zero_()
    for token, then in following.items():
        head[then] += 20 * embedding[token] / embedding[token].norm()
