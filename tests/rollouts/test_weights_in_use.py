"""Cases i01, i02 and i05: what samples uses the newest weights, and nothing of older ones or of other settings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.config.model import ModelConfig
from groupwise.model.load import Policy, load_policy
from groupwise.model.sampling_weights import can_pack
from groupwise.model.shared_prefix import Family
from groupwise.model.tiny import write_tiny
from groupwise.rollouts.engine import Sampling
from groupwise.training import loop
from tests.rollouts.examples import engine_of, random_prompts, token_ids
from tests.training.conftest import tiny_run

__all__ = ["tiny_run"]  # a fixture

SAMPLING = Sampling(max_new_tokens=12, temperature=0.9)


@pytest.mark.parametrize("sections", [{}, {"rollout": {"pack_weights": False}}, {"lora": {"rank": 4}}])
def test_the_gap_between_sampler_and_trainer_does_not_grow_with_the_updates(
    sections: dict[str, Any], tiny_run: Callable[..., Any]
) -> None:
    # Case i01: woken with the weights of before, an engine had a gap of 0.2 nats at the third step.
    sections = {**sections, "rollout": {"max_new_tokens": 12, **sections.get("rollout", {})}}
    result = loop.train(tiny_run(**sections, training={"steps": 5, "learning_rate": 2e-2}))
    gaps = result.series("sampler/gap_abs_mean")
    assert len(gaps) == 5
    assert max(gaps) < 1e-5
    assert result.series("sampler/lag_updates_mean") == [0.0] * 5
    assert max(result.series("grad/norm")) > 0


@pytest.mark.parametrize("share_prefix", [True, False])
def test_nothing_computed_with_older_weights_is_used_again(policy: Policy, share_prefix: bool) -> None:
    # Case i02: keys and values of a prompt, kept from before a large update.
    engine, prompts = engine_of(policy, share_prefix=share_prefix), random_prompts((9, 4))
    before = engine.generate(prompts, SAMPLING, group_size=3, seed=(0,))
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1.3)
    engine.load_weights(1, policy.model)
    after = engine.generate(prompts, SAMPLING, group_size=3, seed=(0,))
    fresh = engine_of(policy, share_prefix=share_prefix).generate(prompts, SAMPLING, group_size=3, seed=(0,))
    assert token_ids(after) == token_ids(fresh) != token_ids(before)
    for mine, right in zip(after, fresh, strict=True):
        for one, other in zip(mine, right, strict=True):
            np.testing.assert_array_equal(one.sampler_logprobs_T, other.sampler_logprobs_T)


@pytest.mark.skipif(not can_pack(torch.float32), reason="this build of torch has no prepacked linear layers")
def test_copies_of_weights_serve_until_they_are_stale_or_in_the_way(policy: Policy) -> None:
    engine, prompts = engine_of(policy), random_prompts((9, 4))
    kept = engine.scorer.sampling_weights
    assert engine.pack_weights

    def copies() -> list[int]:
        engine.generate(prompts, SAMPLING, group_size=3, seed=(0,))
        return [id(forward) for forward in kept._kept.values()]

    first = copies()
    assert first
    assert copies() == first
    ids = np.arange(3, dtype=np.int32)
    engine.scorer([Family(prompt_ids=ids, responses=[ids])], temperature=1.0)
    assert not kept._kept
    copies()
    for parameter in policy.model.parameters():  # unseen by torch's count of changes
        parameter.data = parameter.data * 1.3
    engine.load_weights(1, policy.model)
    assert not kept._kept
    copies()
    engine.close()
    assert not kept._kept


def test_a_model_folder_that_says_how_to_sample_is_not_listened_to(tmp_path: Path) -> None:
    # Case i05: it capped responses at its own limit and took the most likely token.
    write_tiny(tmp_path / "model", weight_scale=0.3)
    own = tmp_path / "model" / "generation_config.json"
    own.write_text(
        json.dumps({**json.loads(own.read_text()), "max_new_tokens": 5, "top_k": 1, "do_sample": True})
    )
    policy = load_policy(ModelConfig(name=str(tmp_path / "model")), lora=None, base=tmp_path, seed=0)
    [rollouts] = engine_of(policy).generate(random_prompts([6]), SAMPLING, group_size=6, seed=(0,))
    assert max(len(rollout.token_ids_T) for rollout in rollouts) > 5
    assert len({tuple(rollout.token_ids_T.tolist()) for rollout in rollouts}) == 6
    assert all(rollout.kept_mass_T is None for rollout in rollouts)
