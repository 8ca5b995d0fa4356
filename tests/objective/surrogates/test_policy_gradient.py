from types import ModuleType

import torch

from groupwise.objective.surrogates import policy_gradient as module
from groupwise.objective.surrogates.policy_gradient import policy_gradient

DOUBLE = torch.float64


def tensor(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=DOUBLE)


def hand_worked(module: ModuleType) -> None:
    """Numbers worked by hand; whatever stands in for the module must give them."""
    ratio, advantages, policy = tensor([0.5, 2.0]), tensor([2.0, -3.0]), tensor([-1.0, -4.0])
    # -1 x 2, -4 x -3; with the ratio 0.5 x 2, 2 x -3
    assert module.policy_gradient(ratio, advantages, policy).tolist() == [-2.0, 12.0]
    assert module.policy_gradient(ratio, advantages, policy, weight="logprob").tolist() == [-2.0, 12.0]
    assert module.policy_gradient(ratio, advantages, policy, weight="ratio").tolist() == [1.0, -6.0]


def test_hand_worked_numbers() -> None:
    hand_worked(module)


def test_both_have_the_same_gradient_while_the_policy_is_the_old_one() -> None:
    gradients = []
    for weight in ("logprob", "ratio"):
        policy = tensor([-1.0, -4.0]).requires_grad_()
        ratio = (policy - policy.detach()).exp()
        policy_gradient(ratio, tensor([2.0, -3.0]), policy, weight=weight).sum().backward()
        gradients.append(policy.grad.tolist())
    assert gradients == [[2.0, -3.0], [2.0, -3.0]]
