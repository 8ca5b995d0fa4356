import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from groupwise.config.rollout import ConfidenceConfig
from groupwise.model import head
from groupwise.model.load import Policy
from groupwise.model.recorded import RecordedLayers
from groupwise.model.shared_prefix import Family, PackedFamilies
from groupwise.records import Prompt, Rollout
from groupwise.rollouts.engine import Sampling
from groupwise.rollouts.in_process import InProcessEngine
from tests.rollouts.examples import engine_of, random_prompts

TEMPERATURE = 0.5  # so peaked that rollouts of a group share beginnings
MANY_STOPS = tuple(range(3, 40))
LENGTHS = (9, 4, 13)
GROUP = 6


def recording(policy: Policy, *, tokens: int = 10_000, **settings: Any) -> InProcessEngine:
    engine = engine_of(policy, **settings)
    engine.scorer.recorded = RecordedLayers(engine.scorer.backbone, engine.scorer.head, tokens=tokens)
    return engine


def sampled(
    engine: InProcessEngine, prompts: Sequence[Prompt], *, seed: int = 0, cut: bool = False
) -> list[list[Rollout]]:
    """A batch, with `cut` in two chunks, each with half of every group."""
    assert engine.scorer.recorded is not None
    sampling = Sampling(max_new_tokens=12, temperature=TEMPERATURE)
    with pytest.MonkeyPatch.context() as patch, engine.scorer.recorded.record():
        if cut:
            halves = range(4), range(4, GROUP)
            chunks = [[(p, g) for p in range(len(prompts)) for g in half] for half in halves]
            patch.setattr(engine, "_chunks", lambda *_: chunks)
        return engine.generate(prompts, sampling, group_size=GROUP, seed=(seed,))


def families(prompts: Sequence[Prompt], groups: Sequence[Sequence[Rollout]]) -> list[Family]:
    return [
        Family(prompt_ids=prompt.token_ids, responses=[r.token_ids_T for r in group])
        for prompt, group in zip(prompts, groups, strict=True)
    ]


def gradient(
    engine: InProcessEngine, asked: Sequence[Family], *, reuse: bool, entropy: float = 0.1, **settings: Any
) -> tuple[Tensor, list[Tensor]]:
    """Log-probs, and the gradient of a sum in which every token counts otherwise."""
    model = engine.policy.model
    model.zero_grad()
    scoring = {"temperature": TEMPERATURE} | settings
    logprobs_M, entropy_M = engine.scorer(asked, reuse=reuse, **scoring)
    weight_M = torch.linspace(-1, 1, len(logprobs_M))
    ((logprobs_M + entropy * entropy_M) * weight_M).sum().backward()
    return logprobs_M.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]


def reused(engine: InProcessEngine) -> int:
    assert engine.scorer.recorded is not None
    return engine.scorer.recorded.reused


def assert_same(found: tuple[Tensor, list[Tensor]], right: tuple[Tensor, list[Tensor]]) -> None:
    assert (found[0] - right[0]).abs().max() < 2e-5
    assert len(found[1]) == len(right[1]) > 5
    for mine, plain in zip(found[1], right[1], strict=True):
        assert (mine - plain).abs().max() <= 2e-5 * plain.abs().max() + 1e-7


def packed_predictions(asked: Sequence[Family], policy: Policy) -> int:
    """Different predictions: tokens behind different beginnings."""
    return len(PackedFamilies(asked, policy.device, torch.float32).targets_U)


def unique_tokens(asked: Sequence[Family]) -> int:
    """Prompts once, and beginnings that responses of a prompt share once; the last token of a response is no input."""
    begun = {(f.prompt_ids.tobytes(), *r[:i]) for f in asked for r in f.responses for i in range(1, len(r))}
    return sum(len(f.prompt_ids) for f in asked) + len(begun)


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Fills with the rows of each linear layer that is computed."""
    seen: list[int] = []
    linear = torch.nn.functional.linear

    def counted(x: Tensor, *rest: Any) -> Tensor:
        seen.append(x.numel() // x.shape[-1])
        return linear(x, *rest)

    monkeypatch.setattr(torch.nn.functional, "linear", counted)
    return seen


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])  # without biases and with
@pytest.mark.parametrize("entropy", [0.0, 0.1])  # exponentials of sampling serve, or all logits are made
@pytest.mark.parametrize(
    ("cut", "stem"), [(False, 0), (True, 0), (False, 10)], ids=["one chunk", "groups cut by chunks", "stem"]
)
def test_the_gradient_is_that_of_the_plain_computation(
    build_policy: Callable[..., Policy],
    architecture: str,
    entropy: float,
    cut: bool,
    stem: int,
    products: list[int],
) -> None:
    policy = build_policy(architecture=architecture, stop_token_ids=MANY_STOPS)
    engine, prompts = recording(policy), random_prompts(LENGTHS, stem=stem)
    asked = families(prompts, sampled(engine, prompts, cut=cut))[
        1:
    ]  # a family less, as where an advantage is 0
    asked[0] = Family(prompt_ids=asked[0].prompt_ids, responses=asked[0].responses[2:5])
    assert unique_tokens(asked) < sum(len(f.prompt_ids) + sum(len(r) - 1 for r in f.responses) for f in asked)
    right = gradient(engine, asked, reuse=False, entropy=entropy)
    assert reused(engine) == 0
    assert len(products) > 5

    sampled(engine, prompts, cut=cut)
    products.clear()
    assert_same(gradient(engine, asked, reuse=True, entropy=entropy), right)
    assert products == []
    packed = PackedFamilies(asked, policy.device, torch.float32)
    assert reused(engine) == len(packed.token_ids_S)
    once = unique_tokens(asked) - stem * (len(asked) - 1)
    assert once <= reused(engine) <= once + 2, "a beginning of a token or two is not worth a tree"

    assert_same(gradient(engine, asked, reuse=True, entropy=entropy), right)  # used up, so computed
    assert len(products) > 5


def test_what_was_not_sampled_is_computed(policy: Policy, products: list[int]) -> None:
    engine, prompts = recording(policy), random_prompts(LENGTHS)
    asked = families(prompts, sampled(engine, prompts))
    changed = np.append(asked[0].responses[0], asked[0].responses[0][-1])
    changed[0] = changed[0] % 300 + 60
    asked[0] = Family(prompt_ids=asked[0].prompt_ids, responses=[*asked[0].responses[1:], changed])
    products.clear()
    found = gradient(engine, asked, reuse=True)
    assert len(products) > 5
    assert reused(engine) == 0
    assert engine.scorer.recorded is not None
    assert not engine.scorer.recorded._known, "what serves nobody is let go"
    assert_same(found, gradient(engine, asked, reuse=False))


@pytest.mark.parametrize("change", ["in place", "another tensor"])
def test_changed_weights_are_computed_with(policy: Policy, products: list[int], change: str) -> None:
    engine, prompts = recording(policy), random_prompts(LENGTHS)
    asked = families(prompts, sampled(engine, prompts))
    before, _ = gradient(engine, asked, reuse=False)
    weight = policy.model.model.layers[0].mlp.up_proj.weight
    with torch.no_grad():
        if change == "in place":
            weight.add_(0.05)
        else:
            weight.data = weight + 0.05
    found = gradient(engine, asked, reuse=True)
    assert reused(engine) == 0
    assert_same(found, gradient(engine, asked, reuse=False))
    assert (found[0] - before).abs().max() > 1e-3


@pytest.mark.parametrize(("spare", "kept"), [(0, True), (-1, False)])
def test_a_batch_beyond_the_limit_is_not_kept(policy: Policy, spare: int, kept: bool) -> None:
    prompts = random_prompts(LENGTHS)
    needed = sum(LENGTHS) + 3 * GROUP * 11  # 12 new tokens, of which the last is no input
    engine = recording(policy, tokens=needed + spare)
    asked = families(prompts, sampled(engine, prompts))
    gradient(engine, asked, reuse=True)
    assert (reused(engine) > 0) is kept


def test_only_what_is_sampled_to_train_on_is_kept(policy: Policy) -> None:
    engine, prompts = recording(policy), random_prompts(LENGTHS)
    groups = engine.generate(prompts, Sampling(max_new_tokens=12), group_size=GROUP, seed=(0,))
    gradient(engine, families(prompts, groups), reuse=True)
    assert reused(engine) == 0


@pytest.mark.parametrize("cut", [False, True], ids=["one chunk", "groups cut by chunks"])
def test_an_evaluation_in_between_takes_nothing_away(policy: Policy, cut: bool) -> None:
    """Neither behind a batch nor before the next."""
    engine, prompts = recording(policy), random_prompts(LENGTHS)

    def evaluate() -> None:
        engine.generate(random_prompts((5,), seed=3), Sampling(max_new_tokens=12), group_size=1, seed=(0,))

    for seed in (0, 1):
        groups = sampled(engine, prompts, seed=seed, cut=cut)
        evaluate()
        asked = families(prompts, groups)
        found = gradient(engine, asked, reuse=True)
        assert reused(engine) == len(PackedFamilies(asked, policy.device, torch.float32).token_ids_S) > 200
        evaluate()
        assert_same(found, gradient(engine, asked, reuse=False))


@pytest.fixture
def logits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Fills with the rows of logits that the scorer makes."""
    seen: list[int] = []
    made = head.head_logits

    def counted(hidden: Tensor, *rest: Any, **more: Any) -> Tensor:
        seen.append(len(hidden))
        return made(hidden, *rest, **more)

    monkeypatch.setattr(head, "head_logits", counted)
    return seen


@pytest.mark.parametrize("kept", [True, False], ids=["exponentials are kept", "they are too many"])
def test_logits_are_made_in_the_backward_pass_alone_which_finds_log_probs_again(
    policy: Policy, logits: list[int], monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    if not kept:
        monkeypatch.setattr("groupwise.model.recorded.MASS_ELEMENTS", 100 * policy.model.config.vocab_size)
    engine, prompts = recording(policy), random_prompts(LENGTHS)
    asked = families(prompts, sampled(engine, prompts))
    right_M, _ = gradient(engine, asked, reuse=False)
    assert engine.scorer.again() is None, "the forward pass computed them itself"

    sampled(engine, prompts)
    logits.clear()
    logprobs_M, _ = engine.scorer(asked, temperature=TEMPERATURE, reuse=True)
    assert logits == []
    assert engine.scorer.again() is None, "there was no backward pass yet"
    assert (logprobs_M - right_M).abs().max() < 5e-5

    # A response of its own, so that no other gives its tokens a gradient.
    own = next(
        i for i, r in enumerate(asked[2].responses) if sum(r[0] == s[0] for s in asked[2].responses) == 1
    )
    ends = np.cumsum([0, *(len(r) for family in asked for r in family.responses)])
    without = slice(ends[2 * GROUP + own], ends[2 * GROUP + own + 1])
    weight_M = torch.ones(len(logprobs_M))
    weight_M[without] = 0
    (logprobs_M * weight_M).sum().backward()
    again_M = engine.scorer.again()
    assert again_M is not None
    assert bool(again_M[without].isnan().all()), "what has no gradient is not computed"
    with_gradient = packed_predictions(asked, policy) - len(asked[2].responses[own])
    if kept:
        # Every second or third of them, or whichever step leaves 64 to 127.
        assert sum(logits) == math.ceil(with_gradient / (with_gradient // 64)) < with_gradient
    else:
        assert sum(logits) == with_gradient
        assert int(again_M.isnan().sum()) == len(asked[2].responses[own])
    found = ~again_M.isnan()
    assert int(found.sum()) >= sum(logits) >= 64
    assert (again_M - right_M)[found].abs().max() < 5e-5


def test_log_probs_that_sampling_got_wrong_are_seen(policy: Policy) -> None:
    engine, prompts = recording(policy), random_prompts(LENGTHS)
    asked = families(prompts, sampled(engine, prompts))
    recorded = engine.scorer.recorded
    assert recorded is not None
    wrong = torch.tensor([0.1, 0.0, -0.1])  # the log-prob, and the normaliser to go with it
    recorded._numbers = [numbers_N3 + wrong for numbers_N3 in recorded._numbers]
    logprobs_M, _ = engine.scorer(asked, temperature=TEMPERATURE, reuse=True)
    logprobs_M.sum().backward()
    again_M = engine.scorer.again()
    assert again_M is not None
    found = ~again_M.isnan()
    assert int(found.sum()) >= 64
    gap_M = (logprobs_M.detach() - again_M)[found]
    torch.testing.assert_close(gap_M, torch.full_like(gap_M, 0.1), atol=5e-5, rtol=0)


@pytest.mark.parametrize(
    "sampling",
    [
        {"top_k": 5},
        {"top_p": 0.8},
        {"min_p": 0.05},
        {"confidence": ConfidenceConfig(threshold=0.3, redraws=2)},
        {"temperature": 0.0},
        {"temperature": 1.7, "top_k": 40},
    ],
    ids=str,
)
def test_what_is_kept_is_the_models_own_whatever_the_sampler_did_to_it(
    policy: Policy, sampling: dict[str, Any], logits: list[int]
) -> None:
    """Rollouts that are the most likely ones, which are sampled beside the others, included."""
    engine, prompts = recording(policy), random_prompts(LENGTHS)
    assert engine.scorer.recorded is not None
    drawn = Sampling(**({"temperature": 1.0} | sampling), max_new_tokens=6)
    temperature = drawn.temperature or 1.0
    with engine.scorer.recorded.record():
        groups = engine.generate(prompts, drawn, group_size=4, seed=(0,), greedy=True)
    asked = families(prompts, groups)
    logits.clear()
    with torch.no_grad():
        right = engine.scorer(asked, temperature=temperature)
    logits.clear()
    found = engine.scorer(asked, temperature=temperature, reuse=True)
    assert logits == []
    for mine_M, right_M in zip(found, right, strict=True):
        assert (mine_M - right_M).abs().max() < 5e-5
    with engine.scorer.recorded.record():
        assert engine.generate(prompts, drawn, group_size=4, seed=(0,), greedy=True) is not None
    mine = gradient(engine, asked, reuse=True, entropy=0.0, temperature=temperature)
    assert reused(engine) > 0
    assert_same(mine, gradient(engine, asked, reuse=False, entropy=0.0, temperature=temperature))


def test_exponentials_of_another_token_are_seen(policy: Policy) -> None:
    engine, prompts = recording(policy), random_prompts(LENGTHS)
    asked = families(prompts, sampled(engine, prompts))
    recorded = engine.scorer.recorded
    assert recorded is not None
    recorded._mass_of = [(step, max(row - 1, 0)) for step, row in recorded._mass_of]
    logprobs_M, _ = engine.scorer(asked, temperature=TEMPERATURE, reuse=True)
    logprobs_M.sum().backward()
    again_M = engine.scorer.again()
    assert again_M is not None
    assert (again_M - logprobs_M.detach()).abs().nan_to_num().max() > 0.1


def test_no_gradient_at_all_is_none(policy: Policy) -> None:
    engine, prompts = recording(policy), random_prompts(LENGTHS)
    asked = families(prompts, sampled(engine, prompts))
    logprobs_M, _ = engine.scorer(asked, temperature=TEMPERATURE, reuse=True)
    (0 * logprobs_M).sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in policy.model.parameters())


def test_with_an_entropy_bonus_exponentials_are_not_kept(policy: Policy) -> None:
    engine, prompts = engine_of(policy), random_prompts(LENGTHS)
    scorer = engine.scorer
    scorer.recorded = RecordedLayers(scorer.backbone, scorer.head, tokens=10_000, masses=False)
    asked = families(prompts, sampled(engine, prompts))
    assert scorer.recorded._masses == []
    found = gradient(engine, asked, reuse=True)
    assert reused(engine) > 0
    assert_same(found, gradient(engine, asked, reuse=False))


def test_exponentials_of_what_is_not_kept_are_let_go(policy: Policy) -> None:
    prompts = random_prompts(LENGTHS)
    engine = recording(policy, tokens=sum(LENGTHS))
    sampled(engine, prompts)
    assert engine.scorer.recorded is not None
    assert engine.scorer.recorded._masses == []
    engine = recording(policy)
    asked = families(prompts, sampled(engine, prompts))
    assert engine.scorer.recorded is not None
    assert len(engine.scorer.recorded._masses) == 12
    logprobs_M, _ = engine.scorer(asked, temperature=TEMPERATURE, reuse=True)
    assert engine.scorer.recorded._masses == []
    logprobs_M.sum().backward()
    given = engine.scorer._given
    assert given is not None
    assert given[0].masses == ()


def test_log_probs_of_another_temperature_are_computed(policy: Policy, logits: list[int]) -> None:
    engine, prompts = recording(policy), random_prompts(LENGTHS)
    asked = families(prompts, sampled(engine, prompts))
    logits.clear()
    found_M, _ = engine.scorer(asked, temperature=1.0, reuse=True)
    assert sum(logits) > 0
    assert reused(engine) == unique_tokens(asked)
    right_M, _ = engine.scorer(asked, temperature=1.0)
    assert (found_M - right_M).abs().max() < 5e-5
