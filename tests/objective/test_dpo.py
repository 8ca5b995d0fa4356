import math
from types import ModuleType

import pytest
import torch

from groupwise.objective import dpo


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def hand_worked(module: ModuleType) -> None:
    # Log-ratios: chosen -10 - -12 = 2 and -20 - -19 = -1; rejected -15 - -14 = -1 and -8 - -11 = 3.
    # Apart: 2 - -1 = 3 and -1 - 3 = -4. With beta 0.5 the margins are 1.5 and -2.
    # log(1 + e^-1.5) = log(1.22313016) = 0.20141328;  log(1 + e^2) = log(8.38905610) = 2.12692801.
    given = (tensor(-10, -20), tensor(-15, -8), tensor(-12, -19), tensor(-14, -11))
    terms = module.dpo(*given, beta=0.5)
    assert terms.loss_P.tolist() == pytest.approx([0.20141328, 2.12692801], abs=1e-8)
    assert terms.chosen_reward_P.tolist() == [1.0, -0.5]
    assert terms.rejected_reward_P.tolist() == [-0.5, 1.5]
    assert terms.right_P.tolist() == [1.0, 0.0]
    # Smoothed by 0.2: 0.8 x 0.20141328 + 0.2 x log(1 + e^1.5) = 0.8 x 0.20141328 + 0.2 x 1.70141328 = 0.50141328;
    # 0.8 x 2.12692801 + 0.2 x log(1 + e^-2) = 1.70154241 + 0.2 x 0.12692801 = 1.72692801.
    smoothed = module.dpo(*given, beta=0.5, label_smoothing=0.2)
    assert smoothed.loss_P.tolist() == pytest.approx([0.50141328, 1.72692801], abs=1e-8)
    # Ties: 5e-5 apart either way is one, 2e-4 is none.
    near = module.dpo(
        tensor(5e-5, -5e-5, 2e-4, -2e-4), tensor(0, 0, 0, 0), tensor(0, 0, 0, 0), tensor(0, 0, 0, 0)
    )
    assert near.right_P.tolist() == [0.5, 0.5, 1.0, 0.0]


def test_hand_worked() -> None:
    hand_worked(dpo)


def test_the_reference_itself_has_loss_log_two_and_half_the_gradient() -> None:
    chosen, rejected = tensor(-3).requires_grad_(), tensor(-7).requires_grad_()
    terms = dpo.dpo(chosen, rejected, tensor(-3), tensor(-7), beta=0.3)
    terms.loss_P.sum().backward()
    assert terms.loss_P.item() == pytest.approx(math.log(2), abs=1e-15)
    assert terms.right_P.item() == 0.5
    # d/dm of -log sigmoid(m) at 0 is -1/2, times beta.
    assert chosen.grad is not None
    assert rejected.grad is not None
    assert chosen.grad.item() == pytest.approx(-0.15, abs=1e-15)
    assert rejected.grad.item() == pytest.approx(0.15, abs=1e-15)


def reference(c: float, r: float, rc: float, rr: float, beta: float, s: float) -> float:
    m = beta * ((c - rc) - (r - rr))
    return -(1 - s) * math.log(1 / (1 + math.exp(-m))) - s * math.log(1 / (1 + math.exp(m)))


@pytest.mark.parametrize("beta", [0.05, 0.1, 1.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.49])
def test_it_is_what_plain_python_says_gradient_included(beta: float, smoothing: float) -> None:
    generator = torch.Generator().manual_seed(3)
    values = -torch.rand(4, 6, generator=generator, dtype=torch.float64) * 20
    chosen, rejected = values[0].clone().requires_grad_(), values[1].clone().requires_grad_()
    terms = dpo.dpo(chosen, rejected, values[2], values[3], beta=beta, label_smoothing=smoothing)
    terms.loss_P.sum().backward()
    assert chosen.grad is not None
    h = 1e-6
    for i in range(6):
        c, r, rc, rr = (float(values[k, i]) for k in range(4))
        assert terms.loss_P[i].item() == pytest.approx(reference(c, r, rc, rr, beta, smoothing), rel=1e-12)
        numeric = (
            reference(c + h, r, rc, rr, beta, smoothing) - reference(c - h, r, rc, rr, beta, smoothing)
        ) / (2 * h)
        assert chosen.grad[i].item() == pytest.approx(numeric, abs=1e-8)


def test_far_apart_nothing_overflows() -> None:
    chosen = torch.tensor([-5000.0, 5000.0], requires_grad=True)
    terms = dpo.dpo(chosen, torch.zeros(2), torch.zeros(2), torch.zeros(2), beta=1.0)
    terms.loss_P.sum().backward()
    assert terms.loss_P.tolist() == [5000.0, 0.0]
    assert chosen.grad is not None
    assert chosen.grad.tolist() == [-1.0, 0.0]


def test_what_only_the_reference_and_the_order_decide() -> None:
    """Adding the same to policy and reference changes nothing, and exchanging the sides turns the margin round."""
    values = [tensor(-1, -4), tensor(-2, -3), tensor(-1.5, -2), tensor(-3, -5)]
    plain = dpo.dpo(*values)
    moved = dpo.dpo(values[0] + 7, values[1] - 3, values[2] + 7, values[3] - 3)
    assert moved.loss_P.tolist() == pytest.approx(plain.loss_P.tolist(), rel=1e-12)
    turned = dpo.dpo(values[1], values[0], values[3], values[2])
    assert turned.chosen_reward_P.tolist() == plain.rejected_reward_P.tolist()
    assert (turned.right_P + plain.right_P).tolist() == [1.0, 1.0]
