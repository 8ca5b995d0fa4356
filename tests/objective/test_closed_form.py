"""What each KL estimator does as a loss, by enumerating every response of a three-token vocabulary exactly.

The policy draws its own tokens, so an expected gradient is the sum over responses of pi(response), not differentiated,
times the gradient of the loss of that response. All in float64; what is equal is equal to 1e-12.
"""

import itertools
from collections.abc import Callable, Iterator

import pytest
import torch

from groupwise.objective.kl import KL_ESTIMATORS

DOUBLE = torch.float64
STOP = 2
"""The token that ends a response where responses may end early."""
Weight = Callable[[int], float]


class Chain:
    """Responses of up to two tokens of a vocabulary of three, the second depending on the first."""

    def __init__(self, *, early_stop: bool) -> None:
        generator = torch.Generator().manual_seed(3)
        self.early_stop = early_stop
        self.logits = torch.randn(4, 3, generator=generator, dtype=DOUBLE).requires_grad_()
        self.reference = torch.log_softmax(torch.randn(4, 3, generator=generator, dtype=DOUBLE), -1)

    def responses(self, longest: int) -> Iterator[list[tuple[int, int]]]:
        """Every response as (state, token) pairs; state 0 is the prompt, 1 + a what follows token a."""
        for tokens in itertools.product(range(3), repeat=longest):
            if self.early_stop and longest == 2 and tokens[0] == STOP:
                if tokens[1] == 0:  # once, not three times
                    yield [(0, STOP)]
            else:
                yield [(0, tokens[0]), *((1 + tokens[0], token) for token in tokens[1:])]

    def gradient(self, loss: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        policy = torch.log_softmax(self.logits, -1)
        (found,) = torch.autograd.grad(loss(policy), self.logits)
        return found

    def expected(
        self, name: str, longest: int, weight: Weight, *, old: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Expected gradient of sum_t weight(T) KL_t, tokens drawn by `old` (the policy itself by default)."""
        estimate = KL_ESTIMATORS[name]

        def loss(policy: torch.Tensor) -> torch.Tensor:
            drawn = policy.detach() if old is None else old
            total = policy.new_zeros(())
            for response in self.responses(longest):
                states, tokens = map(list, zip(*response, strict=True))
                mine, theirs = policy[states, tokens], self.reference[states, tokens]
                ratio = (mine - drawn[states, tokens]).exp()
                share = drawn[states, tokens].sum().exp()
                total = total + share * weight(len(response)) * estimate(mine, theirs, ratio).sum()
            return total

        return self.gradient(loss)

    def visits(self, longest: int) -> torch.Tensor:
        """How often each state is visited, by the policy, not differentiated."""
        first = torch.log_softmax(self.logits.detach(), -1)[0].exp()
        if longest == 1:
            return torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=DOUBLE)
        second = first.clone()
        if self.early_stop:
            second[STOP] = 0.0
        return torch.cat([torch.ones(1, dtype=DOUBLE), second])

    def divergence(self, longest: int, *, to_reference: bool) -> torch.Tensor:
        """Gradient of sum over states of visits, held, times KL(policy || reference), or the other direction."""
        visits = self.visits(longest)

        def loss(policy: torch.Tensor) -> torch.Tensor:
            if to_reference:
                per_state = (policy.exp() * (policy - self.reference)).sum(-1)
            else:
                per_state = (self.reference.exp() * (self.reference - policy)).sum(-1)
            return (visits * per_state).sum()

        return self.gradient(loss)


def same(got: torch.Tensor, right: torch.Tensor) -> bool:
    return bool((got - right).abs().max() < 1e-12)


def one(length: int) -> float:
    return 1.0


@pytest.mark.parametrize("early_stop", [False, True], ids=["whole", "early stop"])
@pytest.mark.parametrize("longest", [1, 2])
def test_the_gradients_of_the_estimators_as_losses(longest: int, early_stop: bool) -> None:
    chain = Chain(early_stop=early_stop)
    forward = chain.divergence(longest, to_reference=True)
    backward = chain.divergence(longest, to_reference=False)
    assert not same(forward, backward)
    assert same(chain.expected("k1", longest, one), torch.zeros(4, 3, dtype=DOUBLE))
    assert same(chain.expected("k2", longest, one), forward)
    assert same(chain.expected("k3", longest, one), backward)
    assert same(chain.expected("k3_ratio", longest, one), forward)


@pytest.mark.parametrize("name", ["k1", "k2", "k3", "k3_ratio"])
def test_the_effect_on_later_states_is_left_out(name: str) -> None:
    # The KL of whole responses also depends on which states are visited; no estimator's gradient sees that.
    chain = Chain(early_stop=True)

    def of_responses(policy: torch.Tensor) -> torch.Tensor:
        total = policy.new_zeros(())
        for response in chain.responses(2):
            states, tokens = map(list, zip(*response, strict=True))
            mine = policy[states, tokens].sum()
            total = total + mine.exp() * (mine - chain.reference[states, tokens].sum())
        return total

    assert not same(chain.expected(name, 2, one), chain.gradient(of_responses))


def test_k1_in_the_loss_leaves_a_length_biased_gradient_unless_the_divisor_is_constant() -> None:
    # Each response's own length as divisor (sequence_mean; token_mean does the same through the batch's total).
    zero = torch.zeros(4, 3, dtype=DOUBLE)
    assert same(Chain(early_stop=True).expected("k1", 2, lambda length: 1 / 7), zero)
    assert not same(Chain(early_stop=True).expected("k1", 2, lambda length: 1 / length), zero)
    # Where every response has the same length there is nothing to be biased by.
    assert same(Chain(early_stop=False).expected("k1", 2, lambda length: 1 / length), zero)


def test_k1_under_the_mean_over_all_tokens_of_two_responses_is_biased_too() -> None:
    chain = Chain(early_stop=True)

    def loss(policy: torch.Tensor) -> torch.Tensor:
        total = policy.new_zeros(())
        for pair in itertools.product(list(chain.responses(2)), repeat=2):
            states, tokens = map(list, zip(*(step for response in pair for step in response), strict=True))
            mine = policy[states, tokens]
            total = total + mine.detach().sum().exp() * (mine - chain.reference[states, tokens]).mean()
        return total

    assert not same(chain.gradient(loss), torch.zeros(4, 3, dtype=DOUBLE))


def test_values_are_unbiased_but_for_k2() -> None:
    chain = Chain(early_stop=False)
    policy = torch.log_softmax(chain.logits.detach(), -1)[0]
    reference = chain.reference[0]
    kl = (policy.exp() * (policy - reference)).sum()
    means = {
        name: (policy.exp() * estimate(policy, reference, torch.ones(3, dtype=DOUBLE))).sum()
        for name, estimate in KL_ESTIMATORS.items()
    }
    for name in ("k1", "k3", "k3_ratio"):
        assert abs(means[name] - kl) < 1e-12, name
    assert abs(means["k2"] - kl) > 1e-3


def test_only_k3_times_the_ratio_stays_right_when_others_drew_the_tokens() -> None:
    chain = Chain(early_stop=False)
    old = torch.log_softmax(torch.randn(4, 3, generator=torch.Generator().manual_seed(9), dtype=DOUBLE), -1)
    forward = chain.divergence(1, to_reference=True)
    assert same(chain.expected("k3_ratio", 1, one, old=old), forward)
    for name in ("k1", "k2", "k3"):
        assert not same(chain.expected(name, 1, one, old=old), forward)
