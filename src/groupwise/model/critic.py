"""A critic: a value head on a backbone, which says before each token what reward is still to come."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from groupwise.config.critic import CriticConfig
from groupwise.model.logprobs import TokenLogprobs
from groupwise.model.shared_prefix import Family

if TYPE_CHECKING:
    from groupwise.model.load import Policy


class Critic(torch.nn.Module):
    """Values of response tokens, prompts computed once where the model allows.

    The head is linear on the last hidden state and 0 at first, so an untrained critic expects nothing.
    """

    def __init__(self, scorer: TokenLogprobs, own: torch.nn.Module | None) -> None:
        """Put a head on what a scorer's layers compute.

        Args:
            scorer: its layers read the tokens.
            own: the model that the scorer belongs to, when it is the critic's own and learns with the head; None when
                it is the policy, which then gets no gradient from here.
        """
        super().__init__()
        self.own = own
        self.scorer = scorer
        weight = scorer.head.weight
        self.value_head = torch.nn.Linear(
            weight.shape[1],
            1,
            device=scorer.device,
            dtype=torch.promote_types(weight.dtype, torch.float32),
        )
        torch.nn.init.zeros_(self.value_head.weight)
        torch.nn.init.zeros_(self.value_head.bias)

    def forward(self, families: Sequence[Family]) -> Tensor:
        """What is expected before each response token, in the order of families, responses and tokens.

        Args:
            families: prompts and their responses; every response has a token.

        Returns:
            Shape [M], in units of reward, in float32 at least; with gradient where enabled.
        """
        if self.own is None:
            with torch.no_grad():
                hidden_MD = self.scorer.hidden(families)
            hidden_MD = hidden_MD.detach()
        else:
            hidden_MD = self.scorer.hidden(families)
        values_M: Tensor = self.value_head(hidden_MD.to(self.value_head.weight.dtype))[:, 0]
        return values_M


def build_critic(
    policy: Policy, scorer: TokenLogprobs, config: CriticConfig, *, longest_tokens: int
) -> Critic:
    """The critic of a run.

    With a backbone of its own it starts from the policy's present weights. What the policy trains, it trains: all
    weights, or an adapter of its own where the policy has one.

    Args:
        policy: as loaded.
        scorer: what scores the policy's responses.
        config: the section `critic`.
        longest_tokens: longest prompt and response together.
    """
    if config.backbone == "policy":
        return Critic(scorer, None)
    model = copy.deepcopy(policy.model)
    own = TokenLogprobs(
        model,
        longest_tokens=longest_tokens,
        share_prefix=scorer.shared,
        precision=scorer.precision,
        flex=scorer.flex,
    )
    kept = {id(parameter) for parameter in own.backbone.parameters()}
    for parameter in model.parameters():
        if id(parameter) not in kept:
            parameter.requires_grad_(False)  # a head over the vocabulary that nothing calls
    return Critic(own, model)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What weights take while they are trained by AdamW, activations left out. In bytes."""

    weights: int
    """The weights themselves, frozen ones included."""
    training: int
    """Gradients and the optimiser's two averages, of the trained ones."""

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.training


def memory_of(parameters: Iterable[torch.nn.Parameter]) -> Memory:
    """Of some parameters, each counted once."""
    each: dict[int, Any] = {id(parameter): parameter for parameter in parameters}
    sizes = [(p.numel() * p.element_size(), p.requires_grad) for p in each.values()]
    return Memory(
        weights=sum(size for size, _ in sizes), training=sum(3 * size for size, trained in sizes if trained)
    )
