import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from groupwise.model import norms
from groupwise.model.load import Policy
from groupwise.model.logprobs import TokenLogprobs
from groupwise.model.norms import faster_norms, own_norms


def norm_of(size: int = 4) -> LlamaRMSNorm:
    norm = LlamaRMSNorm(size, eps=1e-5)
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    return norm


def with_gradients(norm: nn.Module, x: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
    x = x.clone().requires_grad_()
    norm.zero_grad()
    result = norm(x)
    result.backward(grad)
    assert x.grad is not None
    return result.detach(), x.grad, norm.weight.grad  # type: ignore[return-value]


def test_hand_worked() -> None:
    norm = LlamaRMSNorm(2, eps=1e-12)
    norm.weight.data = torch.tensor([2.0, 1.0])
    assert faster_norms(norm) == [norm]
    result, of_x, of_weight = with_gradients(norm, torch.tensor([[1.0, 7.0]]), torch.tensor([[1.0, 0.0]]))
    # mean of squares (1 + 49) / 2 = 25, scale 1/5: n = [0.2, 1.4], times the weights [0.4, 1.4].
    torch.testing.assert_close(result, torch.tensor([[0.4, 1.4]]))
    # g weight = [2, 0], mean(g weight n) = (2 * 0.2) / 2 = 0.2: ([2, 0] - 0.2 [0.2, 1.4]) / 5 = [0.392, -0.056].
    torch.testing.assert_close(of_x, torch.tensor([[0.392, -0.056]]))
    torch.testing.assert_close(of_weight, torch.tensor([0.2, 0.0]))


@pytest.mark.parametrize("shape", [(1, 37, 12), (2, 5, 3, 12), (1, 12)], ids=str)
@pytest.mark.parametrize("part", [1 << 18, 24, 5])
def test_numbers_are_those_of_the_models_own(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], part: int
) -> None:
    monkeypatch.setattr(norms, "_PART_ELEMENTS", part)  # all rows at once, two and one
    norm, draw = norm_of(12), torch.Generator().manual_seed(1)
    x, grad = torch.randn(shape, generator=draw), torch.randn(shape, generator=draw)
    own = with_gradients(norm, x, grad)
    changed = faster_norms(norm)
    for mine, theirs in zip(with_gradients(norm, x, grad), own, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-6, atol=2e-6)
    own_norms(changed)
    for again, theirs in zip(with_gradients(norm, x, grad), own, strict=True):
        assert torch.equal(again, theirs)


def test_it_is_as_near_to_the_exact_numbers_as_the_models_own() -> None:
    norm, draw = norm_of(64), torch.Generator().manual_seed(2)
    x, grad = (100 * torch.randn(300, 64, generator=draw) for _ in range(2))
    weight = norm.weight.detach().double().requires_grad_()
    y = x.double().requires_grad_()
    (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5) * weight).backward(grad.double())
    own = with_gradients(norm, x, grad)
    faster_norms(norm)
    mine = with_gradients(norm, x, grad)
    for k, exact in enumerate((y.grad, weight.grad), start=1):
        assert exact is not None
        error, of_own = ((each[k] - exact).abs().max() / exact.abs().max() for each in (mine, own))
        assert error <= 2 * of_own + 1e-7


def test_a_frozen_weight_has_no_gradient() -> None:
    norm = norm_of()
    norm.weight.requires_grad_(False)
    faster_norms(norm)
    x = torch.randn(3, 4, requires_grad=True)
    norm(x).sum().backward()
    assert norm.weight.grad is None
    assert x.grad is not None


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_are_the_models_own(dtype: torch.dtype) -> None:
    norm, x = norm_of(), torch.randn(3, 4).to(dtype)
    own = norm(x)
    faster_norms(norm)
    assert torch.equal(norm(x), own)
    norm.to(dtype)
    assert norm(x).dtype is dtype


class CentredRMSNorm(LlamaRMSNorm):
    """Named so, and takes the mean off."""

    def forward(self, hidden_states: Tensor) -> Tensor:
        return super().forward(hidden_states - hidden_states.mean(-1, keepdim=True))


class OutsideRMSNorm(LlamaRMSNorm):
    """Adds eps to the root."""

    def forward(self, hidden_states: Tensor) -> Tensor:
        root = hidden_states.pow(2).mean(-1, keepdim=True).sqrt()
        return self.weight * hidden_states / (root + self.variance_epsilon)


class WeightFirstRMSNorm(LlamaRMSNorm):
    """The same as long as all weights are 1."""

    def forward(self, hidden_states: Tensor) -> Tensor:
        return nn.functional.rms_norm(
            self.weight * hidden_states, self.weight.shape, eps=self.variance_epsilon
        )


class GatedRMSNorm(LlamaRMSNorm):
    """Asks for more."""

    def forward(self, hidden_states: Tensor, gate: Tensor) -> Tensor:
        return super().forward(hidden_states) * gate


@pytest.mark.parametrize(
    "norm",
    [
        Gemma3RMSNorm(4),
        CentredRMSNorm(4),
        OutsideRMSNorm(4),
        WeightFirstRMSNorm(4),
        GatedRMSNorm(4),
        nn.LayerNorm(4),
        norm_of().double(),
    ],
    ids=lambda norm: type(norm).__name__,
)
def test_what_computes_something_else_is_left_alone(norm: nn.Module) -> None:
    assert faster_norms(norm) == []
    assert "forward" not in norm.__dict__


def test_a_copy_computes_with_its_own_weight() -> None:
    norm = norm_of()
    faster_norms(norm)
    twin, x = copy.deepcopy(norm), torch.randn(3, 4)
    twin.weight.data.mul_(2)
    assert torch.equal(twin(x), 2 * norm(x))


@pytest.mark.parametrize(("architecture", "count"), [("llama", 2), ("qwen2", 2), ("gpt2", 0)])
def test_a_model_that_shares_prompts_has_all_of_them(
    build_policy: Callable[..., Policy], architecture: str, count: int
) -> None:
    model = build_policy(architecture=architecture).model
    for share_prefix, there in ((False, False), (True, True)):
        scorer = TokenLogprobs(model, longest_tokens=64, share_prefix=share_prefix)
        found = [
            module
            for module in model.modules()
            if "forward" in module.__dict__ and type(module).__name__.endswith("RMSNorm")
        ]
        layers = model.config.num_hidden_layers
        assert len(found) == (count * layers + (count > 0) if there and scorer.shared else 0)
