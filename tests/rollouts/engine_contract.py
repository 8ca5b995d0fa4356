"""What every engine keeps (see `groupwise.rollouts.engine.Engine`), whatever computes inside it.

A test file makes a class of its own from `EngineContract`, says how its engine is built, and pytest runs everything
here against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import LogitsProcessorList, MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from groupwise.errors import EngineError
from groupwise.model.load import Policy
from groupwise.records import Prompt, Rollout, StopReason
from groupwise.rollouts.engine import Engine, Sampling
from tests.rollouts.examples import random_prompts, token_ids

STOPS = tuple(range(3, 40))
"""So many tokens end a response that most do before the limit."""
LIMIT = 12
SAMPLINGS = {
    "plain": Sampling(max_new_tokens=LIMIT, temperature=0.7),
    "greedy": Sampling(max_new_tokens=LIMIT, temperature=0.0),
    "top_k": Sampling(max_new_tokens=LIMIT, temperature=0.9, top_k=5),
    "top_p": Sampling(max_new_tokens=LIMIT, top_p=0.6),
    "min_p": Sampling(max_new_tokens=LIMIT, temperature=1.5, min_p=0.3),
}


class EngineContract:
    """Inherit, and override `build`; `tolerance` where the engine computes in another precision."""

    tolerance = 1e-4
    """Of log-probs, kept mass and entropies, against a float32 forward pass of the whole sequence."""

    gives_kept_mass = True
    """False for an engine that cannot know what truncation left out."""

    def build(self, policy: Policy) -> Engine:
        """An engine that samples from the policy's weights."""
        raise AssertionError("a contract is run through a class that builds an engine")

    @pytest.fixture
    def policy(self, build_policy: Callable[..., Policy]) -> Policy:
        return build_policy(3, stop_token_ids=STOPS, context_tokens=64)

    @pytest.fixture
    def engine(self, policy: Policy) -> Iterator[Engine]:
        built = self.build(policy)
        yield built
        built.close()

    @pytest.fixture
    def prompts(self) -> list[Prompt]:
        return random_prompts((5, 11, 1, 7))

    @pytest.mark.parametrize("name", [name for name in SAMPLINGS if name != "greedy"])
    def test_a_greedy_rollout_beside_the_sampled_ones(
        self, engine: Engine, prompts: list[Prompt], name: str
    ) -> None:
        """It is the one that greedy sampling gives, log-probs of temperature 1 included, and changes no other."""
        sampling = SAMPLINGS[name]
        both = engine.generate(prompts, sampling, group_size=3, seed=(0, 1), greedy=True)
        alone = engine.generate(prompts, sampling, group_size=3, seed=(0, 1))
        by_itself = engine.generate(prompts, SAMPLINGS["greedy"], group_size=1, seed=(5,))
        assert [[r.group_index for r in rollouts] for rollouts in both] == [[0, 1, 2, 3]] * len(prompts)
        assert token_ids([rollouts[:3] for rollouts in both]) == token_ids(alone)
        assert token_ids([rollouts[3:] for rollouts in both]) == token_ids(by_itself)
        for rollouts, [expected] in zip(both, by_itself, strict=True):
            greedy = rollouts[3]
            np.testing.assert_allclose(
                greedy.sampler_logprobs_T, expected.sampler_logprobs_T, atol=self.tolerance
            )
            assert greedy.stop_reason is expected.stop_reason
            assert greedy.kept_mass_T is None or (greedy.kept_mass_T == 1).all()

    @pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
    def test_rollouts(
        self, engine: Engine, policy: Policy, prompts: list[Prompt], sampling: Sampling
    ) -> None:
        """Their order, their arrays, how they end, their text, and the numbers they carry."""
        rollouts_PG = engine.generate(prompts, sampling, group_size=6, seed=(0, 1))
        assert [[(r.prompt_id, r.group_index) for r in rollouts] for rollouts in rollouts_PG] == [
            [(prompt.id, g) for g in range(6)] for prompt in prompts
        ]
        reasons = set()
        for prompt, rollouts in zip(prompts, rollouts_PG, strict=True):
            for rollout in rollouts:
                check_form(rollout, policy, sampling, kept_mass=sampling.truncates and self.gives_kept_mass)
                check_numbers(rollout, prompt, policy, sampling, self.tolerance)
                reasons.add(rollout.stop_reason)
            if sampling.greedy:
                assert len({tuple(r.token_ids_T.tolist()) for r in rollouts}) == 1
        assert sampling.greedy or reasons == {StopReason.STOP, StopReason.LENGTH}

    def test_a_rollout_depends_on_seed_prompt_and_index_alone(
        self, engine: Engine, prompts: list[Prompt]
    ) -> None:
        sampling = SAMPLINGS["plain"]
        together = token_ids(engine.generate(prompts, sampling, group_size=4, seed=(0, 1)))
        assert token_ids(engine.generate(prompts, sampling, group_size=4, seed=(0, 1))) == together
        turned = token_ids(engine.generate(prompts[::-1], sampling, group_size=4, seed=(0, 1)))
        assert turned[::-1] == together
        for prompt, rollouts in zip(prompts, together, strict=True):
            [alone] = token_ids(engine.generate([prompt], sampling, group_size=2, seed=(0, 1)))
            assert alone == rollouts[:2]
            [renamed] = token_ids(
                engine.generate([replace(prompt, id="another")], sampling, group_size=2, seed=(0, 1))
            )
            assert renamed != alone
        assert token_ids(engine.generate(prompts, sampling, group_size=4, seed=(0, 2))) != together
        assert all(len({tuple(ids) for ids in rollouts}) > 1 for rollouts in together)

    def test_a_limit_cuts_and_changes_nothing_before_it(self, engine: Engine, prompts: list[Prompt]) -> None:
        whole = engine.generate(prompts, SAMPLINGS["plain"], group_size=4, seed=(5,))
        short = replace(SAMPLINGS["plain"], max_new_tokens=4)
        for rollouts, cut in zip(
            whole, engine.generate(prompts, short, group_size=4, seed=(5,)), strict=True
        ):
            for long, rollout in zip(rollouts, cut, strict=True):
                assert rollout.token_ids_T.tolist() == long.token_ids_T[:4].tolist()
                ended = len(long.token_ids_T) <= 4 and long.stop_reason is StopReason.STOP
                assert rollout.stop_reason is (StopReason.STOP if ended else StopReason.LENGTH)

    def test_weights_follow_the_policy(self, engine: Engine, policy: Policy, prompts: list[Prompt]) -> None:
        sampling = SAMPLINGS["plain"]
        [before, *_], *_ = engine.generate(prompts[:1], sampling, group_size=3, seed=(0,))
        assert before.policy_version == 0
        with torch.no_grad():
            for parameter in policy.model.parameters():
                parameter.mul_(1.1)
        engine.load_weights(7, policy.model)
        [rollouts] = engine.generate(prompts[:1], sampling, group_size=3, seed=(0,))
        for rollout in rollouts:
            assert rollout.policy_version == 7
            check_numbers(rollout, prompts[0], policy, sampling, self.tolerance)

    def test_no_prompts_and_one_prompt(self, engine: Engine, prompts: list[Prompt]) -> None:
        assert engine.generate([], SAMPLINGS["plain"], group_size=3, seed=(0,)) == []
        [[rollout]] = engine.generate(prompts[:1], SAMPLINGS["plain"], group_size=1, seed=(0,))
        assert (rollout.prompt_id, rollout.group_index) == (prompts[0].id, 0)

    def test_what_exceeds_the_context_is_refused(self, engine: Engine, policy: Policy) -> None:
        [fits] = random_prompts([policy.context_tokens - LIMIT])
        [[rollout]] = engine.generate([fits], SAMPLINGS["plain"], group_size=1, seed=(0,))
        assert len(rollout.token_ids_T) <= LIMIT
        [over] = random_prompts([policy.context_tokens - LIMIT + 1], source="long.jsonl")
        with pytest.raises(EngineError, match=r"long\.jsonl:0.*max_new_tokens"):
            engine.generate([fits, over], SAMPLINGS["plain"], group_size=1, seed=(0,))

    def test_it_can_be_closed_twice(self, engine: Engine, prompts: list[Prompt]) -> None:
        engine.generate(prompts[:1], SAMPLINGS["plain"], group_size=1, seed=(0,))
        engine.close()
        engine.close()


def check_form(rollout: Rollout, policy: Policy, sampling: Sampling, *, kept_mass: bool) -> None:
    """Types, lengths, where it ends and what its text leaves out."""
    ids = rollout.token_ids_T
    assert ids.dtype == np.int32
    assert 1 <= len(ids) <= sampling.max_new_tokens
    assert rollout.trainable_T.dtype == np.bool_
    assert rollout.trainable_T.all(), "every sampled token is trained, the stop token too"
    for array in (rollout.sampler_logprobs_T, rollout.entropy_T, rollout.kept_mass_T):
        assert array is None or array.dtype == np.float32
    assert (rollout.kept_mass_T is not None) == kept_mass
    stops = np.isin(ids, policy.stop_token_ids)
    assert not stops[:-1].any(), "nothing follows a stop token"
    stopped = rollout.stop_reason is StopReason.STOP
    assert stops[-1] == stopped
    assert stopped or len(ids) == sampling.max_new_tokens
    shown = ids[:-1] if stopped else ids
    assert rollout.text == policy.tokenizer.decode(shown.tolist(), skip_special_tokens=False)


def check_numbers(
    rollout: Rollout, prompt: Prompt, policy: Policy, sampling: Sampling, tolerance: float
) -> None:
    """Log-probs under the distribution really drawn from, kept mass and entropy, against transformers' own
    truncation of a forward pass of the whole sequence."""
    logprobs, kept, entropy = distribution(policy, prompt.token_ids, rollout.token_ids_T, sampling)
    assert np.abs(rollout.sampler_logprobs_T - logprobs).max() < tolerance
    assert rollout.entropy_T is None or np.abs(rollout.entropy_T - entropy).max() < tolerance
    assert rollout.kept_mass_T is None or np.abs(rollout.kept_mass_T - kept).max() < tolerance


@torch.no_grad()
def distribution(
    policy: Policy, prompt_ids: NDArray[np.int32], response_ids: NDArray[np.int32], sampling: Sampling
) -> Sequence[NDArray[np.float64]]:
    """Log-prob of each token as drawn, mass that truncation kept, and entropy before it; shape [T] each."""
    ids = torch.from_numpy(np.concatenate([prompt_ids, response_ids]).astype(np.int64))
    training = policy.model.training
    logits_TV = policy.model.eval()(input_ids=ids[None], use_cache=False).logits[0, len(prompt_ids) - 1 : -1]
    policy.model.train(training)
    logits_TV = logits_TV.double() / (sampling.temperature or 1.0)
    warpers = LogitsProcessorList()
    if sampling.truncates:
        warpers += [TopKLogitsWarper(sampling.top_k)] if sampling.top_k else []
        warpers += [TopPLogitsWarper(sampling.top_p)] if sampling.top_p < 1 else []
        warpers += [MinPLogitsWarper(sampling.min_p)] if sampling.min_p else []
    warped_TV = warpers(ids[None], logits_TV.clone())
    full_TV = logits_TV.log_softmax(-1)
    drawn = warped_TV.log_softmax(-1).gather(1, ids[len(prompt_ids) :, None])[:, 0]
    kept = full_TV.exp().where(warped_TV > -torch.inf, 0.0).sum(-1)
    entropy = -(full_TV.exp() * full_TV).sum(-1)
    return drawn.numpy(), kept.numpy(), entropy.numpy()
