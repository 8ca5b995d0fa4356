from types import ModuleType

import torch

from groupwise.objective.surrogates import cispo as module
from groupwise.objective.surrogates.cispo import cispo, outside

DOUBLE = torch.float64


def tensor(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=DOUBLE)


def hand_worked(module: ModuleType) -> None:
    """Numbers worked by hand; whatever stands in for the module must give them."""
    ratio, advantages, policy = tensor([0.5, 2.0, 9.0]), tensor([1.0, -3.0, 2.0]), tensor([-1.0, -2.0, -0.5])
    # 0.5 x 1 x -1; 2 x -3 x -2; min(9, 5) x 2 x -0.5
    got = module.cispo(ratio, advantages, policy)
    torch.testing.assert_close(got, tensor([-0.5, 12.0, -5.0]), rtol=0, atol=1e-15)
    # Held at 1.5: 0.5 stays; 1.5 x -3 x -2 = 9; 1.5 x 2 x -0.5 = -1.5
    got = module.cispo(ratio, advantages, policy, bound=1.5)
    torch.testing.assert_close(got, tensor([-0.5, 9.0, -1.5]), rtol=0, atol=1e-15)
    low, high = module.outside(
        tensor([0.1, 2.0, 2.0, 2.0, 1.4]), tensor([1.0, 1.0, -1.0, 0.0, 1.0]), bound=1.5
    )
    assert low.tolist() == [False] * 5
    assert high.tolist() == [False, True, True, False, False]
    assert module.width(bound=1.5) == 0.5


def test_hand_worked_numbers() -> None:
    hand_worked(module)


def test_a_token_outside_the_bound_keeps_its_gradient() -> None:
    # d/d policy is min(rho, bound) A; the ratio itself passes no gradient on.
    policy = tensor([-1.0, -2.0, -0.5]).requires_grad_()
    ratio = tensor([0.5, 2.0, 9.0]).requires_grad_()
    cispo(ratio, tensor([1.0, -3.0, 2.0]), policy, bound=1.5).sum().backward()
    assert policy.grad.tolist() == [0.5, -4.5, 3.0]
    assert ratio.grad is None


def test_no_advantage_gives_nothing() -> None:
    assert cispo(tensor([3.0]), tensor([0.0]), tensor([-1.0])).item() == 0.0
    assert not outside(tensor([9.0]), tensor([0.0]), bound=5.0)[1].item()
