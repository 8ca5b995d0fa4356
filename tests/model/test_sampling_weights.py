from collections.abc import Callable

import pytest
import torch
from peft.tuners.lora import LoraLayer

from groupwise.config.model import LoraConfig
from groupwise.model import sampling_weights as module
from groupwise.model.load import Policy
from groupwise.model.lora import attach, reference_weights
from groupwise.model.sampling_weights import SamplingWeights, can_pack

needed = pytest.mark.skipif(
    not can_pack(torch.float32), reason="this build of torch has no prepacked linear layers"
)


@needed
@pytest.mark.parametrize("rows", [1, 7, 64])
def test_packed_layers_compute_the_same_and_come_back(build_policy: Callable[..., Policy], rows: int) -> None:
    model = build_policy(architecture="qwen2").model  # with biases
    ids = torch.arange(3, 3 + rows)[None] % 300
    linears = [m for m in model.modules() if type(m) is torch.nn.Linear]
    with torch.inference_mode():
        plain = model(input_ids=ids).logits
        with SamplingWeights(model).laid_out(rows=rows) as count:
            assert count == len(linears)
            assert all("forward" in vars(m) for m in linears)
            packed = model(input_ids=ids).logits
        again = model(input_ids=ids).logits
    assert (packed - plain).abs().max() < 1e-4
    assert torch.equal(again, plain)


@needed
def test_new_weights_are_packed_anew(policy: Policy) -> None:
    ids = torch.tensor([[5, 6, 7]])
    with torch.inference_mode(), SamplingWeights(policy.model).laid_out(rows=3):
        before = policy.model(input_ids=ids).logits
    with torch.no_grad():
        policy.model.get_output_embeddings().weight.mul_(2.0)
    with torch.inference_mode():
        plain = policy.model(input_ids=ids).logits
        with SamplingWeights(policy.model).laid_out(rows=3):
            after = policy.model(input_ids=ids).logits
    assert (after - plain).abs().max() < 1e-4
    assert (after - before).abs().max() > 1e-2


@needed
def test_copies_are_kept_while_the_weights_are_the_same(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    inner = torch.ops.mkldnn._reorder_linear_weight

    def counted(weight: torch.Tensor, rows: int) -> torch.Tensor:
        made.append(rows)
        return inner(weight, rows)

    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", counted)
    weights, ids = SamplingWeights(policy.model), torch.tensor([[5, 6, 7]])

    def made_for(rows: int, *, keep: bool = True) -> int:
        made.clear()
        with torch.inference_mode(), weights.laid_out(rows=rows, keep=keep):
            packed = policy.model(input_ids=ids).logits
        with torch.inference_mode():
            assert (policy.model(input_ids=ids).logits - packed).abs().max() < 1e-4
        return len(made)

    layers = sum(type(m) is torch.nn.Linear for m in policy.model.modules())
    assert [made_for(5), made_for(6), made_for(40), made_for(40)] == [layers, 0, layers, 0]
    with torch.no_grad():
        next(policy.model.parameters()).mul_(1.5)
    assert [made_for(40), made_for(40)] == [layers, 0]
    weights.let_go()
    assert [made_for(40), made_for(40, keep=False), made_for(40, keep=False)] == [layers] * 3


@needed
def test_layers_come_back_after_an_exception(policy: Policy) -> None:
    def inside() -> None:
        with SamplingWeights(policy.model).laid_out(rows=4):
            raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        inside()
    assert all("forward" not in vars(m) for m in policy.model.modules())


def test_other_types_and_builds_are_left_alone(
    policy: Policy, build_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    with SamplingWeights(build_policy(dtype=torch.float64).model).laid_out(rows=4) as count:
        assert count == 0
    monkeypatch.setattr(module, "can_pack", lambda dtype: False)
    with SamplingWeights(policy.model).laid_out(rows=4) as count:
        assert count == 0


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
@pytest.mark.parametrize("rows", [None, 8])
def test_an_adapter_is_merged_into_copies_and_the_base_stays(policy: Policy, rows: int | None) -> None:
    # Case h04: bit equal before and after any number of merges.
    model = attach(policy.model, LoraConfig(rank=4), seed=0).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1, generator=torch.Generator().manual_seed(1))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    ids = torch.tensor([[5, 6, 7]])
    calls: list[int] = []
    inner = next(m for name, m in model.named_modules() if name.endswith("lora_A.default"))
    inner.register_forward_hook(lambda *_: calls.append(1))
    with torch.inference_mode():
        plain = model(input_ids=ids).logits
        assert len(calls) == 1
        for _ in range(20):
            with SamplingWeights(model).laid_out(rows=rows) as count:
                merged = model(input_ids=ids).logits
        assert len(calls) == 1, "inside, the adapter's own products are not computed"
        with reference_weights(model), SamplingWeights(model).laid_out(rows=None) as off:
            reference = model(input_ids=ids).logits
        with reference_weights(model):
            base = model(input_ids=ids).logits
        again = model(input_ids=ids).logits
    adapted = sum(isinstance(m, LoraLayer) for m in model.modules())
    heads = 1 if rows and can_pack(torch.float32) else 0
    assert count == adapted + heads
    assert off == 0, "an adapter that is off is not merged"
    assert (merged - plain).abs().max() < 1e-4
    assert (reference - base).abs().max() == 0
    assert (plain - base).abs().max() > 1e-2
    assert torch.equal(again, plain)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_a_base_in_half_precision_is_not_merged(build_policy: Callable[..., Policy]) -> None:
    model = attach(build_policy(dtype=torch.bfloat16).model, LoraConfig(rank=4), seed=0)
    with SamplingWeights(model).laid_out(rows=None) as count:
        assert count == 0
