"""The engine of docs/extending.md keeps what every engine keeps, for what it knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from groupwise.errors import EngineError
from groupwise.model.load import Policy
from groupwise.records import StopReason
from tests.docs.blocks import ROOT, blocks
from tests.rollouts.engine_contract import LIMIT, SAMPLINGS, STOPS, check_form, check_numbers
from tests.rollouts.examples import random_prompts, token_ids


@pytest.fixture
def policy(build_policy: Callable[..., Policy]) -> Policy:
    return build_policy(3, stop_token_ids=STOPS, context_tokens=64)


@pytest.fixture
def engine(policy: Policy) -> Any:
    [block] = [b for b in blocks(ROOT / "docs" / "extending.md") if b.marks.get("file") == "engine.py"]
    names: dict[str, Any] = {}
    exec(block.text, names)
    return SimpleNamespace(**names).OneByOne(policy)


@pytest.mark.parametrize("name", ["plain", "greedy"])
def test_its_rollouts_and_their_log_probs(engine: Any, policy: Policy, name: str) -> None:
    prompts, reasons = random_prompts((5, 11, 1, 7)), set()
    engine.load_weights(4, policy.model)
    for prompt, rollouts in zip(
        prompts, engine.generate(prompts, SAMPLINGS[name], group_size=4, seed=(0, 1)), strict=True
    ):
        assert [(r.prompt_id, r.group_index, r.policy_version) for r in rollouts] == [
            (prompt.id, g, 4) for g in range(4)
        ]
        for rollout in rollouts:
            check_form(rollout, policy, SAMPLINGS[name], kept_mass=False)
            check_numbers(rollout, prompt, policy, SAMPLINGS[name], 1e-4)
            reasons.add(rollout.stop_reason)
    assert name == "greedy" or reasons == {StopReason.STOP, StopReason.LENGTH}


def test_a_rollout_follows_from_seed_prompt_and_index(engine: Any) -> None:
    prompts, sampling = random_prompts((5, 11, 1)), SAMPLINGS["plain"]
    together = token_ids(engine.generate(prompts, sampling, group_size=3, seed=(0, 1)))
    assert token_ids(engine.generate(prompts[::-1], sampling, group_size=3, seed=(0, 1)))[::-1] == together
    assert token_ids(engine.generate(prompts, sampling, group_size=3, seed=(0, 2))) != together
    renamed = [replace(prompt, id=f"{prompt.id}x") for prompt in prompts]
    assert token_ids(engine.generate(renamed, sampling, group_size=3, seed=(0, 1))) != together
    both = engine.generate(prompts, sampling, group_size=3, seed=(0, 1), greedy=True)
    assert token_ids([group[:3] for group in both]) == together
    greedy = token_ids(engine.generate(prompts, SAMPLINGS["greedy"], group_size=1, seed=(9,)))
    assert token_ids([group[3:] for group in both]) == greedy


@pytest.mark.parametrize("name", ["top_k", "top_p", "min_p"])
def test_what_it_does_not_know_is_refused(engine: Any, name: str) -> None:
    with pytest.raises(EngineError, match="temperature alone; remove top_p"):
        engine.generate(random_prompts((5,)), SAMPLINGS[name], group_size=1, seed=(0,))


def test_what_is_too_long_is_refused(engine: Any, policy: Policy) -> None:
    [over] = random_prompts([policy.context_tokens - LIMIT + 1], source="long.jsonl")
    with pytest.raises(EngineError, match=r"long\.jsonl:0 is too long"):
        engine.generate([over], SAMPLINGS["plain"], group_size=1, seed=(0,))
