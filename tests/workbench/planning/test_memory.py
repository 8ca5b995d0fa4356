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
from groupwise.workbench.planning.devices import Device, Layout
from groupwise.workbench.planning.memory import activations
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
