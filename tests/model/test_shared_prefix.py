from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from groupwise.model import head as module
from groupwise.model import shared_prefix
from groupwise.model.load import Policy
from groupwise.model.logprobs import TokenLogprobs, plain_logprobs
from groupwise.model.shared_prefix import Family, PackedFamilies, pack, stem_of
from tests.model.families import gradient_of, one_by_one, random_families, relative

ARCHITECTURES = ("llama", "qwen2", "gpt2")


def gradient_tolerance(architecture: str, dtype: torch.dtype) -> float:
    """transformers computes RMSNorm and rotary embeddings in float32 even in a float64 model, so that gradients of
    two orders of summation agree to about 1e-7 there. GPT-2 has neither and is float64 throughout."""
    if dtype == torch.float32:
        return 1e-4
    return 1e-10 if architecture == "gpt2" else 1e-6


@pytest.fixture(params=ARCHITECTURES)
def architecture(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def scorer_of(policy: Policy) -> TokenLogprobs:
    scorer = TokenLogprobs(policy.model, longest_tokens=64)
    assert scorer.shared, scorer.notice
    return scorer


@pytest.mark.parametrize("stem", [0, 9], ids=["", "stem"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_sharing_the_prompt_changes_nothing(
    build_policy: Callable[..., Policy], architecture: str, dtype: torch.dtype, stem: int
) -> None:
    policy = build_policy(architecture=architecture, dtype=dtype)
    model, families = policy.model, random_families(stem=stem)
    written_down = one_by_one(model, families, temperature=0.7)
    plainest = gradient_of(model, *written_down)
    scorer = scorer_of(policy)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-4
    for path in (scorer, lambda f, temperature: plain_logprobs(model, f, temperature=temperature)):
        logprobs_M, entropy_M = path(families, temperature=0.7)
        assert logprobs_M.dtype == entropy_M.dtype == dtype
        assert (logprobs_M - written_down[0]).abs().max() < tolerance
        assert (entropy_M - written_down[1]).abs().max() < tolerance
        gradient = gradient_of(model, logprobs_M, entropy_M)
        assert relative(gradient, plainest) < gradient_tolerance(architecture, dtype)


def test_rows_of_the_head_change_nothing(
    build_policy: Callable[..., Policy], architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = build_policy(architecture=architecture, dtype=torch.float64)
    scorer, families = scorer_of(policy), random_families()
    whole = scorer(families, temperature=0.7)
    gradient = gradient_of(policy.model, *whole)
    for rows in (1, 7):
        monkeypatch.setattr(module, "CHUNK_ELEMENTS", rows * policy.model.config.vocab_size)
        held: list[int] = []
        logits = module.head_logits
        with monkeypatch.context() as patch:
            patch.setattr(
                module,
                "head_logits",
                lambda h, *rest, f=logits, n=held, **more: (n.append(len(h)), f(h, *rest, **more))[1],
            )
            parts = scorer(families, temperature=0.7)
            other = gradient_of(policy.model, *parts)
        assert max(held) == rows
        for part, all_rows in zip(parts, whole, strict=True):
            assert (part - all_rows).abs().max() < 1e-12
        assert relative(other, gradient) < gradient_tolerance(architecture, torch.float64)


def test_gradient_checkpointing_changes_nothing(
    build_policy: Callable[..., Policy], architecture: str
) -> None:
    policy = build_policy(architecture=architecture, dtype=torch.float64)
    scorer, families, model = scorer_of(policy), random_families(), policy.model
    runs: list[int] = []
    layer = (model.transformer.h if architecture == "gpt2" else model.model.layers)[0]
    attention = layer.attn if architecture == "gpt2" else layer.self_attn
    attention.register_forward_hook(lambda *_: runs.append(1))
    gradient = gradient_of(model, *scorer(families, temperature=0.7))
    assert len(runs) == 1
    # transformers 5.24 renames it and warns of the old name.
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable()
    model.train()
    checkpointed = gradient_of(model, *scorer(families, temperature=0.7))
    assert len(runs) == 3, "the layer was to be computed again in the backward pass"
    assert relative(checkpointed, gradient) < 1e-12


@pytest.mark.parametrize("stem", [0, 9], ids=["", "stem"])
def test_a_family_does_not_see_the_others(
    build_policy: Callable[..., Policy], architecture: str, stem: int
) -> None:
    policy = build_policy(architecture=architecture, dtype=torch.float64)
    scorer, families = scorer_of(policy), random_families(stem=stem)
    with torch.no_grad():
        together, _ = scorer(families, temperature=1.0)
        alone = torch.cat([scorer([family], temperature=1.0)[0] for family in families])
        turned, _ = scorer(
            [Family(prompt_ids=f.prompt_ids, responses=f.responses[::-1]) for f in families[::-1]],
            temperature=1.0,
        )
    assert (together - alone).abs().max() < 1e-12
    parts = iter(torch.split(together, [len(r) for f in families for r in f.responses]))
    by_family = [[next(parts) for _ in f.responses] for f in families]
    expected = torch.cat([part for family in by_family[::-1] for part in family[::-1]])
    assert (turned - expected).abs().max() < 1e-12


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        ([range(10), range(10)], 9),  # each prompt keeps a token, behind which its responses begin
        ([range(10), range(9)], 8),
        ([range(9), range(8)], 0),  # 7 are not worth it
        ([[*range(8), 70], [*range(8), 80, 81]], 8),
        ([[*range(8), 70], [*range(7), 80, 81]], 0),
        ([range(20), range(1, 21)], 0),
        ([range(20)], 0),  # there is nobody to share with
    ],
)
def test_what_prompts_have_in_common(prompts: list[list[int]], expected: int) -> None:
    assert stem_of([np.array(p, dtype=np.int32) for p in prompts]) == expected


def test_a_stem_is_computed_once() -> None:
    stem = list(range(100, 109))
    families = [
        Family(
            prompt_ids=np.array(stem + own, dtype=np.int32),
            responses=[np.array(ids, dtype=np.int32) for ids in responses],
        )
        for own, responses in (([1, 2], [[3, 4], [5, 6]]), ([7], [[8, 9, 10]]))
    ]
    packed = PackedFamilies(families, torch.device("cpu"), torch.float32)
    # Last tokens of responses are not computed.
    assert packed.token_ids_S.tolist() == [*stem, 1, 2, 3, 5, 7, 8, 9]
    assert packed.positions_S.tolist() == [*range(9), 9, 10, 11, 11, 9, 10, 11]
    assert packed.parents == [-1, *range(8), 8, 9, 10, 10, 8, 13, 14]
    assert packed.predict_U.tolist() == [10, 11, 10, 12, 13, 14, 15]
    assert packed.targets_U.tolist() == [3, 4, 5, 6, 8, 9, 10]


def test_order_of_tokens_and_positions() -> None:
    family = Family(
        prompt_ids=np.array([7, 8, 9], dtype=np.int32),
        responses=[np.array(ids, dtype=np.int32) for ids in ([1, 2], [3], [4, 5, 6])],
    )
    packed = PackedFamilies([family, family], torch.device("cpu"), torch.float32)
    # The last token of each response predicts nothing, so the row holds 7 8 9 | 1 | | 4 5, twice.
    assert packed.token_ids_S.tolist() == [7, 8, 9, 1, 4, 5] * 2
    assert packed.positions_S.tolist() == [0, 1, 2, 3, 3, 4] * 2
    # First tokens come from the prompt's last position, 2 (and 6 + 2), the others from the token before them.
    assert packed.predict_U.tolist() == [2, 3, 2, 2, 4, 5, 8, 9, 8, 8, 10, 11]
    assert packed.targets_U.tolist() == [1, 2, 3, 4, 5, 6] * 2
    assert packed.serves_M.tolist() == list(range(12))
    assert packed.longest_tokens == 5


def test_responses_that_begin_alike_are_a_tree() -> None:
    responses = [[1, 2, 3], [1, 2, 4, 5], [1, 6], [1, 2, 3], [7]]
    family = Family(
        prompt_ids=np.array([8, 9], dtype=np.int32),
        responses=[np.array(ids, dtype=np.int32) for ids in responses],
    )
    packed = PackedFamilies([family], torch.device("cpu"), torch.float32)
    # Different beginnings, in the order met: 1, 12, 123, 124, 1245, 16, 7. Those that go on are computed: 1, 12, 124.
    assert packed.token_ids_S.tolist() == [8, 9, 1, 2, 4]
    assert packed.positions_S.tolist() == [0, 1, 2, 3, 4]
    assert packed.targets_U.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert packed.predict_U.tolist() == [1, 2, 3, 3, 4, 2, 1]
    # 13 response tokens are served by 7 predictions.
    assert packed.serves_M.tolist() == [0, 1, 2, 0, 1, 3, 4, 0, 5, 0, 1, 2, 6]
    seen = packed.blocks[0].mask == 0
    assert seen.tolist() == [[True, True, True, False, False], [True] * 4 + [False], [True] * 5]


def test_parted_branches_do_not_see_each_other() -> None:
    family = Family(
        prompt_ids=np.array([8], dtype=np.int32),
        responses=[np.array(ids, dtype=np.int32) for ids in ([1, 2, 3], [1, 4, 5], [1, 2, 6])],
    )
    packed = PackedFamilies([family], torch.device("cpu"), torch.float32)
    # Computed behind the prompt: 1, 12, 14. The two branches see the prompt, 1, and themselves alone.
    assert packed.token_ids_S.tolist() == [8, 1, 2, 4]
    assert packed.positions_S.tolist() == [0, 1, 2, 2]
    seen = packed.blocks[0].mask == 0
    assert seen.tolist() == [
        [True, True, False, False],
        [True, True, True, False],
        [True, True, False, True],
    ]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_sharing_beginnings_changes_nothing(
    build_policy: Callable[..., Policy], architecture: str, dtype: torch.dtype
) -> None:
    policy = build_policy(architecture=architecture, dtype=dtype)
    scorer, rng = scorer_of(policy), np.random.default_rng(3)
    families = [  # of three different tokens, so that many responses begin alike and some are the same
        Family(
            prompt_ids=rng.integers(3, 90, n).astype(np.int32),
            responses=[rng.integers(5, 8, k).astype(np.int32) for k in lengths],
        )
        for n, lengths in ((5, (4, 3, 1, 4, 4, 2, 6, 1)), (2, (1, 1)), (9, (3, 3, 3)))
    ]
    packed = PackedFamilies(families, policy.device, dtype)
    assert len(packed.targets_U) < len(packed.serves_M)
    found = scorer(families, temperature=0.7)
    plain = plain_logprobs(policy.model, families, temperature=0.7)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-4
    for a, b in zip(found, plain, strict=True):
        assert (a - b).abs().max() < tolerance
    gradients = [gradient_of(policy.model, *pair) for pair in (found, plain)]
    assert relative(*gradients) < gradient_tolerance(architecture, dtype)


def test_many_different_tokens_stay_side_by_side(monkeypatch: pytest.MonkeyPatch, policy: Policy) -> None:
    """A tree too large for its square of attention falls back to whole responses, the same ones still once."""
    monkeypatch.setattr(shared_prefix, "_TREE_TOKENS", 2)
    responses = [np.array(ids, dtype=np.int32) for ids in ([1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 3, 4])]
    family = Family(prompt_ids=np.array([8], dtype=np.int32), responses=responses)
    packed = PackedFamilies([family], torch.device("cpu"), torch.float32)
    assert packed.token_ids_S.tolist() == [8, 1, 2, 3, 1, 2, 3]
    assert packed.serves_M.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3]
    with torch.no_grad():
        found, _ = scorer_of(policy)([family], temperature=1.0)
        plain, _ = plain_logprobs(policy.model, [family], temperature=1.0)
    assert (found - plain).abs().max() < 1e-4


def _reached(output: Tensor) -> set[int]:
    """Positions [S] of [1, S, D] that have a gradient."""
    return set(output.grad[0].abs().sum(-1).nonzero()[:, 0].tolist())


@pytest.mark.parametrize("tokens", [1, 3])
def test_gradient_enters_where_the_response_is_predicted(
    build_policy: Callable[..., Policy], architecture: str, tokens: int
) -> None:
    policy = build_policy(architecture=architecture)
    scorer = scorer_of(policy)
    [family] = random_families([(4, (tokens,))])
    outputs: list[Tensor] = []

    def keep(module: torch.nn.Module, inputs: object, output: object) -> None:
        output.last_hidden_state.retain_grad()  # type: ignore[attr-defined]
        outputs.append(output.last_hidden_state)  # type: ignore[attr-defined]

    handle = scorer.backbone.register_forward_hook(keep)
    # Prompt at 0 1 2 3: position 3 predicts token 1, position 3 + t token t + 1; earlier prompt tokens predict
    # nothing that counts, and the last response token nothing at all.
    expected = set(range(3, 3 + tokens))
    for path in (scorer, lambda f, temperature: plain_logprobs(policy.model, f, temperature=temperature)):
        logprobs_M, _ = path([family], temperature=1.0)
        assert logprobs_M.shape == (tokens,)
        loss = -(logprobs_M - logprobs_M.detach()).exp().mean()  # ratio 1, advantage 1
        assert loss.item() == pytest.approx(-1.0, abs=1e-6)
        loss.backward()
        assert _reached(outputs.pop()) == expected
    handle.remove()


def test_prompts_receive_the_sum_over_their_responses(policy: Policy) -> None:
    """The gradient of a prompt's token comes through attention from every response, and none is lost."""
    scorer = scorer_of(policy)
    [family] = random_families([(4, (3, 5))])
    embedding = policy.model.get_input_embeddings()
    seen: list[Tensor] = []

    def keep(module: torch.nn.Module, inputs: object, output: Tensor) -> None:
        output.retain_grad()
        seen.append(output)

    embedding.register_forward_hook(keep)
    scorer([family], temperature=1.0)[0].sum().backward()
    shared = seen.pop().grad[0, :4]
    plain_logprobs(policy.model, [family], temperature=1.0)[0].sum().backward()
    per_response = seen.pop().grad[:, :4]
    assert per_response.abs().sum((1, 2)).min() > 0
    assert relative(shared, per_response.sum(0)) < 1e-4


def test_packing_answers_for_a_longer_sequence(policy: Policy) -> None:
    """A probe with short sequences still answers for the long ones to come."""
    scorer = scorer_of(policy)
    longest: list[int] = []
    layer = policy.model.model.layers[0].self_attn
    layer.register_forward_pre_hook(
        lambda module, args, kwargs: longest.append(kwargs["groupwise"].longest_tokens), with_kwargs=True
    )
    families = random_families()
    pack(scorer.backbone, families, torch.float32, device=torch.device("cpu"))
    pack(scorer.backbone, families, torch.float32, 100, device=torch.device("cpu"))
    assert longest == [14, 100]  # 11 + 4 tokens, of which the last is no input


def test_the_gradient_repeats_bit_for_bit_on_several_threads(build_policy: Callable[..., Policy]) -> None:
    """Plain indexing adds gradients up in the order in which threads come; many responses share one position here."""
    policy = build_policy()
    scorer, families = scorer_of(policy), random_families([(5, (9,) * 64), (7, (6,) * 64)])
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        gradients = [gradient_of(policy.model, *scorer(families, temperature=1.0)) for _ in range(6)]
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(gradients[0], other) for other in gradients[1:])
