"""An engine of the user's: made by a function of theirs, and held to what every engine promises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.errors import EngineError, GroupwiseError, raised
from groupwise.model.load import Policy
from groupwise.records import Prompt, Rollout
from groupwise.registry import import_function
from groupwise.rollouts.engine import Engine, Sampling

_PROMISED = ("same_as_trainer", "generate", "load_weights", "close")


class OwnEngine:
    """What `rollout.engine: file.py:function` gives, with every batch looked at. See `engine.Engine`.

    A wrong log-prob cannot be told from a right one here: `sampler/gap_abs_mean` in the metrics tells it, as long as
    `same_as_trainer` is False.
    """

    def __init__(self, name: str, policy: Policy, *, base: Path) -> None:
        """Call the function with the policy.

        Args:
            name: `module:function` or `file.py:function`; a class will do.
            policy: model and tokenizer, the engine's to sample from.
            base: folder that files and modules are looked up from.

        Raises:
            ConfigError: there is no such function.
            EngineError: it failed, or gave something that is no engine.
        """
        make: Callable[[Policy], Engine] = import_function(name, base=base)
        self.name = name
        self.vocabulary: int = policy.model.get_input_embeddings().num_embeddings
        try:
            self.own = make(policy)
        except GroupwiseError:
            raise
        except Exception as error:
            raise EngineError(f"rollout.engine: {name} failed: {raised(error)}") from error
        missing = [each for each in _PROMISED if not hasattr(self.own, each)]
        if missing:
            raise EngineError(
                f"rollout.engine: {name} gave a {type(self.own).__name__} without {', '.join(missing)}; an engine has "
                f"{', '.join(_PROMISED)}"
            )

    @property
    def same_as_trainer(self) -> bool:
        """See `engine.Engine`."""
        return bool(self.own.same_as_trainer)

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        group_size: int,
        seed: Sequence[int],
        greedy: bool = False,
    ) -> list[list[Rollout]]:
        """See `engine.Engine`.

        Raises:
            EngineError: it failed, or the rollouts are not what was asked for.
        """
        try:
            groups = self.own.generate(prompts, sampling, group_size=group_size, seed=seed, greedy=greedy)
        except GroupwiseError:
            raise
        except Exception as error:
            raise EngineError(
                f"rollout.engine: {self.name} failed while sampling: {raised(error)}"
            ) from error
        if len(groups) != len(prompts):
            raise EngineError(
                f"rollout.engine: {self.name} gave {len(groups)} groups for {len(prompts)} prompts; one each"
            )
        for prompt, rollouts in zip(prompts, groups, strict=True):
            found = [(rollout.prompt_id, rollout.group_index) for rollout in rollouts]
            wanted = [(prompt.id, g) for g in range(group_size + greedy)]
            if found != wanted:
                raise EngineError(
                    f"rollout.engine: {self.name} gave the rollouts {found} for {prompt.id}; they are, in this order, "
                    f"{wanted}"
                )
            for rollout in rollouts:
                fault = self._fault(rollout, sampling)
                if fault is not None:
                    raise EngineError(
                        f"rollout.engine: rollout {rollout.group_index} of {prompt.id} by {self.name} {fault}"
                    )
        return groups

    def _fault(self, rollout: Rollout, sampling: Sampling) -> str | None:
        """What is wrong with a rollout, as a clause; None for nothing."""
        ids_T, logprobs_T = rollout.token_ids_T, np.asarray(rollout.sampler_logprobs_T)
        if not 1 <= len(ids_T) <= sampling.max_new_tokens:
            return f"has {len(ids_T)} tokens; there are from 1 to rollout.max_new_tokens, {sampling.max_new_tokens}"
        if not ((ids_T >= 0) & (ids_T < self.vocabulary)).all():
            return f"has a token id outside the vocabulary of {self.vocabulary}"
        if not np.isfinite(logprobs_T).all() or (logprobs_T > 1e-4).any():
            return "has a log-prob that is not finite or above 0; take the natural logarithm of a probability"
        return None

    def load_weights(self, version: int, source: Any) -> None:
        """See `engine.Engine`."""
        self.own.load_weights(version, source)

    def close(self) -> None:
        """See `engine.Engine`."""
        self.own.close()
