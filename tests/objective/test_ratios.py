import math
from types import ModuleType

import torch

from groupwise.objective import ratios as module
from groupwise.objective.ratios import RATIOS, ratio


def hand_worked(module: ModuleType) -> None:
    """Numbers worked by hand; whatever stands in for the module must give them."""
    log_ratio = torch.tensor([0.0, math.log(2.0), -math.log(4.0), 25.0, -25.0, 20.0], dtype=torch.float64)
    rollout = torch.tensor([0, 0, 1, 1, 1, 3])
    assert module.RATIOS["token"](log_ratio, rollout, 4).tolist() == log_ratio.tolist()
    # Three rollouts of three, two and one tokens, and one between them that has none:
    # sums 0.1 + 0.2 - 0.6 = -0.3; 1 + 2 = 3; 5. Means -0.1; 1.5; 5.
    three = torch.tensor([0.1, 0.2, -0.6, 1.0, 2.0, 5.0], dtype=torch.float64)
    rollout = torch.tensor([0, 0, 0, 1, 1, 3])
    torch.testing.assert_close(
        module.RATIOS["sequence_product"](three, rollout, 4),
        torch.tensor([-0.3, -0.3, -0.3, 3.0, 3.0, 5.0], dtype=torch.float64),
    )
    torch.testing.assert_close(
        module.RATIOS["sequence_geometric"](three, rollout, 4),
        torch.tensor([-0.1, -0.1, -0.1, 1.5, 1.5, 5.0], dtype=torch.float64),
    )
    rho, clamped = module.ratio(log_ratio)
    # e^0 = 1; 2; 1/4; e^20 = 485165195.4; e^-20 = 2.0611536e-9; 20 itself is not beyond 20
    expected = torch.tensor(
        [1.0, 2.0, 0.25, 485165195.409790, 2.061153622e-9, 485165195.409790], dtype=torch.float64
    )
    torch.testing.assert_close(rho, expected, rtol=1e-9, atol=0)
    assert clamped.tolist() == [False, False, False, True, True, False]


def test_hand_worked_numbers() -> None:
    hand_worked(module)


def test_equal_log_probs_give_a_ratio_of_exactly_one() -> None:
    logprobs = torch.tensor([-0.1, -30.0, -1e-7])
    assert ratio(logprobs - logprobs)[0].tolist() == [1.0, 1.0, 1.0]


def test_the_gradient_is_the_ratio_itself_and_nothing_where_clamped() -> None:
    log_ratio = torch.tensor([0.0, math.log(2.0), 25.0, -25.0], dtype=torch.float64, requires_grad=True)
    rho, clamped = ratio(RATIOS["token"](log_ratio, torch.zeros(4, dtype=torch.long), 1))
    rho.sum().backward()
    torch.testing.assert_close(log_ratio.grad, torch.tensor([1.0, 2.0, 0.0, 0.0], dtype=torch.float64))
    assert not clamped.requires_grad


def test_a_sequence_ratio_reaches_every_token_of_its_rollout_and_no_other() -> None:
    # d rho / d log_ratio_t is rho for the product and rho / T for the mean, at each of the T tokens.
    rollout = torch.tensor([0, 0, 1])
    for name, expected in (
        ("sequence_product", [6.0, 6.0, 0.0]),
        ("sequence_geometric", [6**0.5 / 2] * 2 + [0.0]),
    ):
        log_ratio = torch.tensor([math.log(2.0), math.log(3.0), 1.0], dtype=torch.float64, requires_grad=True)
        ratio(RATIOS[name](log_ratio, rollout, 2))[0][0].backward()
        torch.testing.assert_close(log_ratio.grad, torch.tensor(expected, dtype=torch.float64))


def test_every_ratio_has_a_formula() -> None:
    assert set(module.FORMULAS) == set(RATIOS)


def test_no_log_ratio_overflows_float32() -> None:
    rho, clamped = ratio(torch.tensor([1e4, -1e4, math.inf, -math.inf]))
    assert torch.isfinite(rho).all()
    assert clamped.all()


def test_nan_stays_nan_for_the_loss_to_find() -> None:
    assert math.isnan(ratio(torch.tensor([math.nan]))[0].item())
