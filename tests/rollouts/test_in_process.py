import copy
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from groupwise.config.model import LoraConfig, ModelConfig
from groupwise.errors import EngineError
from groupwise.model.load import Policy, load_policy
from groupwise.model.logprobs import TokenLogprobs, plain_logprobs
from groupwise.model.lora import attach
from groupwise.model.tiny import write_tiny
from groupwise.records import Rollout, StopReason
from groupwise.rollouts.engine import Sampling
from groupwise.rollouts.in_process import InProcessEngine
from tests.model.unpackable import UNPACKABLE, build_unpackable
from tests.rollouts.examples import chain, engine_of, families_of, prompt_of, random_prompts, token_ids

MANY_STOPS = tuple(range(3, 40))
BUILDERS = ("llama", "qwen2", "gpt2")


def sampling(**settings: float | int) -> Sampling:
    return Sampling(**{"max_new_tokens": 16, "temperature": 0.7, **settings})  # type: ignore[arg-type]


@contextmanager
def rows_seen(engine: InProcessEngine) -> Iterator[list[int]]:
    """Fills up with the number of tokens of every pass through the layers inside."""
    seen: list[int] = []
    inner = engine._hidden
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_hidden", lambda ids, *rest: seen.append(ids.numel()) or inner(ids, *rest))
        yield seen


@pytest.mark.parametrize(("architecture", "count"), [("llama", 50), ("qwen2", 15), ("gpt2", 15)])
def test_greedy_is_transformers_greedy(
    build_policy: Callable[..., Policy], architecture: str, count: int
) -> None:
    policy = build_policy(architecture=architecture, stop_token_ids=(2, *range(3, 12)), context_tokens=128)
    theirs = copy.deepcopy(policy.model)  # with its own attention
    prompts = random_prompts(np.random.default_rng(0).integers(1, 60, count).tolist())
    ours = engine_of(policy).generate(prompts, sampling(temperature=0.0), group_size=1, seed=(0,))
    lengths = set()
    for prompt, [rollout] in zip(prompts, ours, strict=True):
        ids = torch.from_numpy(prompt.token_ids.astype(np.int64))[None]
        expected = theirs.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=16,
            do_sample=False,
            eos_token_id=list(policy.stop_token_ids),
            pad_token_id=policy.pad_token_id,
        )[0, ids.shape[1] :]
        assert rollout.token_ids_T.tolist() == expected.tolist()
        lengths.add(len(rollout.token_ids_T))
    assert len(lengths) > 1, "some were to stop before the limit"


def test_a_greedy_rollout_beside_the_others_computes_no_prompt_again(policy: Policy) -> None:
    engine, prompts = engine_of(policy), random_prompts((9, 4))
    with rows_seen(engine) as seen:
        engine.generate(prompts, sampling(max_new_tokens=1), group_size=1, seed=(0,), greedy=True)
    assert seen == [9 + 4]


@pytest.mark.parametrize("architecture", BUILDERS)
@pytest.mark.parametrize(("temperature", "stem"), [(0.7, 0), (1.3, 0), (0.7, 12)], ids=str)
def test_logprobs_and_entropies_are_those_of_a_full_forward(
    build_policy: Callable[..., Policy], architecture: str, temperature: float, stem: int
) -> None:
    """Prompts that begin with the same tokens have these computed once."""
    policy = build_policy(architecture=architecture, stop_token_ids=MANY_STOPS)
    engine, prompts = engine_of(policy), random_prompts((5, 11, 2, 7, 1), stem=stem)
    with rows_seen(engine) as seen:
        rollouts_PG = engine.generate(prompts, sampling(temperature=temperature), group_size=8, seed=(0, 1))
    with torch.no_grad():
        right = plain_logprobs(policy.model, families_of(prompts, rollouts_PG), temperature=temperature)
    flat = [rollout for rollouts in rollouts_PG for rollout in rollouts]
    found = (np.concatenate([getattr(r, n) for r in flat]) for n in ("sampler_logprobs_T", "entropy_T"))
    for ours, expected in zip(found, right, strict=True):
        assert np.abs(ours - expected.numpy()).max() < 1e-4
    assert_rows(seen, rollouts_PG, prompt_tokens=stem + 26)


def assert_rows(seen: list[int], rollouts_PG: list[list[Rollout]], *, prompt_tokens: int) -> None:
    """Each prompt is computed once, each different beginning once, and ended rows leave when they are a fifth."""
    assert seen[0] == prompt_tokens
    longest = max(len(r.token_ids_T) for rollouts in rollouts_PG for r in rollouts)
    assert len(seen) == longest
    for time in range(1, longest):
        running = {
            (p, r.token_ids_T[:time].tobytes())
            for p, rollouts in enumerate(rollouts_PG)
            for r in rollouts
            if len(r.token_ids_T) > time
        }
        assert len(running) <= seen[time] < len(running) / 0.8
    most = sum(len(rollouts) for rollouts in rollouts_PG)
    assert sum(seen[1:]) < 0.7 * most * (longest - 1), "stops were to be ragged here"


@pytest.mark.parametrize("cut", [{}, {"top_p": 0.8}, {"top_k": 9, "min_p": 0.05}])
def test_a_rollout_does_not_depend_on_its_company(policy: Policy, cut: dict[str, float]) -> None:
    policy = replace(policy, stop_token_ids=MANY_STOPS)
    engine, prompts = engine_of(policy), random_prompts((9, 3, 14, 3, 6))
    settings = sampling(max_new_tokens=10, **cut)
    base = engine.generate(prompts, settings, group_size=4, seed=(0, 1))

    def assert_same(others: list[list[Rollout]], right: list[list[Rollout]]) -> None:
        for rollouts, expected in zip(others, right, strict=True):
            for a, b in zip(rollouts, expected, strict=True):
                assert a.token_ids_T.tolist() == b.token_ids_T.tolist()
                assert a.stop_reason is b.stop_reason
                for name in ("sampler_logprobs_T", "entropy_T", "kept_mass_T"):
                    x, y = getattr(a, name), getattr(b, name)
                    assert (x is None) == (y is None)
                    assert x is None or np.abs(x - y).max() < 1e-4

    for i, prompt in enumerate(prompts):
        assert_same(engine.generate([prompt], settings, group_size=4, seed=(0, 1)), base[i : i + 1])
    order = [3, 0, 4, 1, 2]
    turned = engine.generate([prompts[i] for i in order], settings, group_size=4, seed=(0, 1))
    assert_same(turned, [base[i] for i in order])
    small = engine.generate(prompts, settings, group_size=2, seed=(0, 1))
    assert_same(small, [rollouts[:2] for rollouts in base])
    large = engine.generate(prompts, settings, group_size=7, seed=(0, 1))
    assert_same([rollouts[:4] for rollouts in large], base)
    plain = engine_of(policy, share_prefix=False).generate(prompts, settings, group_size=4, seed=(0, 1))
    assert_same(plain, base)
    for budget, chunks in ((0.0, 20), (0.03, None)):
        engine.cache_megabytes = budget  # type: ignore[assignment]
        found = engine._chunks(prompts, settings, 4)
        assert len(found) == chunks if chunks else 1 < len(found) < 20
        assert sorted(row for chunk in found for row in chunk) == [(p, g) for p in range(5) for g in range(4)]
        assert_same(engine.generate(prompts, settings, group_size=4, seed=(0, 1)), base)


def test_chunks_fit_the_budget(policy: Policy) -> None:
    """Two layers of two key heads of 16 numbers in float32: 2 * 2 * 2 * 16 * 4 = 512 bytes a token, so a megabyte
    holds 2048 tokens."""
    engine = engine_of(policy, cache_megabytes=1)
    # Shared: each prompt once and 100 new tokens a row. One prompt of 148 with 19 rows: 148 + 1900 = 2048.
    [first, second] = engine._chunks(random_prompts([148]), sampling(max_new_tokens=100), 20)
    assert (len(first), len(second)) == (19, 1)
    # Two of 24 with 10 rows each: 48 + 2000 = 2048. One token more each is too much for the last row.
    assert len(engine._chunks(random_prompts([24, 24]), sampling(max_new_tokens=100), 10)) == 1
    assert [len(c) for c in engine._chunks(random_prompts([25, 25]), sampling(max_new_tokens=100), 10)] == [
        19,
        1,
    ]
    # Not shared: every row holds the prompt, so a row is 248 tokens and 8 fit.
    engine = engine_of(policy, cache_megabytes=1, share_prefix=False)
    assert [len(c) for c in engine._chunks(random_prompts([148]), sampling(max_new_tokens=100), 20)] == [
        8,
        8,
        4,
    ]


A, B, C, FIRST_STOP, SECOND_STOP = 50, 51, 52, 5, 9


@pytest.fixture
def chained(build_policy: Callable[..., Policy]) -> Policy:
    """50 -> 51 -> 52 -> <|im_start|> -> 9, which is a stop token; 60 -> 5, another; 70 -> 71 -> 70 without end."""
    policy = build_policy(tied=False, stop_token_ids=(FIRST_STOP, SECOND_STOP))
    chain(policy, {A: B, B: C, C: 1, 1: SECOND_STOP, SECOND_STOP: A, 60: FIRST_STOP, 70: 71, 71: 70})
    return policy


@pytest.mark.parametrize("share_prefix", [True, False])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_stop_tokens(chained: Policy, share_prefix: bool, temperature: float) -> None:
    """Either stop token ends a response, is its last token and is trained; a truncated one has none."""
    engine = engine_of(chained, share_prefix=share_prefix)
    prompts = [prompt_of([80, last], f"p:{last}") for last in (A, 60, 70)]
    [one, other, endless] = engine.generate(
        prompts, sampling(max_new_tokens=5, temperature=temperature), group_size=2, seed=(0,)
    )
    for rollouts, ids, reason in (
        (one, [B, C, 1, SECOND_STOP], StopReason.STOP),
        (other, [FIRST_STOP], StopReason.STOP),
        (endless, [71, 70, 71, 70, 71], StopReason.LENGTH),
    ):
        for rollout in rollouts:
            assert rollout.token_ids_T.tolist() == ids
            assert rollout.trainable_T.tolist() == [True] * len(ids)
            assert rollout.stop_reason is reason
            assert len(rollout.sampler_logprobs_T) == len(ids)
    # At exactly the limit the stop token still counts; with one token less it is never drawn.
    limited = (
        engine.generate(prompts[:1], sampling(max_new_tokens=n, temperature=0.0), group_size=1, seed=(0,))[0][
            0
        ]
        for n in (4, 3)
    )
    assert [(r.token_ids_T.tolist(), r.stop_reason) for r in limited] == [
        ([B, C, 1, SECOND_STOP], StopReason.STOP),
        ([B, C, 1], StopReason.LENGTH),
    ]


def test_the_stop_token_is_the_only_thing_left_out_of_the_text(chained: Policy) -> None:
    decode = chained.tokenizer.decode
    [[rollout], [at_once]] = engine_of(chained).generate(
        [prompt_of([A], "p:0"), prompt_of([60], "p:1")], sampling(), group_size=1, seed=(0,)
    )
    assert 1 in chained.tokenizer.all_special_ids
    assert rollout.text == decode([B]) + decode([C]) + "<|im_start|>"
    assert at_once.text == ""


def test_the_model_folders_generation_settings_do_not_act(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path / "model", weight_scale=0.05)
    settings = {"max_new_tokens": 5, "top_k": 1, "temperature": 0.1, "do_sample": True, "eos_token_id": 2}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    policy = load_policy(ModelConfig(name=str(folder), device="cpu"), lora=None, base=tmp_path, seed=0)
    rollouts_PG = engine_of(policy).generate(
        random_prompts([4, 6]), sampling(temperature=1.0), group_size=8, seed=(0,)
    )
    rollouts = [rollout for rollouts in rollouts_PG for rollout in rollouts]
    assert max(len(r.token_ids_T) for r in rollouts) == 16
    assert len({r.token_ids_T[0] for r in rollouts}) > 4
    assert all(r.kept_mass_T is None for r in rollouts)
    # Nor when they are put onto the model in memory.
    for name, value in settings.items():
        setattr(policy.model.generation_config, name, value)
    again = engine_of(policy).generate(
        random_prompts([4, 6]), sampling(temperature=1.0), group_size=8, seed=(0,)
    )
    assert token_ids(again) == token_ids(rollouts_PG)


def test_a_prompt_beyond_the_context(build_policy: Callable[..., Policy]) -> None:
    engine = engine_of(build_policy(context_tokens=40))
    [fits, over] = random_prompts([24, 25], source="train.jsonl")
    engine.generate([fits], sampling(), group_size=1, seed=(0,))
    with pytest.raises(
        EngineError,
        match=r"prompt train\.jsonl:1 has 25 tokens, and with 16 new ones it exceeds the model's 40; lower",
    ):
        engine.generate([fits, over], sampling(), group_size=1, seed=(0,))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("settings", [{}, {"temperature": 0.0}, {"top_p": 0.9, "top_k": 3, "min_p": 0.1}])
@pytest.mark.parametrize("share_prefix", [True, False])
def test_weights_that_are_not_finite(
    policy: Policy, bad: float, settings: dict[str, float], share_prefix: bool
) -> None:
    engine = engine_of(policy, share_prefix=share_prefix)
    policy.model.train()
    with torch.no_grad():
        policy.model.model.norm.weight[3] = bad
    with pytest.raises(EngineError, match=r"the model's weights hold NaN or infinity.*earlier checkpoint"):
        engine.generate(random_prompts([3, 5]), sampling(**settings), group_size=2, seed=(0,))
    assert policy.model.training, "the mode is as before, also after an error"


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("share_prefix", [True, False])
def test_the_models_mode_and_gradients_are_as_before(
    policy: Policy, training: bool, share_prefix: bool
) -> None:
    engine, prompts = engine_of(policy, share_prefix=share_prefix), random_prompts([3, 5])
    modes: list[bool] = []
    policy.model.model.embed_tokens.register_forward_pre_hook(lambda *_: modes.append(policy.model.training))
    policy.model.train(training)
    rollouts_PG = engine.generate(prompts, sampling(), group_size=2, seed=(0,))
    assert modes
    assert not any(modes), "dropout would sample from another distribution"
    assert policy.model.training is training
    assert all(module.training is training for module in policy.model.modules())
    # What sampling left in the model does not get into the way of a backward pass.
    policy.model.train()
    engine.scorer(families_of(prompts, rollouts_PG), temperature=0.7)[0].sum().backward()
    assert all(torch.isfinite(p.grad).all() and p.grad.abs().sum() > 0 for p in policy.model.parameters())


def test_the_global_random_state_is_neither_read_nor_changed(policy: Policy) -> None:
    engine, prompts = engine_of(policy), random_prompts([3, 5])
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    first = token_ids(engine.generate(prompts, sampling(), group_size=2, seed=(0,)))
    assert torch.equal(state, torch.random.get_rng_state())
    torch.manual_seed(2)
    assert token_ids(engine.generate(prompts, sampling(), group_size=2, seed=(0,))) == first


def test_the_version_follows_the_weights(policy: Policy) -> None:
    engine, prompts = engine_of(policy), random_prompts([3])
    for version in (0, 1, 12):
        if version:
            engine.load_weights(version, None)
        [rollouts] = engine.generate(prompts, sampling(), group_size=2, seed=(0,))
        assert [r.policy_version for r in rollouts] == [version] * 2


@pytest.mark.parametrize("group_size", [1, 4])
@pytest.mark.parametrize("name", UNPACKABLE)
def test_models_that_cannot_be_packed(policy: Policy, name: str, group_size: int) -> None:
    """Their rollouts are sampled by the plain decode, from the distribution that a full forward gives."""
    model = build_unpackable(name)
    policy = replace(policy, model=model, stop_token_ids=tuple(range(3, 12)), context_tokens=64)
    engine = engine_of(policy)
    assert not engine.scorer.shared
    prompts = random_prompts((5, 11, 2), vocabulary=97)  # longer together than the window of 6
    rollouts_PG = engine.generate(prompts, sampling(), group_size=group_size, seed=(0,))
    with torch.no_grad():
        right = plain_logprobs(model, families_of(prompts, rollouts_PG), temperature=0.7)
    flat = [rollout for rollouts in rollouts_PG for rollout in rollouts]
    found = (np.concatenate([getattr(r, n) for r in flat]) for n in ("sampler_logprobs_T", "entropy_T"))
    for ours, expected in zip(found, right, strict=True):
        assert np.abs(ours - expected.numpy()).max() < 1e-4
    assert len({tuple(r.token_ids_T.tolist()) for r in flat}) > len(flat) / 2
    if group_size > 1:
        assert StopReason.STOP in {r.stop_reason for r in flat}
        assert len({len(r.token_ids_T) for r in flat}) > 2


def test_a_model_without_a_cache(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(policy, share_prefix=False)
    forward = policy.model.forward
    monkeypatch.setattr(policy.model, "forward", lambda use_cache, **rest: forward(use_cache=False, **rest))
    with pytest.raises(EngineError, match=r"keeps no cache.*choose another model\.name"):
        engine.generate(random_prompts([3]), sampling(), group_size=1, seed=(0,))


@pytest.mark.parametrize("share_prefix", [True, False])
def test_an_adapter_is_sampled_from(policy: Policy, share_prefix: bool) -> None:
    prompts = random_prompts([3, 7])
    bare = token_ids(engine_of(policy).generate(prompts, sampling(), group_size=4, seed=(0,)))
    adapted = attach(policy.model, LoraConfig(rank=4), seed=0).eval()
    policy = replace(policy, model=adapted, lora=True)
    engine = engine_of(policy, share_prefix=share_prefix)
    assert token_ids(engine.generate(prompts, sampling(), group_size=4, seed=(0,))) == bare
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1, generator=torch.Generator().manual_seed(1))
    rollouts_PG = engine.generate(prompts, sampling(), group_size=4, seed=(0,))
    assert token_ids(rollouts_PG) != bare
    with torch.no_grad():
        right, _ = plain_logprobs(adapted, families_of(prompts, rollouts_PG), temperature=0.7)
    flat = [rollout for rollouts in rollouts_PG for rollout in rollouts]
    assert np.abs(np.concatenate([r.sampler_logprobs_T for r in flat]) - right.numpy()).max() < 1e-4


def test_it_says_that_it_samples_as_the_trainer_scores(policy: Policy) -> None:
    """The claim on which the trainer takes the sampler's log-probs for the old ones."""
    engine = engine_of(policy)
    assert engine.same_as_trainer
    prompts = random_prompts((5, 11))
    rollouts_PG = engine.generate(prompts, sampling(max_new_tokens=40), group_size=6, seed=(0,))
    scorer = TokenLogprobs(policy.model, longest_tokens=64)
    with torch.no_grad():
        scored, _ = scorer(families_of(prompts, rollouts_PG), temperature=0.7)
    flat = [rollout for rollouts in rollouts_PG for rollout in rollouts]
    assert np.abs(np.concatenate([r.sampler_logprobs_T for r in flat]) - scored.numpy()).max() < 1e-4
