"""The formulas against what autograd really keeps, and against sums worked by hand."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.config import load
from groupwise.model.load import Policy, load_policy
from groupwise.model.logprobs import TokenLogprobs
from groupwise.model.shared_prefix import Family
from groupwise.model.tiny import write_tiny
from groupwise.training.setup import scorer_of
from groupwise.workbench.planning.devices import Device, Layout, card
from groupwise.workbench.planning.memory import (
    Overhead,
    activations,
    gradients,
    held_parts,
    layer_activations,
    memory_of,
    token_parts,
)
from groupwise.workbench.planning.settings import Setting, setting_of
from groupwise.workbench.planning.shapes import shape_of

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")

CPU = Device(
    name="a processor",
    kind="cpu",
    memory=2.0**34,
    bfloat16_flops=None,
    float32_flops=1e11,
    bandwidth=1e10,
    link=1e9,
)
ALONE = Layout(gpus=1, nodes=1)
PROMPTS, GROUP, P, T = 2, 4, 12, 20


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    kinds: dict[str, dict[str, Any]] = {
        "llama": {"architecture": "llama"},
        "qwen2": {"architecture": "qwen2", "tied": False},
    }
    return {
        name: write_tiny(tmp_path_factory.mktemp(name), hidden=128, layers=6, **kind)
        for name, kind in kinds.items()
    }


def _made(folder: Path, tree: dict[str, Any]) -> tuple[Policy, TokenLogprobs, Setting]:
    config = load(
        {
            "model": {"name": str(folder), "device": "cpu", **tree.get("model", {})},
            "rollout": {"prompts_per_step": PROMPTS, "group_size": GROUP, "max_new_tokens": T},
            "prompts": {"max_prompt_tokens": P},
            **{key: value for key, value in tree.items() if key != "model"},
        }
    ).config
    policy = load_policy(config.model, lora=config.lora, base=Path.cwd(), seed=0, memory=config.memory)
    scorer = scorer_of(policy, config, longest_tokens=P + T)
    assert scorer.shared
    return policy, scorer, setting_of(config, shape_of(config.model, Path.cwd()), CPU, ALONE)


def _kept(policy: Policy, scorer: TokenLogprobs) -> int:
    """Bytes of the storages that autograd keeps of one forward pass, the weights' own aside."""
    rng = np.random.default_rng(0)
    families = [
        Family(
            prompt_ids=rng.integers(3, 300, P).astype(np.int32),
            # First tokens differ, so that no beginning is shared.
            responses=[
                np.concatenate([[10 + g], rng.integers(3, 300, T - 1)]).astype(np.int32) for g in range(GROUP)
            ],
        )
        for _ in range(PROMPTS)
    ]
    own = {p.untyped_storage().data_ptr() for p in policy.model.parameters()}
    own |= {b.untyped_storage().data_ptr() for b in policy.model.buffers()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage
        return tensor

    policy.model.train()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        scorer(families, temperature=1.0)
    return sum(storage.nbytes() for storage in kept.values())


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@pytest.mark.parametrize(
    "tree",
    [
        {},
        {"model": {"precision": "bfloat16"}},
        {"lora": {"rank": 8}},
        {"lora": {"rank": 8, "target_modules": ["q_proj", "down_proj"]}},
        {"lora": {"rank": 8}, "model": {"precision": "bfloat16"}},
        {"lora": {"rank": 8}, "model": {"dtype": "bfloat16"}},
        {"lora": {"rank": 8}, "memory": {"quantise": "nf4"}},
        {"lora": {"rank": 8}, "memory": {"quantise": "nf4"}, "model": {"dtype": "bfloat16"}},
    ],
    ids=["full", "bf16", "lora", "two-layers", "lora-bf16", "lora-half", "qlora", "qlora-half"],
)
def test_activations_are_what_autograd_keeps(
    kind: str, tree: dict[str, Any], folders: dict[str, Path]
) -> None:
    if "memory" in tree and importlib.util.find_spec("bitsandbytes") is None:
        pytest.skip("needs the extra quant")
    policy, scorer, setting = _made(folders[kind], tree)
    (one,) = setting.passes()
    expected = activations(setting, one)
    if setting.rounded:  # weights cast for the backward pass are counted on their own
        expected += 2.0 * setting.shape.linear_weights
    assert _kept(policy, scorer) == pytest.approx(expected, rel=0.02)


# Sums worked by hand. Qwen2.5-7B: W = 7,615,616,512 weights, of which B = 28 x 233,046,016 = 6,525,288,448 in linear
# layers; V D = 152,064 x 3,584 = 544,997,376; an adapter of rank 16 has 40,370,176.
W, B, HEAD, ADAPTER = 7_615_616_512, 6_525_288_448, 544_997_376, 40_370_176


def _seven(tree: dict[str, Any], gpus: int = 1, gpu: str = "h200") -> Setting:
    config = load({"model": {"name": "Qwen/Qwen2.5-7B", **tree.pop("model", {})}, **tree}).config
    shape = shape_of(config.model, Path.cwd())
    return setting_of(config, shape, card(gpu), Layout(gpus=gpus, nodes=1), prompt_tokens=100)


def test_what_is_held_in_full() -> None:
    setting = _seven({})
    assert held_parts(setting) == {"weights": 4 * W, "optimiser": 8 * W, "reference": 4 * W}
    assert gradients(setting) == 4 * W
    halves = _seven({"distributed": {"strategy": "fsdp2"}}, gpus=2)
    assert held_parts(halves) == {"weights": 2 * W, "optimiser": 4 * W, "reference": 2 * W}
    assert gradients(halves) == 2 * W
    assert memory_of(halves).phases["sampling"]["weights put together"] == 4 * W
    copies = _seven({}, gpus=2)  # ddp divides nothing
    assert held_parts(copies) == held_parts(setting)


def test_what_is_held_below_an_adapter() -> None:
    assert held_parts(_seven({"lora": {"rank": 16}})) == {
        "weights": 4 * W + 4 * ADAPTER,
        "optimiser": 8 * ADAPTER,
    }
    half = _seven({"lora": {"rank": 16}, "model": {"dtype": "bfloat16"}})
    assert held_parts(half)["weights"] == 2 * W + 4 * ADAPTER
    packed = _seven({"lora": {"rank": 16}, "model": {"dtype": "bfloat16"}, "memory": {"quantise": "nf4"}})
    # 4.126953125 bits: 0.515869140625 x 6,525,288,448 + 2 x (7,615,616,512 - 6,525,288,448) + 4 x 40,370,176
    assert held_parts(packed)["weights"] == pytest.approx(
        3_366_194_944 + 2_180_656_128 + 161_480_704, rel=1e-6
    )
    continued = _seven({"lora": {"rank": 16, "adapter": "folder"}})
    assert held_parts(continued)["weights"] == 4 * W + 8 * ADAPTER  # a frozen copy for the reference


def test_a_critic_of_its_own_is_a_second_model_that_is_trained() -> None:
    parts = held_parts(_seven({"objective": "ppo"}))
    assert parts["critic"] == 4 * W + 12 * W
    assert "critic" not in held_parts(_seven({"objective": "ppo", "critic": {"backbone": "policy"}}))


def test_a_reference_at_rest_is_there_while_it_scores_alone() -> None:
    phases = memory_of(_seven({"memory": {"reference": "cpu"}})).phases
    assert [name for name, parts in phases.items() if "reference" in parts] == ["scoring"]
    assert phases["scoring"]["reference"] == 4 * W


def test_keys_values_and_logits_while_sampling() -> None:
    # 8 prompts of 100 and 64 responses of 256: 17,184 tokens x 2 x 512 x 28 x 2 bytes = 0.92 GiB, within 2 GiB.
    parts = memory_of(_seven({})).phases["sampling"]
    assert parts["keys and values"] == 17_184 * 57_344
    assert parts["logits"] == 4 * 4 * 64 * 152_064


def test_the_backward_pass_begins_or_ends_at_the_peak() -> None:
    # One pass of 2 x 100 + 8 x 3 = 224 tokens: all gradients weigh more than its activations.
    short = {"rollout": {"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 4}}
    parts = memory_of(_seven(dict(short))).phases["training"]
    assert parts["gradients"] == 4 * W
    assert parts["logits"] == 4 * HEAD
    assert "activations" not in parts
    # In two passes the last begins with the gradients of the first.
    parts = memory_of(_seven(short | {"training": {"micro_batch_rollouts": 4}})).phases["training"]
    assert parts["gradients"] == 4 * W
    assert parts["activations"] > 0


def test_flexattention_keeps_no_repeated_keys() -> None:
    flex, plain = _seven({}), _seven({"model": {"attention": "sdpa"}})
    (one, *_), (same, *_) = flex.passes(), plain.passes()
    # (2 x 3584 + 2 x 512) x 2 bytes and 4 for each of 28 heads, of every token.
    of_attention = layer_activations(flex, one) - one.tokens * sum(token_parts(flex).values())
    assert of_attention == one.tokens * (2 * (2 * 3584 + 2 * 512) + 4 * 28)
    assert layer_activations(plain, same) > layer_activations(flex, one)


def test_checkpointing_keeps_the_inputs_of_layers_and_one_layer() -> None:
    tree = {"training": {"gradient_checkpointing": True}}
    setting, plain = _seven(dict(tree)), _seven({})
    (one, *_) = setting.passes()
    layer, outside = (
        layer_activations(plain, one),
        activations(plain, one) - 28 * layer_activations(plain, one),
    )
    assert activations(setting, one) == pytest.approx(28 * 4 * 3584 * one.tokens + layer + outside)


@pytest.mark.parametrize("tree", [{}, {"lora": {"rank": 16}}, {"distributed": {"strategy": "fsdp2"}}])
def test_more_of_anything_never_takes_less(tree: dict[str, Any]) -> None:
    tree = tree | {"training": {"micro_batch_tokens": 10**6}}  # else a pass may end up with less at its end
    base = memory_of(_seven(dict(tree), gpus=2)).peak
    for more in (
        {"rollout": {"max_new_tokens": 512}},
        {"rollout": {"prompts_per_step": 16}},
        {"objective": "ppo"},
    ):
        assert memory_of(_seven(tree | more, gpus=2)).peak >= base


def test_the_peak_is_the_largest_phase_with_its_overhead() -> None:
    memory = memory_of(_seven({}), Overhead(base=10.0, factor=2.0))
    largest = max(sum(parts.values()) for parts in memory.phases.values())
    assert memory.peak == 10.0 + 2.0 * largest
    assert sum(memory.phases[memory.worst].values()) == largest
