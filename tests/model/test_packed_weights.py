from collections.abc import Callable

import pytest
import torch

from groupwise.model import packed_weights
from groupwise.model.load import Policy
from groupwise.model.packed_weights import available, packed_linears

needed = pytest.mark.skipif(not available(), reason="this build of torch has no prepacked linear layers")


@needed
@pytest.mark.parametrize("rows", [1, 7, 64])
def test_packed_layers_compute_the_same_and_come_back(build_policy: Callable[..., Policy], rows: int) -> None:
    model = build_policy(architecture="qwen2").model  # with biases
    ids = torch.arange(3, 3 + rows)[None] % 300
    linears = [m for m in model.modules() if type(m) is torch.nn.Linear]
    with torch.inference_mode():
        plain = model(input_ids=ids).logits
        with packed_linears(model, rows) as count:
            assert count == len(linears)
            assert all("forward" in vars(m) for m in linears)
            packed = model(input_ids=ids).logits
        again = model(input_ids=ids).logits
    assert (packed - plain).abs().max() < 1e-4
    assert torch.equal(again, plain)


@needed
def test_new_weights_are_packed_anew(policy: Policy) -> None:
    ids = torch.tensor([[5, 6, 7]])
    with torch.inference_mode(), packed_linears(policy.model, 3):
        before = policy.model(input_ids=ids).logits
    with torch.no_grad():
        policy.model.get_output_embeddings().weight.mul_(2.0)
    with torch.inference_mode():
        plain = policy.model(input_ids=ids).logits
        with packed_linears(policy.model, 3):
            after = policy.model(input_ids=ids).logits
    assert (after - plain).abs().max() < 1e-4
    assert (after - before).abs().max() > 1e-2


@needed
def test_layers_come_back_after_an_exception(policy: Policy) -> None:
    def inside() -> None:
        with packed_linears(policy.model, 4):
            raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        inside()
    assert all("forward" not in vars(m) for m in policy.model.modules())


def test_other_types_and_builds_are_left_alone(
    policy: Policy, build_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    with packed_linears(build_policy(dtype=torch.float64).model, 4) as count:
        assert count == 0
    monkeypatch.setattr(packed_weights, "available", lambda: False)
    with packed_linears(policy.model, 4) as count:
        assert count == 0
