"""The truncated importance weight against exact expectations over a tiny vocabulary."""

import itertools

import numpy as np
import pytest
import torch

from groupwise.objective.loss import sampler_correction

POLICY = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
SAMPLER = torch.tensor([0.2, 0.4, 0.3, 0.1], dtype=torch.float64)
REWARD = torch.tensor([1.0, -0.5, 0.25, 2.0], dtype=torch.float64)


def gradient(weights: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
    """Sum over tokens of drawn * weight * reward * d log p(token) / d logits, at the policy's logits."""
    logits = POLICY.log().clone().requires_grad_()
    ((drawn * weights * REWARD) * logits.log_softmax(-1)).sum().backward()
    assert logits.grad is not None
    return logits.grad


def test_without_a_cap_that_bites_the_gradient_is_the_on_policy_one() -> None:
    """Sum_v q_v (p_v / q_v) r_v grad log p_v = sum_v p_v r_v grad log p_v, exactly."""
    weights = sampler_correction(POLICY.log(), SAMPLER.log(), cap=10.0)
    np.testing.assert_allclose(gradient(weights, SAMPLER), gradient(torch.ones(4), POLICY), atol=1e-12)


def test_a_cap_is_a_policy_that_gains_less_from_what_the_sampler_neglects() -> None:
    """p/q = 2.5, 0.75, 0.5, 0.5 capped at 2: the expectation is that of min(p, 2q) = 0.4, 0.3, 0.15, 0.05."""
    weights = sampler_correction(POLICY.log(), SAMPLER.log(), cap=2.0)
    np.testing.assert_allclose(weights, [2.0, 0.75, 0.5, 0.5], atol=1e-12)
    reached = torch.tensor([0.4, 0.3, 0.15, 0.05], dtype=torch.float64)
    np.testing.assert_allclose(gradient(weights, SAMPLER), gradient(torch.ones(4), reached), atol=1e-12)


@pytest.mark.parametrize("cap", [1.0, 2.0, 10.0])
def test_over_all_responses_of_two_tokens(cap: float) -> None:
    """Weights per token: the expectation over all 16 responses of the sampler, each token with its own weight, is that
    of the capped policy at each place, since places are independent here."""
    weight = sampler_correction(POLICY.log(), SAMPLER.log(), cap=cap)
    total = torch.zeros(4, dtype=torch.float64)
    for a, b in itertools.product(range(4), repeat=2):
        drawn = torch.zeros(4, dtype=torch.float64)
        drawn[a] += 1
        drawn[b] += 1
        total += SAMPLER[a] * SAMPLER[b] * gradient(weight, drawn)
    capped = torch.minimum(POLICY, cap * SAMPLER)
    np.testing.assert_allclose(total, 2 * gradient(torch.ones(4), capped), atol=1e-12)
