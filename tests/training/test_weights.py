import math

import pytest
import torch

from groupwise.config.training import TrainingConfig
from groupwise.errors import ConfigError, TrainingError
from groupwise.training.weights import Optimizer, learning_rate


def rates(steps: int, **settings: object) -> list[float]:
    config = TrainingConfig.model_validate({"learning_rate": 8.0, **settings})
    return [learning_rate(config, step, steps) for step in range(steps)]


def test_constant_after_a_warm_up_that_wastes_no_step() -> None:
    assert rates(6, warmup_steps=4) == [2.0, 4.0, 6.0, 8.0, 8.0, 8.0]
    assert rates(3) == [8.0, 8.0, 8.0]


def test_linear_falls_to_zero_at_the_end() -> None:
    # 4 steps after the warm-up: 1 - 0/4, 1 - 1/4, ... of 8.
    assert rates(5, schedule="linear", warmup_steps=1) == [8.0, 8.0, 6.0, 4.0, 2.0]


def test_cosine_is_half_way_in_the_middle() -> None:
    found = rates(4, schedule="cosine")
    # 8 * (1 + cos(pi k / 4)) / 2 for k = 0..3
    assert found == pytest.approx([8.0, 4 * (1 + math.sqrt(0.5)), 4.0, 4 * (1 - math.sqrt(0.5))])


def test_decay_is_on_matrices_only() -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = Optimizer(model, TrainingConfig(learning_rate=0.1, weight_decay=0.5))
    before = model.weight.detach().clone(), model.bias.detach().clone()
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    # AdamW with a zero gradient only decays: w (1 - 0.1 * 0.5).
    torch.testing.assert_close(model.weight.detach(), before[0] * 0.95)
    assert torch.equal(model.bias.detach(), before[1])


def test_gradient_norm_and_scale() -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = Optimizer(model, TrainingConfig())
    assert optimizer.gradient_norm() == 0.0
    model.weight.grad = torch.tensor([[3.0, 0.0]])
    model.bias.grad = torch.tensor([4.0])
    assert optimizer.gradient_norm() == pytest.approx(5.0)  # sqrt(9 + 16)
    optimizer.scale_gradient(0.5)
    assert model.bias.grad.tolist() == [2.0]


def test_nothing_to_train_is_an_error() -> None:
    model = torch.nn.Linear(2, 1).requires_grad_(False)
    with pytest.raises(ConfigError, match="no trainable weights"):
        Optimizer(model, TrainingConfig())


@pytest.mark.parametrize("spoilt", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_refused_by_name(spoilt: float) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = Optimizer(model, TrainingConfig())
    optimizer.refuse_not_finite()
    model.bias.data[1] = spoilt
    with pytest.raises(TrainingError, match="in the weights bias"):
        optimizer.refuse_not_finite()


def test_weights_whose_norm_overflows_are_finite_all_the_same() -> None:
    model = torch.nn.Linear(2, 2)
    model.weight.data.fill_(3e38)  # 4 * (3e38)^2 is beyond float32
    Optimizer(model, TrainingConfig()).refuse_not_finite()
