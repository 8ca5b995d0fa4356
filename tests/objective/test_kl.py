import math
from types import ModuleType

import torch

from groupwise.objective import kl as module
from groupwise.objective.kl import KL_ESTIMATORS, capped, k3

DOUBLE = torch.float64


def hand_worked(module: ModuleType) -> None:
    """Numbers worked by hand; whatever stands in for the module must give them."""
    # Case a08: d = reference - policy = -0.5, 1, 0: e^-0.5 + 0.5 - 1 = 0.106531; e - 1 - 1 = 0.718282; 1 - 0 - 1 = 0
    policy = torch.tensor([-1.0, -2.0, -0.5], dtype=DOUBLE)
    reference = torch.tensor([-1.5, -1.0, -0.5], dtype=DOUBLE)
    got = module.k3(policy, reference, policy)
    torch.testing.assert_close(got, torch.tensor([0.106531, 0.718282, 0.0], dtype=DOUBLE), rtol=0, atol=1e-6)
    assert abs(got.mean().item() - 0.274938) < 1e-6  # (0.106531 + 0.718282 + 0) / 3
    # Far below: d = -40 gives 0 + 40 - 1 = 39. Far above: d = 40 is held at 20: e^20 - 21 = 485165174.41
    apart = torch.tensor([0.0, -40.0], dtype=DOUBLE), torch.tensor([-40.0, 0.0], dtype=DOUBLE)
    got = module.k3(*apart, apart[0])
    torch.testing.assert_close(got, torch.tensor([39.0, 485165174.409790], dtype=DOUBLE), rtol=1e-12, atol=0)
    # k1 = policy - reference = 0.5, -1, 0; k2 = 0.25 / 2, 1 / 2, 0; k3 times ratios 2, 0.5, 3
    ratio = torch.tensor([2.0, 0.5, 3.0], dtype=DOUBLE)
    assert module.k1(policy, reference, ratio).tolist() == [0.5, -1.0, 0.0]
    assert module.k2(policy, reference, ratio).tolist() == [0.125, 0.5, 0.0]
    got = module.k3_ratio(policy, reference, ratio)
    torch.testing.assert_close(got, torch.tensor([0.213061, 0.359141, 0.0], dtype=DOUBLE), rtol=0, atol=1e-6)
    # Caps. Tokens 3, 0.5 | 1, 1.5 | none | 2: held at 2 per token, the first is; then sums 2.5, 2.5, 2 at 2.4 each:
    # the first two rollouts are scaled by 2.4 / 2.5 = 0.96
    kl = torch.tensor([3.0, 0.5, 1.0, 1.5, 2.0], dtype=DOUBLE)
    rollout = torch.tensor([0, 0, 1, 1, 3])
    for caps, expected, bit in (
        ((None, None), [3.0, 0.5, 1.0, 1.5, 2.0], [0, 0, 0, 0, 0]),
        ((2.0, None), [2.0, 0.5, 1.0, 1.5, 2.0], [1, 0, 0, 0, 0]),
        ((2.0, 2.4), [1.92, 0.48, 0.96, 1.44, 2.0], [1, 1, 1, 1, 0]),
        ((None, 2.5), [3.0 * 2.5 / 3.5, 0.5 * 2.5 / 3.5, 1.0, 1.5, 2.0], [1, 1, 0, 0, 0]),
        # Held at 1.2 per token: sums 1.7, which stays, and 1 + 1.2 = 2.2, scaled by 1.8 / 2.2
        ((1.2, 1.8), [1.2, 0.5, 1.8 / 2.2, 1.2 * 1.8 / 2.2, 1.2], [1, 0, 1, 1, 1]),
    ):
        got, held = module.capped(kl, rollout, 4, token=caps[0], rollout=caps[1])
        torch.testing.assert_close(got, torch.tensor(expected, dtype=DOUBLE), rtol=1e-12, atol=0)
        assert held.tolist() == [bool(b) for b in bit]


def test_hand_worked_numbers() -> None:
    hand_worked(module)


def test_the_registry_names_the_function() -> None:
    assert KL_ESTIMATORS["k3"] is k3
    assert set(module.FORMULAS) == set(KL_ESTIMATORS)


def test_equal_policies_give_exactly_zero_and_it_is_never_negative() -> None:
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float32, DOUBLE):
        policy = -10 * torch.rand(10000, generator=generator, dtype=dtype)
        assert k3(policy, policy, policy).tolist() == [0.0] * 10000
        nudge = 1e-3 * torch.randn(10000, generator=generator, dtype=dtype)
        assert (k3(policy, policy + nudge, policy) >= 0).all()


def test_small_differences_keep_their_digits_in_float32() -> None:
    # d = 2^-10: d^2/2 + d^3/6 = 4.7684e-7 + 1.55e-10 = 4.769923e-7; exp(d) - d - 1 as it stands would lose most digits
    value = k3(torch.tensor([0.0]), torch.tensor([2.0**-10]), torch.ones(1))
    assert abs(value.item() / 4.769923e-7 - 1) < 1e-3


def test_the_pull_stays_where_the_policy_leaves_the_reference_far_behind() -> None:
    # d k3 / d policy = 1 - e^d: 1 - e^-0.5 = 0.393469; 1 - e = -1.718282; at d = -40 the pull is 1, at d = 40 held: 0
    policy = torch.tensor([-1.0, -2.0, 0.0, -40.0], dtype=DOUBLE, requires_grad=True)
    k3(policy, torch.tensor([-1.5, -1.0, -40.0, 0.0], dtype=DOUBLE), policy).sum().backward()
    torch.testing.assert_close(
        policy.grad, torch.tensor([0.393469, -1.718282, 1.0, 0.0], dtype=DOUBLE), rtol=0, atol=1e-6
    )


def test_nothing_overflows_float32() -> None:
    assert torch.isfinite(k3(torch.tensor([0.0, -1e4]), torch.tensor([-1e4, 0.0]), torch.ones(2))).all()
    assert math.isnan(k3(torch.tensor([math.nan]), torch.tensor([0.0]), torch.ones(1)).item())


def test_a_cap_lets_go_where_it_bites_and_nowhere_else() -> None:
    rollout = torch.tensor([0, 0, 1])
    for caps, expected in (
        ({"token": 2.0, "rollout": None}, [0.0, 1.0, 1.0]),
        ({"token": None, "rollout": 3.0}, [0.0, 0.0, 1.0]),
        ({"token": 2.0, "rollout": 2.2}, [0.0, 0.0, 1.0]),
    ):
        kl = torch.tensor([3.0, 0.5, 1.0], dtype=DOUBLE, requires_grad=True)
        capped(kl, rollout, 2, **caps)[0].sum().backward()
        assert kl.grad.tolist() == expected
    # Negative sums of k1 are below any cap.
    kl = torch.tensor([-9.0, 1.0], dtype=DOUBLE)
    assert capped(kl, torch.tensor([0, 0]), 1, token=2.0, rollout=0.5)[0].tolist() == [-9.0, 1.0]
