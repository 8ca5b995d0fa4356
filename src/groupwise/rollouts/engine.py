"""What samples rollouts: the interface that every engine keeps, and the settings of one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from groupwise.config.rollout import ConfidenceConfig, RolloutConfig
from groupwise.records import Prompt, Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are drawn. Nothing else acts: a model folder's generation defaults are not read."""

    max_new_tokens: int
    """Limit per response."""
    temperature: float = 1.0
    """Divides the logits; 0 is greedy."""
    top_p: float = 1.0
    """Nucleus: the most likely tokens until their mass reaches this; 1 keeps all."""
    top_k: int | None = None
    """That many of the most likely tokens; None keeps all."""
    min_p: float = 0.0
    """Tokens with less than this share of the most likely one's probability are cut; 0 keeps all."""

    confidence: ConfidenceConfig | None = None
    """When a token is drawn again; None for never."""

    @property
    def greedy(self) -> bool:
        """True when the most likely token is taken."""
        return self.temperature == 0

    @property
    def truncates(self) -> bool:
        """True when part of the distribution is left out."""
        return not self.greedy and (self.top_p < 1 or self.top_k is not None or self.min_p > 0)

    @property
    def reshapes(self) -> bool:
        """True when tokens are drawn from another distribution than that of temperature alone."""
        return self.truncates or (not self.greedy and self.confidence is not None)

    @classmethod
    def of(cls, config: RolloutConfig) -> Sampling:
        """The settings of a run's rollouts."""
        return cls(
            max_new_tokens=config.max_new_tokens,
            temperature=config.temperature,
            top_p=config.top_p,
            top_k=config.top_k,
            min_p=config.min_p,
            confidence=config.confidence,
        )


class Engine(Protocol):
    """Samples groups of rollouts.

    The log-probs it returns are those of the distribution really drawn from, truncation, re-normalisation and draws
    made again included; greedy rollouts carry the log-probs of temperature 1.
    """

    @property
    def same_as_trainer(self) -> bool:
        """True when it computes with the trainer's own weights and precision, so that its untruncated log-probs may
        serve as the old ones."""
        ...

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        group_size: int,
        seed: Sequence[int],
        greedy: bool = False,
    ) -> list[list[Rollout]]:
        """Sample `group_size` rollouts of each prompt.

        Args:
            prompts: any number.
            sampling: how tokens are drawn.
            group_size: rollouts per prompt.
            seed: whole numbers, such as (run seed, step). A rollout's random numbers follow from them, its prompt's
                id and its index in the group alone, not from what else is in the batch.
            greedy: beside them one rollout of each prompt that takes the most likely token throughout, in the same
                pass. It stands last, with the group size for its `group_index`.

        Returns:
            One list per prompt, in order of `group_index`.

        Raises:
            EngineError: the engine failed or was lost.
        """
        ...

    def load_weights(self, version: int, source: Any) -> None:
        """Take over the policy's weights after an update; rollouts carry `version` from then on."""
        ...

    def close(self) -> None:
        """Free what the engine holds."""
        ...
