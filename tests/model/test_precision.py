import copy
import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import groupwise
from groupwise.config import load
from groupwise.config.model import ModelConfig
from groupwise.errors import ConfigError
from groupwise.model import precision as module
from groupwise.model.head import head_logprobs
from groupwise.model.load import Policy, load_policy
from groupwise.model.logprobs import TokenLogprobs
from groupwise.model.precision import resolve_precision, rounded
from groupwise.rollouts.engine import Sampling
from groupwise.rollouts.in_process import InProcessEngine
from tests.model.families import gradient_of, random_families, relative
from tests.rollouts.examples import families_of, random_prompts

CPU = torch.device("cpu")
ARCHITECTURES = ("llama", "qwen2", "gpt2")


@pytest.mark.parametrize(
    ("name", "able", "weights", "expected"),
    [
        ("auto", True, 135_000_000, torch.bfloat16),
        ("auto", True, 1_000_000, None),  # small: casting costs what it saves
        ("auto", False, 135_000_000, None),
        ("float32", True, 135_000_000, None),
        ("bfloat16", False, 1_000_000, torch.bfloat16),  # asked for by name
    ],
)
def test_which_precision(
    monkeypatch: pytest.MonkeyPatch, name: module.Name, able: bool, weights: int, expected: torch.dtype | None
) -> None:
    monkeypatch.setattr(module, "has_bfloat16", lambda device: able)
    assert resolve_precision(name, CPU, weights=weights) == expected


def test_a_cpu_has_it_when_it_has_the_instructions() -> None:
    """Of the processor that the tests run on, by what the system says of it."""
    info = Path("/proc/cpuinfo")
    if platform.machine() != "x86_64" or not info.exists():
        pytest.skip("the system says nothing of the processor")
    flags = set(info.read_text().split())
    assert module.has_bfloat16(CPU) == bool({"avx512_bf16", "amx_bf16"} & flags)
    assert not module.has_bfloat16(torch.device("mps"))


@pytest.mark.parametrize(
    ("machine", "instructions", "said", "expected"),
    [
        ("x86_64", (True, False), True, True),
        ("x86_64", (False, True), True, True),
        ("AMD64", (False, False), True, False),  # AVX-512 alone: oneDNN emulates them
        ("x86_64", (True, False), False, False),
        ("aarch64", (False, False), True, True),  # there oneDNN looks for the instruction
        ("aarch64", (False, False), False, False),
    ],
)
def test_emulated_products_are_not_taken_for_fast_ones(
    monkeypatch: pytest.MonkeyPatch, machine: str, instructions: tuple[bool, bool], said: bool, expected: bool
) -> None:
    monkeypatch.setattr(module.platform, "machine", lambda: machine)
    for name, there in zip(
        ("_is_avx512_bf16_supported", "_is_amx_tile_supported"), instructions, strict=True
    ):
        monkeypatch.setattr(torch.cpu, name, lambda there=there: there)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: said)
    assert module.has_bfloat16(CPU) == expected


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("share_prefix", [True, False])
def test_products_are_rounded_and_nothing_else(
    build_policy: Callable[..., Policy], architecture: str, share_prefix: bool
) -> None:
    model = build_policy(architecture=architecture).model
    families = random_families()
    exact = TokenLogprobs(copy.deepcopy(model), longest_tokens=64, share_prefix=share_prefix)
    scorer = TokenLogprobs(model, longest_tokens=64, share_prefix=share_prefix, precision=torch.bfloat16)
    right, entropy = exact(families, temperature=0.7)
    found, rounded_entropy = scorer(families, temperature=0.7)
    assert found.dtype == torch.float32
    gap = (found - right).abs()
    assert 1e-5 < gap.max() < 0.2  # it acts, and is small
    gradient = gradient_of(exact.model, right, entropy)
    assert relative(gradient_of(model, found, rounded_entropy), gradient) < 0.15
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert {p.grad.dtype for p in model.parameters() if p.grad is not None} == {torch.float32}


def test_the_head_keeps_its_precision_forward() -> None:
    torch.manual_seed(0)
    hidden = torch.randn(40, 32)
    weight = torch.randn(300, 32)
    targets = torch.arange(40)
    right, _ = head_logprobs(hidden, weight, targets, temperature=1.0)
    with rounded(CPU, torch.bfloat16):
        inside = (hidden @ weight.T).dtype
    found, _ = head_logprobs(hidden, weight, targets, temperature=1.0, dtype=torch.bfloat16)
    assert inside == torch.bfloat16
    assert torch.equal(found, right)


def test_the_heads_gradient_is_rounded_by_no_more_than_its_inputs() -> None:
    torch.manual_seed(0)
    hidden = torch.randn(40, 32, requires_grad=True)
    weight = torch.randn(300, 32, requires_grad=True)
    targets = torch.arange(40)
    right = torch.autograd.grad(
        head_logprobs(hidden, weight, targets, temperature=0.7)[0].sum(), (hidden, weight)
    )
    found = torch.autograd.grad(
        head_logprobs(hidden, weight, targets, temperature=0.7, dtype=torch.bfloat16)[0].sum(),
        (hidden, weight),
    )
    for a, b in zip(found, right, strict=True):
        assert a.dtype == torch.float32
        assert 1e-6 < relative(a, b) < 2**-7  # bfloat16 has 8 significant bits


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_sampler_rounds_as_the_trainer_does(
    build_policy: Callable[..., Policy], architecture: str
) -> None:
    policy = replace(build_policy(architecture=architecture), precision=torch.bfloat16)
    scorer = TokenLogprobs(policy.model, longest_tokens=64, precision=policy.precision)
    engine = InProcessEngine(policy, scorer, cache_megabytes=64, pack_weights=True)
    prompts = random_prompts([5, 11, 3])
    sampling = Sampling(max_new_tokens=20, temperature=1.0)
    flat = [r for group in engine.generate(prompts, sampling, group_size=4, seed=(0,)) for r in group]
    families = families_of(prompts, [flat[i : i + 4] for i in range(0, 12, 4)])
    sampled = np.concatenate([r.sampler_logprobs_T for r in flat])
    with torch.no_grad():
        trained = scorer(families, temperature=1.0)[0].numpy()
        scorer.precision = None
        exact = scorer(families, temperature=1.0)[0].numpy()
    assert np.abs(sampled - trained).mean() < np.abs(sampled - exact).mean()
    assert np.abs(sampled - trained).mean() < 0.02


def test_a_run_says_and_records_what_it_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = groupwise.train(
        {
            "model": {"name": "tiny", "precision": "bfloat16"},
            "rollout": {"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 6},
            "training": {"steps": 2, "learning_rate": 1e-3},
            "run": {"dir": str(tmp_path / "run"), "sinks": ["terminal"], "save_model": False},
        },
        rewards=[lambda completions, **columns: [float(len(c) % 3) for c in completions]],
        train=[{"prompt": "Hello there, how are you?"}, {"prompt": "What is two plus two?"}],
    )
    said = capsys.readouterr().out
    assert "layers compute in bfloat16 over float32 weights" in said
    assert "model.precision: float32 is exact" in said
    [mean] = result.series("precision/gap_abs_mean")
    [largest] = result.series("precision/gap_abs_max")
    assert 0 < mean <= largest < 0.1


def test_weights_in_half_precision_have_no_other_products() -> None:
    with pytest.raises(ConfigError, match=r"model\.precision is float32, but the weights are bfloat16"):
        load({"model": {"dtype": "bfloat16", "precision": "float32"}, "lora": {"rank": 4}})
    policy = load_policy(
        ModelConfig(name="tiny", precision="bfloat16", device="cpu"), lora=None, base=Path(), seed=0
    )
    assert policy.precision == torch.bfloat16
    assert {p.dtype for p in policy.model.parameters()} == {torch.float32}
