"""Passes and chunks against those that training makes, and what is automatic on each kind of device."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.config import load
from groupwise.errors import ConfigError
from groupwise.records import Rollout, StopReason
from groupwise.training.batch import Row, split
from groupwise.workbench.planning.devices import Layout, card
from groupwise.workbench.planning.settings import Pass, Setting, setting_of
from groupwise.workbench.planning.shapes import shape_of

ONE = Layout(gpus=1, nodes=1)


def made(tree: dict[str, Any], layout: Layout = ONE, gpu: str = "h100", **given: int) -> Setting:
    config = load({"model": "smollm2-135m", **tree}).config
    return setting_of(config, shape_of(config.model, Path.cwd()), card(gpu), layout, **given)


def _row(prompt: np.ndarray, tokens: int) -> Row:
    rollout = Rollout(
        prompt_id="p",
        group_index=0,
        token_ids_T=np.zeros(tokens, dtype=np.int32),
        trainable_T=np.ones(tokens, dtype=np.bool_),
        sampler_logprobs_T=np.zeros(tokens, dtype=np.float32),
        kept_mass_T=None,
        entropy_T=np.zeros(tokens, dtype=np.float32),
        stop_reason=StopReason.STOP,
        policy_version=0,
        text="",
    )
    return Row(
        prompt_ids=prompt,
        rollout=rollout,
        advantages_T=np.ones(tokens),
        weight=1.0,
        old_logprobs_T=np.zeros(tokens, dtype=np.float32),
        reference_logprobs_T=None,
        correction_T=None,
    )


@pytest.mark.parametrize("prompts", [1, 3, 8])
@pytest.mark.parametrize("group", [2, 5])
@pytest.mark.parametrize("tokens", [30, 100, 333, 10_000])
@pytest.mark.parametrize("rollouts", [None, 3])
def test_passes_are_those_that_training_makes(
    prompts: int, group: int, tokens: int, rollouts: int | None
) -> None:
    setting = made(
        {
            "rollout": {"prompts_per_step": prompts, "group_size": group, "max_new_tokens": 17},
            "training": {"micro_batch_tokens": tokens, "micro_batch_rollouts": rollouts},
        },
        prompt_tokens=23,
    )
    rows = []
    for _ in range(prompts):
        prompt = np.zeros(23, dtype=np.int32)
        rows += [_row(prompt, 17) for _ in range(group)]
    parts = list(split(rows, tokens=tokens, rollouts=rollouts, shared=True))
    expected = [(len({id(row.prompt_ids) for row in part}), len(part)) for part in parts]
    assert [(one.prompts, one.responses) for one in setting.passes()] == expected


def test_tokens_of_a_pass() -> None:
    one = Pass(prompts=2, responses=8, prompt_tokens=10, new_tokens=5)
    # 2 x 10 + 8 x 4 = 52 are computed; 8 x 5 = 40 are predicted.
    assert (one.tokens, one.predictions, one.of_prompts, one.of_responses) == (52, 40, 20, 32)


def test_chunks_fit_the_budget_and_hold_every_row() -> None:
    setting = made(
        {"rollout": {"prompts_per_step": 7, "group_size": 4, "max_new_tokens": 100, "cache_megabytes": 40}},
        prompt_tokens=50,
    )
    # A token takes 2 x 192 x 30 x 2 = 23,040 bytes, so 40 MiB hold 1,820 tokens: 4 groups of 50 + 400.
    assert setting.key_value_bytes == 23_040
    assert [(c.prompts, c.responses) for c in setting.chunks()] == [(4, 16), (3, 12)]
    small = made(
        {"rollout": {"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 100, "cache_megabytes": 8}},
        prompt_tokens=50,
    )
    # 364 tokens: 3 responses of 100 behind a prompt of 50.
    assert [(c.prompts, c.responses) for c in small.chunks()] == [(1, 3), (1, 1), (1, 3), (1, 1)]


def test_what_is_automatic_follows_the_device() -> None:
    assert made({}).rounded
    assert made({}).flex
    assert not made({}, gpu="t4").rounded  # it has no bfloat16
    assert not made({"model": {"name": "tiny"}}).rounded  # too small to gain
    assert not made({"model": {"name": "smollm2-135m", "precision": "float32"}}).rounded
    half = made({"model": {"name": "smollm2-135m", "dtype": "bfloat16"}, "lora": {}})
    assert (half.weight_bytes, half.rounded) == (2, False)


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({}, ("here", 4)),
        ({"objective": {"kl": {"beta": 0}}}, ("none", 0)),
        ({"lora": {}}, ("shared", 0)),
        ({"memory": {"reference": "cpu"}}, ("resting", 4)),
        ({"reference": {"device": "cpu"}}, ("elsewhere", 4)),
        ({"reference": {"dtype": "bfloat16"}}, ("here", 2)),
        ({"reference": {"device": "cuda:1"}}, ("here", 4)),
    ],
)
def test_where_the_reference_is(tree: dict[str, Any], expected: tuple[str, int]) -> None:
    setting = made(tree)
    assert (setting.reference, setting.reference_bytes) == expected


def test_processes_share_the_prompts() -> None:
    setting = made({"rollout": {"prompts_per_step": 10}}, Layout(gpus=4, nodes=1))
    assert (setting.share, setting.sharded) == (3, False)
    assert made({"distributed": {"strategy": "fsdp2"}}, Layout(gpus=2, nodes=2)).sharded
    assert not made({"distributed": {"strategy": "fsdp2"}}).sharded


@pytest.mark.parametrize(
    ("tree", "given", "why"),
    [
        ({"method": "dpo"}, {}, "method is dpo, which samples none"),
        ({"rollout": {"max_new_tokens": 9000}}, {}, "exceed the context of smollm2-135m, 8192"),
        ({}, {"prompt_tokens": 8000}, "prompts of 8000 tokens with responses of 256 exceed"),
        (
            {"rollout": {"engine": "mine.py:engine"}},
            {},
            "engine is mine.py:engine, of whose memory and speed nothing",
        ),
        ({"lora": {"target_modules": ["nowhere"]}}, {}, "no layer of smollm2-135m is called so"),
    ],
)
def test_what_cannot_be_planned_is_said(tree: dict[str, Any], given: dict[str, int], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        made(tree, **given)


@pytest.mark.parametrize(("updates", "scored"), [(1, False), (2, True)])
def test_the_trainer_scores_what_a_server_sampled_before_several_updates(updates: int, scored: bool) -> None:
    """With one update the policy's own log-probs are the old ones; a server's never are (old_source: auto)."""
    tree: dict[str, Any] = {"training": {"updates_per_batch": updates}}
    assert not made(tree).trainer_scores
    served = made({**tree, "rollout": {"engine": "vllm", "overlap": 1}})
    assert served.trainer_scores == scored
    assert served.served
    assert served.overlap == 1
