import math
from types import ModuleType
from typing import Any

import pytest
import torch

from groupwise.objective import loss as module
from groupwise.objective.aggregations.sequence_mean import sequence_mean
from groupwise.objective.aggregations.token_mean import token_mean
from groupwise.objective.kl import k3
from groupwise.objective.loss import Objective, policy_loss, sampler_correction
from groupwise.objective.ratios import RATIOS
from groupwise.objective.surrogates.clip import clip

DOUBLE = torch.float64
EACH_ALONE = {"rollout_M": torch.tensor([0, 1]), "rollouts": 2}
"""Two tokens of two rollouts."""


def tensor(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=DOUBLE)


def objective(
    module: ModuleType = module, *, beta: float = 0.0, entropy_bonus: float = 0.0, **more: Any
) -> Objective:
    choices = {"log_ratio": RATIOS["token"], "surrogate": clip, "kl": k3, **more}
    return module.Objective(beta=beta, entropy_bonus=entropy_bonus, **choices)


def hand_worked(module: ModuleType) -> None:
    """Numbers worked by hand; whatever stands in for the module must give them."""
    # Two tokens. Ratios 2 (log 2) and 1; advantages 1 and -1; weights 0.5 and 0.25; corrections 0.5 and 2.
    # Surrogates min(2, 1.2) = 1.2 and -1; times the corrections 0.6 and -2.
    # d = reference - policy = 0 and 1: k3 = 0 and e - 2 = 0.718282; beta 0.1. Entropies 2 and 4; bonus 0.01.
    # 0.5 (-0.6 + 0 - 0.02) + 0.25 (2 + 0.0718282 - 0.04) = -0.31 + 0.507957 = 0.197957
    terms = module.policy_loss(
        objective(module, beta=0.1, entropy_bonus=0.01),
        policy_logprobs_M=tensor([math.log(2.0) - 3.0, -2.0]),
        old_logprobs_M=tensor([-3.0, -2.0]),
        advantages_M=tensor([1.0, -1.0]),
        weights_M=tensor([0.5, 0.25]),
        **EACH_ALONE,
        correction_M=tensor([0.5, 2.0]),
        reference_logprobs_M=tensor([math.log(2.0) - 3.0, -1.0]),
        entropy_M=tensor([2.0, 4.0]),
    )
    torch.testing.assert_close(terms.loss, torch.tensor(0.197957, dtype=DOUBLE), rtol=0, atol=1e-6)
    torch.testing.assert_close(terms.surrogate_M, tensor([1.2, -1.0]), rtol=0, atol=1e-12)
    torch.testing.assert_close(terms.ratio_M, tensor([2.0, 1.0]), rtol=0, atol=1e-12)
    torch.testing.assert_close(terms.kl_M, tensor([0.0, 0.718282]), rtol=0, atol=1e-6)
    # Without correction, leash and bonus: 0.5 x -1.2 + 0.25 x 1 = -0.35
    terms = module.policy_loss(
        objective(module),
        policy_logprobs_M=tensor([math.log(2.0) - 3.0, -2.0]),
        old_logprobs_M=tensor([-3.0, -2.0]),
        advantages_M=tensor([1.0, -1.0]),
        weights_M=tensor([0.5, 0.25]),
        **EACH_ALONE,
    )
    torch.testing.assert_close(terms.loss, torch.tensor(-0.35, dtype=DOUBLE), rtol=0, atol=1e-12)
    assert terms.kl_M is None
    assert terms.kl_capped_M is None
    torch.testing.assert_close(terms.log_ratio_M, tensor([math.log(2.0), 0.0]), rtol=0, atol=1e-12)
    # Two tokens of one rollout, no advantage: d = 1 and 2, k3 = e - 2 = 0.718282 and e^2 - 3 = 4.389056, the second
    # held at 1: sum 1.718282, held at 1.2. Alike in weight, times beta 0.5: 0.5 x 0.5 x 1.2 = 0.3
    held = {"policy_logprobs_M": tensor([-3.0, -3.0]), "old_logprobs_M": tensor([-3.0, -3.0])}
    held |= {"advantages_M": tensor([0.0, 0.0]), "weights_M": tensor([0.5, 0.5])}
    terms = module.policy_loss(
        objective(module, beta=0.5, kl_cap_token=1.0, kl_cap_rollout=1.2),
        **held,
        reference_logprobs_M=tensor([-2.0, -1.0]),
        rollout_M=torch.tensor([0, 0]),
        rollouts=1,
    )
    torch.testing.assert_close(terms.loss, torch.tensor(0.3, dtype=DOUBLE), rtol=1e-12, atol=0)
    assert terms.kl_capped_M.tolist() == [True, True]
    torch.testing.assert_close(
        terms.kl_M, tensor([0.718282, 4.389056]), rtol=0, atol=1e-6
    )  # as it is, uncapped
    for broken in ({"beta": 0.1}, {"entropy_bonus": 0.1}):
        with pytest.raises(ValueError, match=r"no log-probs of a reference|needs the entropy"):
            module.policy_loss(objective(module, **broken), **held, **EACH_ALONE)
    # exp(old - sampler): e^0 = 1; e^log(1.5) = 1.5; e^log(8) = 8 held at 2; e^-log(4) = 0.25; e^1000 held at 2
    got = module.sampler_correction(
        tensor([-1.0, -1.0, -1.0, -1.0, 0.0]),
        tensor([-1.0, -1.0 - math.log(1.5), -1.0 - math.log(8.0), -1.0 + math.log(4.0), -1000.0]),
        cap=2.0,
    )
    torch.testing.assert_close(got, tensor([1.0, 1.5, 2.0, 0.25, 2.0]), rtol=0, atol=1e-12)


def test_hand_worked_numbers() -> None:
    hand_worked(module)


def ratio_one(tokens: list[int], advantages: list[float], weights: list[float]) -> tuple[float, list[float]]:
    """Loss and gradient per token for rollouts whose policy still is the old one."""
    counts = torch.tensor(tokens)
    policy = torch.full((sum(tokens),), -1.5, dtype=DOUBLE, requires_grad=True)
    terms = policy_loss(
        objective(),
        policy_logprobs_M=policy,
        old_logprobs_M=policy.detach(),
        advantages_M=tensor(advantages).repeat_interleave(counts),
        weights_M=tensor(weights).repeat_interleave(counts),
        rollout_M=torch.arange(len(tokens)).repeat_interleave(counts),
        rollouts=len(tokens),
    )
    terms.loss.backward()
    return terms.loss.item(), policy.grad.tolist()


def test_token_mean_divides_by_all_tokens_of_the_batch_once() -> None:
    # Case a01: rollouts of 1, 3, 5, 7 tokens with advantages 1, -1, 1, -1: -(1 - 3 + 5 - 7) / 16 = 0.25.
    # The mean of four means would be 0, a second division by 4 would give 0.0625.
    tokens, advantages = [1, 3, 5, 7], [1.0, -1.0, 1.0, -1.0]
    weights = token_mean(torch.tensor(tokens).numpy()).tolist()
    assert ratio_one(tokens, advantages, weights)[0] == 0.25
    parts = [ratio_one([n], [a], [w])[0] for n, a, w in zip(tokens, advantages, weights, strict=True)]
    assert parts == [-0.0625, 0.1875, -0.3125, 0.4375]
    assert sum(parts) == 0.25


def test_masked_rollouts_leave_the_divisor_too() -> None:
    # Case a03: 4 trained tokens with advantage 1, and 12 that are masked, so not handed over: -1.0, not -0.25.
    weights = token_mean(torch.tensor([4, 0]).numpy()).tolist()
    assert ratio_one([4, 0], [1.0, 5.0], weights)[0] == -1.0
    loss, gradient = ratio_one([0, 0], [1.0, 5.0], token_mean(torch.tensor([0, 0]).numpy()).tolist())
    assert loss == 0.0
    assert gradient == []


def test_every_token_of_a_response_is_trained_the_only_one_too() -> None:
    # Case a10: one token, advantage 1, ratio 1: loss -1 and gradient -1; three tokens: -1/3 at each.
    assert ratio_one([1], [1.0], sequence_mean(torch.tensor([1]).numpy()).tolist()) == (-1.0, [-1.0])
    loss, gradient = ratio_one([3], [1.0], sequence_mean(torch.tensor([3]).numpy()).tolist())
    assert loss == pytest.approx(-1.0, rel=1e-15)
    assert gradient == pytest.approx([-1 / 3] * 3, rel=1e-15)


def test_long_and_short_bad_answers_are_punished_per_token_by_the_choice_of_mean() -> None:
    # Case n07: advantage -1, lengths 2 and 200. Minimising makes the gradient of a token's log-prob +0.25 and +0.0025.
    _, gradient = ratio_one([2, 200], [-1.0, -1.0], sequence_mean(torch.tensor([2, 200]).numpy()).tolist())
    assert (gradient[0], gradient[-1]) == pytest.approx((0.25, 0.0025), rel=1e-12)
    _, gradient = ratio_one([2, 200], [-1.0, -1.0], token_mean(torch.tensor([2, 200]).numpy()).tolist())
    assert gradient[0] == gradient[-1] == pytest.approx(1 / 202, rel=1e-12)


def test_good_answers_become_likelier() -> None:
    _, gradient = ratio_one([1, 1], [2.0, -3.0], [0.5, 0.5])
    assert gradient == [-1.0, 1.5]  # descent raises the first log-prob and lowers the second


def test_the_leash_is_added_and_a_step_shortens_it() -> None:
    # Case a08: one step with no advantage and a large beta lowers the KL.
    reference = torch.log_softmax(tensor([1.0, 0.0, -1.0]), 0)
    logits = tensor([-1.0, 0.5, 1.0]).requires_grad_()

    def kl() -> float:
        policy = torch.log_softmax(logits.detach(), 0)
        return float((policy.exp() * (policy - reference)).sum())

    before = kl()
    policy = torch.log_softmax(logits, 0)
    terms = policy_loss(
        objective(beta=5.0),
        policy_logprobs_M=policy,
        old_logprobs_M=policy.detach(),
        advantages_M=torch.zeros(3, dtype=DOUBLE),
        weights_M=policy.detach().exp(),  # each token as often as the policy draws it
        rollout_M=torch.arange(3),
        rollouts=3,
        reference_logprobs_M=reference,
    )
    assert terms.loss.item() == pytest.approx(5.0 * before, rel=1e-12)
    terms.loss.backward()
    with torch.no_grad():
        logits -= 0.05 * logits.grad
    assert kl() < 0.95 * before


def test_without_beta_a_reference_is_measured_and_changes_nothing() -> None:
    values = {
        "policy_logprobs_M": tensor([-1.0, -2.0]),
        "old_logprobs_M": tensor([-1.1, -2.0]),
        "advantages_M": tensor([1.0, -1.0]),
        "weights_M": tensor([0.5, 0.5]),
        **EACH_ALONE,
    }
    plain = policy_loss(objective(), **values)
    watched = policy_loss(objective(), reference_logprobs_M=tensor([-1.5, -1.0]), **values)
    assert watched.loss.item() == plain.loss.item()
    assert plain.kl_M is None
    torch.testing.assert_close(watched.kl_M, tensor([0.106531, 0.718282]), rtol=0, atol=1e-6)


def test_a_bonus_raises_the_entropy() -> None:
    entropy = tensor([2.0, 4.0]).requires_grad_()
    zero = torch.zeros(2, dtype=DOUBLE)
    terms = policy_loss(
        objective(entropy_bonus=0.1),
        policy_logprobs_M=zero,
        old_logprobs_M=zero,
        advantages_M=zero,
        weights_M=tensor([0.5, 0.5]),
        **EACH_ALONE,
        entropy_M=entropy,
    )
    terms.loss.backward()
    assert terms.loss.item() == pytest.approx(-0.3, rel=1e-12)  # -0.1 x (2 + 4) / 2
    assert entropy.grad.tolist() == [-0.05, -0.05]


def test_everything_but_the_loss_is_detached() -> None:
    policy = tensor([-1.0]).requires_grad_()
    one = tensor([1.0])
    terms = policy_loss(
        objective(beta=0.1),
        policy_logprobs_M=policy,
        old_logprobs_M=policy.detach(),
        advantages_M=one,
        weights_M=one,
        rollout_M=torch.tensor([0]),
        rollouts=1,
        reference_logprobs_M=tensor([-2.0]),
    )
    assert terms.loss.requires_grad
    for tensor_M in (terms.surrogate_M, terms.ratio_M, terms.clamped_M, terms.kl_M):
        assert not tensor_M.requires_grad


def test_the_correction_has_no_gradient_and_never_overflows() -> None:
    old = torch.tensor([0.0, 0.0], requires_grad=True)
    weights = sampler_correction(old, torch.tensor([-1e4, 0.5]), cap=1e30)
    assert not weights.requires_grad
    assert torch.isfinite(weights).all()


def test_not_a_number_reaches_the_loss_and_is_not_hidden() -> None:
    for name in ("policy_logprobs_M", "old_logprobs_M", "advantages_M", "correction_M"):
        values = {
            key: tensor([-1.0, -1.0]) for key in ("policy_logprobs_M", "old_logprobs_M", "advantages_M")
        }
        values |= {"weights_M": tensor([0.5, 0.5]), "correction_M": tensor([1.0, 1.0]), **EACH_ALONE}
        values[name][1] = math.nan
        assert math.isnan(policy_loss(objective(), **values).loss.item()), name
