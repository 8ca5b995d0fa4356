import math
from types import ModuleType

import torch

from groupwise.objective import kl as module
from groupwise.objective.kl import KL_ESTIMATORS, k3

DOUBLE = torch.float64


def hand_worked(module: ModuleType) -> None:
    """Numbers worked by hand; whatever stands in for the module must give them."""
    # Case a08: d = reference - policy = -0.5, 1, 0: e^-0.5 + 0.5 - 1 = 0.106531; e - 1 - 1 = 0.718282; 1 - 0 - 1 = 0
    policy = torch.tensor([-1.0, -2.0, -0.5], dtype=DOUBLE)
    reference = torch.tensor([-1.5, -1.0, -0.5], dtype=DOUBLE)
    got = module.k3(policy, reference)
    torch.testing.assert_close(got, torch.tensor([0.106531, 0.718282, 0.0], dtype=DOUBLE), rtol=0, atol=1e-6)
    assert abs(got.mean().item() - 0.274938) < 1e-6  # (0.106531 + 0.718282 + 0) / 3
    # Far below: d = -40 gives 0 + 40 - 1 = 39. Far above: d = 40 is held at 20: e^20 - 21 = 485165174.41
    got = module.k3(torch.tensor([0.0, -40.0], dtype=DOUBLE), torch.tensor([-40.0, 0.0], dtype=DOUBLE))
    torch.testing.assert_close(got, torch.tensor([39.0, 485165174.409790], dtype=DOUBLE), rtol=1e-12, atol=0)


def test_hand_worked_numbers() -> None:
    hand_worked(module)


def test_the_registry_names_the_function() -> None:
    assert {"k3": k3} == KL_ESTIMATORS
    assert set(module.FORMULAS) == set(KL_ESTIMATORS)


def test_equal_policies_give_exactly_zero_and_it_is_never_negative() -> None:
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float32, DOUBLE):
        policy = -10 * torch.rand(10000, generator=generator, dtype=dtype)
        assert k3(policy, policy).tolist() == [0.0] * 10000
        nudge = 1e-3 * torch.randn(10000, generator=generator, dtype=dtype)
        assert (k3(policy, policy + nudge) >= 0).all()


def test_small_differences_keep_their_digits_in_float32() -> None:
    # d = 2^-10: d^2/2 + d^3/6 = 4.7684e-7 + 1.55e-10 = 4.769923e-7; exp(d) - d - 1 as it stands would lose most digits
    value = k3(torch.tensor([0.0]), torch.tensor([2.0**-10]))
    assert abs(value.item() / 4.769923e-7 - 1) < 1e-3


def distributions() -> tuple[torch.Tensor, torch.Tensor]:
    logits = torch.tensor([0.3, -1.2, 0.9, 0.0], dtype=DOUBLE, requires_grad=True)
    reference = torch.log_softmax(torch.tensor([1.0, 0.2, -0.4, 0.5], dtype=DOUBLE), 0)
    return logits, reference


def test_its_mean_over_the_policy_is_the_kl_exactly() -> None:
    logits, reference = distributions()
    policy = torch.log_softmax(logits, 0)
    mean = (policy.exp() * k3(policy, reference)).sum()
    kl = (policy.exp() * (policy - reference)).sum()
    torch.testing.assert_close(mean, kl, rtol=1e-12, atol=0)


def test_as_a_loss_its_mean_gradient_is_that_of_the_other_direction() -> None:
    # Tokens drawn from the policy, the drawing not differentiated: sum_a pi(a) d k3(a) = d KL(reference || policy).
    logits, reference = distributions()
    policy = torch.log_softmax(logits, 0)
    (got,) = torch.autograd.grad((policy.exp().detach() * k3(policy, reference)).sum(), logits)
    policy = torch.log_softmax(logits, 0)
    (reverse,) = torch.autograd.grad((reference.exp() * (reference - policy)).sum(), logits)
    policy = torch.log_softmax(logits, 0)
    (forward,) = torch.autograd.grad((policy.exp() * (policy - reference)).sum(), logits)
    torch.testing.assert_close(got, reverse, rtol=1e-12, atol=1e-15)
    assert (got - forward).abs().max() > 0.01


def test_the_pull_stays_where_the_policy_leaves_the_reference_far_behind() -> None:
    # d k3 / d policy = 1 - e^d: 1 - e^-0.5 = 0.393469; 1 - e = -1.718282; at d = -40 the pull is 1, at d = 40 held: 0
    policy = torch.tensor([-1.0, -2.0, 0.0, -40.0], dtype=DOUBLE, requires_grad=True)
    k3(policy, torch.tensor([-1.5, -1.0, -40.0, 0.0], dtype=DOUBLE)).sum().backward()
    torch.testing.assert_close(
        policy.grad, torch.tensor([0.393469, -1.718282, 1.0, 0.0], dtype=DOUBLE), rtol=0, atol=1e-6
    )


def test_nothing_overflows_float32() -> None:
    assert torch.isfinite(k3(torch.tensor([0.0, -1e4]), torch.tensor([-1e4, 0.0]))).all()
    assert math.isnan(k3(torch.tensor([math.nan]), torch.tensor([0.0])).item())
