import copy
from collections.abc import Callable

import pytest
import torch
from peft import LoraConfig
from peft.tuners.lora.layer import Linear as PeftLinear
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import GemmaConfig, LlamaConfig
from transformers.models.gemma.modeling_gemma import GemmaMLP
from transformers.models.llama.modeling_llama import LlamaMLP

from groupwise.model import gated
from groupwise.model.gated import faster_gates, own_gates
from groupwise.model.load import Policy
from groupwise.model.logprobs import TokenLogprobs


def part_of(kind: type[LlamaMLP] = LlamaMLP, hidden: int = 4, inner: int = 6) -> LlamaMLP:
    torch.manual_seed(0)
    config = LlamaConfig(hidden_size=hidden, intermediate_size=inner, num_attention_heads=1)
    return kind(config)


def with_gradients(part: nn.Module, x: Tensor, grad: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    part.zero_grad()
    result = part(x)
    result.backward(grad)
    gradients = [x.grad, *(p.grad for p in part.parameters())]
    assert all(each is not None for each in gradients)
    return [result.detach(), *(each for each in gradients if each is not None)]


def test_hand_worked() -> None:
    part = part_of(hidden=1, inner=1)
    for layer, weight in ((part.gate_proj, 2.0), (part.up_proj, 3.0), (part.down_proj, 5.0)):
        layer.weight.data.fill_(weight)
    assert faster_gates(part) == [part]
    result, of_x, of_gate, of_up, of_down = with_gradients(part, torch.tensor([[0.5]]), torch.tensor([[1.0]]))
    # gate = 1, up = 1.5, s = sigmoid(1) = 0.7310586: silu = 0.7310586, product 1.0965879, times 5.
    torch.testing.assert_close(result, torch.tensor([[5.4829393]]))
    torch.testing.assert_close(of_down, torch.tensor([[1.0965879]]))
    # d product = 5. d up = 5 * 0.7310586 = 3.6552930, times x: 1.8276465.
    torch.testing.assert_close(of_up, torch.tensor([[1.8276465]]))
    # silu'(1) = s (1 + 1 - s) = 0.7310586 * 1.2689414 = 0.9276705. d gate = 5 * 1.5 * 0.9276705 = 6.9575288, times x.
    torch.testing.assert_close(of_gate, torch.tensor([[3.4787644]]))
    # d x = 2 * 6.9575288 + 3 * 3.6552930.
    torch.testing.assert_close(of_x, torch.tensor([[24.8809366]]))


@pytest.mark.parametrize("shape", [(1, 37, 4), (2, 5, 3, 4), (1, 4)], ids=str)
@pytest.mark.parametrize("size", [1 << 16, 24, 5])
def test_numbers_are_those_of_the_models_own(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], size: int
) -> None:
    monkeypatch.setattr(gated, "_PART_ELEMENTS", size)  # all at once, rows of four, and across rows
    part, draw = part_of(), torch.Generator().manual_seed(1)
    x, grad = 3 * torch.randn(shape, generator=draw), torch.randn(shape, generator=draw)
    own = with_gradients(part, x, grad)
    changed = faster_gates(part)
    for mine, theirs in zip(with_gradients(part, x, grad), own, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-6, atol=2e-6)
    own_gates(changed)
    for again, theirs in zip(with_gradients(part, x, grad), own, strict=True):
        assert torch.equal(again, theirs)


def test_large_numbers_stay_finite() -> None:
    part = part_of()
    faster_gates(part)
    for number in with_gradients(part, torch.tensor([[1e4, -1e4, 1e4, -1e4]]), torch.ones(1, 4)):
        assert number.isfinite().all()


def test_frozen_layers_have_no_gradient_and_pass_it_on() -> None:
    part = part_of()
    part.requires_grad_(False)
    faster_gates(part)
    x = torch.randn(3, 4, requires_grad=True)
    part(x).sum().backward()
    assert x.grad is not None
    assert all(p.grad is None for p in part.parameters())


def test_less_is_kept_for_the_backward_pass() -> None:
    def kept(part: nn.Module) -> int:
        held: dict[int, int] = {}

        def hold(x: Tensor) -> Tensor:
            held[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
            return x

        with torch.autograd.graph.saved_tensors_hooks(hold, lambda x: x):
            result = part(torch.randn(32, 4, requires_grad=True))
        del result
        return sum(held.values())

    part = part_of()
    before = kept(part)
    faster_gates(part)
    assert before - kept(part) == 32 * 6 * 4  # silu(gate)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_are_the_models_own(dtype: torch.dtype) -> None:
    part, x = part_of(), torch.randn(3, 4).to(dtype)
    own = copy.deepcopy(part).to(dtype)(x)
    faster_gates(part)
    part.to(dtype)
    assert torch.equal(part(x), own)


def test_autocast_rounds_as_ever() -> None:
    part, x = part_of(), torch.randn(3, 4)
    with torch.autocast("cpu", torch.bfloat16):
        own = part(x)
        faster_gates(part)
        assert torch.equal(part(x), own)


def test_gradient_checkpointing_computes_it_again() -> None:
    part, draw = part_of(), torch.Generator().manual_seed(1)
    x, grad = torch.randn(5, 4, generator=draw), torch.randn(5, 4, generator=draw)
    faster_gates(part)
    right = with_gradients(part, x, grad)
    again = with_gradients(checkpointed(part), x, grad)
    for mine, theirs in zip(again, right, strict=True):
        assert torch.equal(mine, theirs)


def checkpointed(part: nn.Module) -> nn.Module:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = part

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.part, x, use_reentrant=False)  # type: ignore[no-any-return]

    return Checkpointed()


def test_an_adapter_on_one_layer_alone() -> None:
    part, draw = part_of(), torch.Generator().manual_seed(1)
    part.up_proj = PeftLinear(part.up_proj, "default", LoraConfig(), r=2, lora_alpha=2)
    part.requires_grad_(False)
    part.up_proj.lora_A.requires_grad_(True)
    part.up_proj.lora_B.requires_grad_(True)
    nn.init.normal_(part.up_proj.lora_B["default"].weight, generator=draw)
    x, grad = torch.randn(5, 4, generator=draw), torch.randn(5, 4, generator=draw)

    def gradients() -> list[Tensor]:
        part.zero_grad()
        part(x).backward(grad)
        return [p.grad.clone() for p in part.parameters() if p.grad is not None]

    own = gradients()
    assert faster_gates(part) == [part]
    assert len(own) == 2
    for mine, theirs in zip(gradients(), own, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-6, atol=2e-6)


def test_no_rows_at_all() -> None:
    part = part_of()
    faster_gates(part)
    x = torch.randn(0, 4, requires_grad=True)
    part(x).sum().backward()
    assert x.grad is not None


class ScaledMLP(LlamaMLP):
    """Named alike, with something between the layers."""

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x) * 1.5)


class LimitedMLP(LlamaMLP):
    """Meets its limit with large numbers alone."""

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)).clamp(max=16) * self.up_proj(x))


def with_weights(part: nn.Module, scale: float) -> nn.Module:
    for weight in part.parameters():
        weight.data.mul_(scale)
    return part


def gelu_part() -> nn.Module:
    return GemmaMLP(GemmaConfig(hidden_size=4, intermediate_size=6, num_attention_heads=1))


class RoutedMLP(LlamaMLP):
    """Asks for more."""

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        return super().forward(x) * weight


@pytest.mark.parametrize(
    "part",
    [
        gelu_part(),
        with_weights(gelu_part(), 0.02),
        with_weights(gelu_part(), 0.0),
        with_weights(part_of(), 0.0),
        part_of(LimitedMLP),
        part_of(ScaledMLP),
        part_of(RoutedMLP),
        part_of().double(),
        nn.Linear(4, 4),
    ],
    ids=lambda part: type(part).__name__,
)
def test_what_computes_something_else_is_left_alone(part: nn.Module) -> None:
    assert faster_gates(part) == []
    assert "forward" not in part.__dict__


def test_a_copy_computes_with_its_own_weights() -> None:
    part = part_of()
    faster_gates(part)
    twin, x = copy.deepcopy(part), torch.randn(3, 4)
    twin.down_proj.weight.data.mul_(2)
    assert torch.equal(twin(x), 2 * part(x))


@pytest.mark.parametrize(("architecture", "there"), [("llama", True), ("qwen2", True), ("gpt2", False)])
def test_a_model_that_shares_prompts_has_all_of_them(
    build_policy: Callable[..., Policy], architecture: str, there: bool
) -> None:
    model = build_policy(architecture=architecture).model
    for share_prefix in (False, True):
        TokenLogprobs(model, longest_tokens=64, share_prefix=share_prefix)
        found = [module for module in model.modules() if hasattr(module, "act_fn")]
        assert len(found) == (model.config.num_hidden_layers if architecture != "gpt2" else 0)
        assert all(("forward" in module.__dict__) == (there and share_prefix) for module in found)
