import math
from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from groupwise.config.rollout import ConfidenceConfig
from groupwise.rollouts.engine import Sampling
from groupwise.rollouts.sampling import draw, invert, redrawn, truncate, uniforms

DRAWS = 20_000
# Chi-square: the value that a right sampler exceeds once in a thousand, by degrees of freedom.
CRITICAL = {1: 10.828, 2: 13.816, 3: 16.266, 4: 18.467, 9: 27.877}
PROBABILITIES = [0.5, 0.25, 0.15, 0.06, 0.04]


def sampling(**settings: float | int) -> Sampling:
    return Sampling(max_new_tokens=1, **settings)  # type: ignore[arg-type]


def number(u: float | list[float]) -> Tensor:
    return torch.tensor(u if isinstance(u, list) else [u], dtype=torch.float64)


@pytest.mark.parametrize(
    ("u", "token"),
    [
        (0.0, 0),
        (0.2, 0),  # 0.2 * 4 = 0.8 < 1
        (0.2499, 0),
        (0.25, 2),  # exactly 1: the first token's share is used up, and the second has none
        (0.26, 2),  # 1.04
        (1 - 2**-53, 2),  # the largest number below 1
    ],
)
def test_invert_by_hand(u: float, token: int) -> None:
    assert invert(torch.tensor([[1.0, 0.0, 3.0]]), number(u)).item() == token


@pytest.mark.parametrize("vocabulary", [1, 3, 255, 256, 257, 512, 700])
def test_invert_is_the_inverse_of_the_cumulative_sum(vocabulary: int) -> None:
    rng = np.random.default_rng(vocabulary)
    weights = rng.integers(0, 4, (50, vocabulary)).astype(np.float32)  # whole numbers: sums are exact
    weights[:, 0] += weights.sum(1) == 0
    u = rng.random(50)
    expected = [
        int(np.searchsorted(np.cumsum(w), x * w.sum(), side="right")) for w, x in zip(weights, u, strict=True)
    ]
    assert invert(torch.from_numpy(weights), torch.from_numpy(u)).tolist() == expected


def test_invert_on_the_boundary_of_blocks() -> None:
    """Weights at tokens 300 and 700 alone, in the second and third of three blocks of 256."""
    weights = torch.zeros(1, 768)
    weights[0, 300] = weights[0, 700] = 1.0
    # 0 lies in no mass of the first block; a half is exactly the mass of the second.
    for u, token in ((0.0, 300), (0.4999, 300), (0.5, 700), (1 - 2**-53, 700)):
        assert invert(weights, number(u)).item() == token


def test_the_largest_number_finds_the_last_token_with_weight() -> None:
    """Whatever the total, and though the last block is empty."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(5000, 400, generator=generator) * 10 ** (
        20 * torch.rand(5000, 1, generator=generator) - 10
    )
    weights[:, 200:] = 0
    assert (invert(weights, torch.full((5000,), 1 - 2**-53, dtype=torch.float64)) == 199).all()


@pytest.mark.parametrize("vocabulary", [1, 5, 256, 300, 1000])
def test_a_token_without_weight_is_never_drawn(vocabulary: int) -> None:
    """Also where the number falls on a boundary, at either end, and with weights of very unlike size."""
    rng = np.random.default_rng(1)
    weights = torch.from_numpy(10.0 ** rng.uniform(-30, 0, (200, vocabulary))).float()
    weights[torch.from_numpy(rng.random((200, vocabulary)) < 0.7)] = 0
    only = torch.from_numpy(rng.integers(0, vocabulary, 200))
    weights[torch.arange(200), only] = 1.0
    total = weights.double().sum(1)
    edges = (weights.double().cumsum(1)[:, vocabulary // 2] / total).clamp_max(1 - 2**-53)
    for u in (
        torch.zeros(200, dtype=torch.float64),
        torch.full((200,), 1 - 2**-53, dtype=torch.float64),
        edges,
    ):
        tokens = invert(weights, u)
        assert (weights.gather(1, tokens[:, None]) > 0).all()


def statistic(counts: Counter[int], probabilities: list[float]) -> tuple[float, int]:
    """Chi-square and its degrees of freedom, over the tokens that can be drawn."""
    possible = {token: p for token, p in enumerate(probabilities) if p > 0}
    assert set(counts) <= set(possible)
    total = sum(counts.values())
    value = sum((counts[token] - total * p) ** 2 / (total * p) for token, p in possible.items())
    return value, len(possible) - 1


@pytest.mark.parametrize(
    ("settings", "weights"),
    [
        ({}, [0.5, 0.25, 0.15, 0.06, 0.04]),
        ({"temperature": 0.5}, [0.25, 0.0625, 0.0225, 0.0036, 0.0016]),  # p^2
        ({"temperature": 2.0}, [math.sqrt(p) for p in PROBABILITIES]),
        ({"top_k": 2}, [0.5, 0.25, 0, 0, 0]),
        ({"top_p": 0.8}, [0.5, 0.25, 0.15, 0, 0]),  # 0.75 < 0.8, so the third is needed
        ({"min_p": 0.2}, [0.5, 0.25, 0.15, 0, 0]),  # at least 0.2 * 0.5
        ({"temperature": 0.5, "min_p": 0.2}, [0.25, 0.0625, 0, 0, 0]),  # at least 0.2 * 0.25
        # After top_k the three have 5/9, 5/18 and 3/18, and the first two hold 0.83.
        ({"top_k": 3, "top_p": 0.8}, [0.5, 0.25, 0, 0, 0]),
    ],
)
def test_frequencies_logprobs_and_kept_mass(settings: dict[str, float], weights: list[float]) -> None:
    logits = torch.tensor(PROBABILITIES).log().repeat(DRAWS, 1) + 3.0  # a shift changes nothing
    drawn = draw(logits, sampling(**settings), torch.from_numpy(np.random.default_rng(5).random(DRAWS)))
    probabilities = [w / sum(weights) for w in weights]
    value, freedom = statistic(Counter(drawn.token_N.tolist()), probabilities)
    assert value < CRITICAL[freedom]
    expected = torch.tensor(probabilities).log()[drawn.token_N]
    assert (drawn.logprob_N - expected).abs().max() < 1e-5
    whole = np.array(PROBABILITIES) ** (1 / settings.get("temperature", 1.0))
    whole /= whole.sum()
    if set(settings) <= {"temperature"}:
        assert drawn.kept_mass_N is None
    else:
        kept = sum(p for p, w in zip(whole, weights, strict=True) if w)
        assert drawn.kept_mass_N is not None
        assert (drawn.kept_mass_N - kept).abs().max() < 1e-6
    entropy = -(whole * np.log(whole)).sum()  # before truncation
    assert (drawn.entropy_N - entropy).abs().max() < 1e-5


def test_the_test_of_frequencies_can_fail() -> None:
    """Drawn at temperature 1.05 but held against temperature 1."""
    logits = torch.tensor(PROBABILITIES).log().repeat(DRAWS, 1)
    drawn = draw(logits, sampling(temperature=1.05), torch.from_numpy(np.random.default_rng(5).random(DRAWS)))
    value, freedom = statistic(Counter(drawn.token_N.tolist()), PROBABILITIES)
    assert value > CRITICAL[freedom]


def test_greedy_takes_the_most_likely_and_reports_temperature_one() -> None:
    logits = torch.tensor([0.2, 0.5, 0.3]).log()[None]
    # Truncation settings do not matter to the most likely token.
    for settings in ({}, {"top_k": 2, "top_p": 0.5, "min_p": 0.5}):
        drawn = draw(logits.clone(), sampling(temperature=0.0, **settings), number(0.999))
        assert drawn.token_N.tolist() == [1]
        assert drawn.logprob_N.item() == pytest.approx(math.log(0.5), abs=1e-6)
        assert drawn.kept_mass_N is None
        # 0.2 ln 5 + 0.5 ln 2 + 0.3 ln (10/3) = 0.3219 + 0.3466 + 0.3612
        assert drawn.entropy_N.item() == pytest.approx(1.0297, abs=5e-5)


def test_entropy_of_known_logits() -> None:
    for temperature, entropy in ((1.0, 1.0487), (0.6, 0.6698), (2.0, 1.2947)):
        logits = torch.tensor([[2.0, 1.0, 0.0, 0.0]])
        drawn = draw(logits, sampling(temperature=temperature, top_k=1), number(0.5))
        assert drawn.entropy_N.item() == pytest.approx(entropy, abs=5e-5)
        assert drawn.logprob_N.item() == pytest.approx(0.0, abs=1e-6)  # nothing else could be drawn


def test_tokens_that_the_model_rules_out() -> None:
    """A logit of minus infinity: never drawn, and no NaN in the entropy of the others."""
    logits = torch.tensor([[-math.inf, 0.0, -math.inf, 0.0]]).repeat(1000, 1)
    drawn = draw(logits, sampling(), torch.from_numpy(np.random.default_rng(0).random(1000)))
    assert set(drawn.token_N.tolist()) == {1, 3}
    assert (drawn.entropy_N - math.log(2)).abs().max() < 1e-6
    assert (drawn.logprob_N + math.log(2)).abs().max() < 1e-6


@pytest.mark.parametrize("vocabulary", [5, 256, 300])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("settings", [{}, {"temperature": 0.0}, {"top_k": 2, "top_p": 0.9, "min_p": 0.1}])
def test_what_is_not_finite_shows_in_the_logprob(
    settings: dict[str, float], bad: float, vocabulary: int
) -> None:
    for logits in (torch.full((2, vocabulary), bad), torch.zeros(2, vocabulary)):
        logits[0, 3] = bad
        drawn = draw(logits, sampling(**settings), number([0.3, 0.9]))
        assert drawn.logprob_N[0].isnan()
        assert (drawn.token_N < vocabulary).all()


@pytest.mark.parametrize(
    "settings",
    [
        {"top_p": 0.1},
        {"top_p": 0.5},
        {"top_p": 0.95},
        {"top_p": 0.999},
        {"top_k": 1},
        {"top_k": 7},
        {"top_k": 10_000},
        {"min_p": 0.05},
        {"min_p": 1.0},
        {"top_p": 0.9, "top_k": 20},
        {"top_p": 0.9, "top_k": 20, "min_p": 0.2},
        {"temperature": 0.7, "top_p": 0.8},
        {"temperature": 3.0, "top_p": 0.95, "min_p": 0.01},
    ],
)
@pytest.mark.parametrize("vocabulary", [50, 3000])
def test_the_tokens_kept_are_those_of_transformers(settings: dict[str, float], vocabulary: int) -> None:
    generator = torch.Generator().manual_seed(7)
    # Flat, middling and steep distributions, in float64 so that rounding decides nothing.
    scale = torch.tensor([0.1, 1.0, 4.0]).double().repeat_interleave(20)[:, None]
    logits = torch.randn(60, vocabulary, generator=generator, dtype=torch.float64) * scale
    warpers = LogitsProcessorList()
    if "temperature" in settings:
        warpers.append(TemperatureLogitsWarper(settings["temperature"]))
    if "top_k" in settings:
        warpers.append(TopKLogitsWarper(int(settings["top_k"])))
    if "top_p" in settings:
        warpers.append(TopPLogitsWarper(settings["top_p"]))
    if "min_p" in settings:
        warpers.append(MinPLogitsWarper(settings["min_p"]))
    theirs = warpers(torch.zeros(60, 1, dtype=torch.long), logits).softmax(-1)
    scaled = logits / settings.get("temperature", 1.0)
    weights = (scaled - scaled.amax(1, keepdim=True)).exp()
    ours = truncate(weights, sampling(**settings))
    assert torch.equal(ours > 0, theirs > 0)
    assert (ours / ours.sum(1, keepdim=True) - theirs).abs().max() < 1e-12
    drawn = draw(
        logits.float(), sampling(**settings), torch.rand(60, generator=generator, dtype=torch.float64)
    )
    assert (theirs.gather(1, drawn.token_N[:, None]) > 0).all()
    assert (drawn.logprob_N - theirs.gather(1, drawn.token_N[:, None])[:, 0].log()).abs().max() < 1e-4


def test_ties_at_the_edge_stay_together() -> None:
    weights = torch.tensor([[1.0, 0.5, 0.5, 0.1]])
    for settings in ({"top_k": 2}, {"top_p": 0.6}):  # 0.6 * 2.1 = 1.26 is reached by one of the two
        kept = truncate(weights, sampling(**settings))
        assert kept.tolist() == [[1.0, 0.5, 0.5, 0.0]]


def test_a_row_is_drawn_alike_alone_and_among_others() -> None:
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(30, 500, generator=generator) * 3
    u = torch.rand(30, generator=generator, dtype=torch.float64)
    settings = sampling(temperature=0.9, top_p=0.9, top_k=50, min_p=0.01)
    together = draw(logits.clone(), settings, u)
    for i in range(30):
        alone = draw(logits[i : i + 1].clone(), settings, u[i : i + 1])
        assert alone.token_N.item() == together.token_N[i].item()
        assert alone.logprob_N.item() == pytest.approx(together.logprob_N[i].item(), abs=1e-6)


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.0}, {"temperature": 0.7, "top_k": 20}])
@pytest.mark.parametrize("rows", [1, 3, 8])
def test_a_few_rows_at_a_time_are_all_of_them(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, float], rows: int
) -> None:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(8, 500, generator=generator) * 3
    logits[2, 100:] = -math.inf
    logits[5, 7] = logits[5, 9] = 30.0  # a tie
    u = torch.rand(8, generator=generator, dtype=torch.float64)
    greedy = torch.tensor([False] * 6 + [True] * 2)
    whole = draw(logits.clone(), sampling(**settings), u, None, greedy, keep_mass=True)
    monkeypatch.setattr("groupwise.rollouts.sampling._PART_ELEMENTS", rows * 500)
    parts = draw(logits.clone(), sampling(**settings), u, None, greedy, keep_mass=True)
    assert whole.mass_RV is not None
    assert (whole.mass_RV.amax(1) == 1).all()
    for name in ("token_N", "mass_RV", "kept_mass_N"):
        a, b = getattr(whole, name), getattr(parts, name)
        assert a is b is None or torch.equal(a, b)
    for name in ("logprob_N", "entropy_N", "before_N3"):
        torch.testing.assert_close(getattr(whole, name), getattr(parts, name), rtol=0, atol=1e-6)


def test_greedy_beside_others_has_the_log_probs_of_temperature_one() -> None:
    generator = torch.Generator().manual_seed(4)
    logits = torch.randn(4, 300, generator=generator) * 5
    right = logits.double().log_softmax(1).amax(1)
    u = torch.rand(6, generator=generator, dtype=torch.float64)
    row, greedy = torch.tensor([0, 0, 1, 2, 3, 3]), torch.tensor([True, False, True, False, False, True])
    for settings in ({"temperature": 0.1}, {"temperature": 2.0, "top_k": 9}):
        drawn = draw(logits.clone(), sampling(**settings), u, row, greedy)
        torch.testing.assert_close(drawn.logprob_N[greedy].double(), right[row[greedy]], rtol=0, atol=1e-6)
        none = draw(logits.clone(), sampling(**settings), u, row, torch.zeros(6, dtype=torch.bool))
        alone = draw(logits.clone(), sampling(**settings), u, row)
        assert torch.equal(none.logprob_N, alone.logprob_N)
        assert torch.equal(drawn.logprob_N[~greedy], alone.logprob_N[~greedy])


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.0}, {"top_k": 20, "top_p": 0.8}])
def test_rollouts_on_one_row_draw_as_if_each_had_its_own(settings: dict[str, float]) -> None:
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(3, 500, generator=generator) * 3
    u = torch.rand(40, generator=generator, dtype=torch.float64)
    row = torch.randint(0, 3, (40,), generator=generator)
    shared = draw(logits.clone(), sampling(**settings), u, row)
    own = draw(logits[row].clone(), sampling(**settings), u)
    assert settings.get("temperature") == 0 or len(set(shared.token_N.tolist())) > 3
    for name in ("token_N", "logprob_N", "entropy_N", "kept_mass_N"):
        a, b = getattr(shared, name), getattr(own, name)
        assert (a is None) == (b is None)
        assert a is None or (a - b).abs().max() < 1e-6


def test_uniforms_are_a_function_of_their_arguments() -> None:
    first = uniforms((0, 1), "a:0", 0, 5)
    # Written down once: a change would make old runs impossible to sample again.
    assert first[:3].tolist() == [0.6242890499774938, 0.5324208111030432, 0.8459191051588782]
    np.random.seed(99)
    torch.manual_seed(99)
    assert uniforms((0, 1), "a:0", 0, 5).tolist() == first.tolist()
    assert uniforms([np.int64(0), 1], "a:0", np.int64(0), 5).tolist() == first.tolist()
    # A longer limit goes on where a shorter one ended.
    assert uniforms((0, 1), "a:0", 0, 9)[:5].tolist() == first.tolist()
    others = [
        uniforms((0, 2), "a:0", 0, 5),
        uniforms((1, 1), "a:0", 0, 5),
        uniforms((0,), "a:0", 0, 5),
        uniforms((0, 1), "a:1", 0, 5),
        uniforms((0, 1), "a:0", 1, 5),
        uniforms((0, 1), "a:0'", 0, 5),
        uniforms((0, 1, 0), "a:0", 0, 5),
    ]
    everything = np.concatenate([first, *others])
    assert len(set(everything.tolist())) == len(everything)


def test_uniforms_are_uniform_across_rollouts() -> None:
    """Not only along a rollout: the first number over prompts and group indexes, in ten equal bins."""
    numbers = [uniforms((7, 3), f"data.jsonl:{row}", g, 1)[0] for row in range(1000) for g in range(5)]
    assert min(numbers) >= 0
    assert max(numbers) < 1
    counts = np.histogram(numbers, bins=10, range=(0, 1))[0]
    assert ((counts - 500) ** 2 / 500).sum() < CRITICAL[9]


SURE = [0.8, 0.15, 0.05]


def test_what_stands_after_a_redraw_by_hand() -> None:
    # One redraw above 0.7: 0.8 stands with 0.8 x 0.8 = 0.64, the others with p (1 + 0.8): 0.27 and 0.09. The sum is 1.
    stands = redrawn(torch.tensor([SURE]), ConfidenceConfig(threshold=0.7, redraws=1))
    torch.testing.assert_close(stands, torch.tensor([[0.64, 0.27, 0.09]]))
    # Two: 0.8^3 = 0.512, and p (1 + 0.8 + 0.64) = 2.44 p.
    twice = redrawn(torch.tensor([SURE]) * 3, ConfidenceConfig(threshold=0.7, redraws=2))
    torch.testing.assert_close(twice, torch.tensor([[0.512, 0.366, 0.122]]) * 3)
    # Below the threshold nothing changes, and a token with all the mass stands.
    plain = torch.tensor([[0.7, 0.3, 0.0], [0.0, 1.0, 0.0]])
    torch.testing.assert_close(redrawn(plain, ConfidenceConfig()), plain)


@pytest.mark.parametrize("redraws", [1, 3])
def test_redraws_are_those_of_the_process_and_their_log_probs_too(redraws: int) -> None:
    rng = np.random.default_rng(5)
    process: Counter[int] = Counter()
    for _ in range(DRAWS):  # the process itself: draw, and draw again while the token is too likely
        token = rng.choice(3, p=SURE)
        for _ in range(redraws):
            if SURE[token] > 0.7:
                token = rng.choice(3, p=SURE)
            else:
                break
        process[int(token)] += 1
    settings = sampling(confidence=ConfidenceConfig(threshold=0.7, redraws=redraws))  # type: ignore[arg-type]
    logits = torch.tensor(SURE).log().repeat(DRAWS, 1)
    drawn = draw(logits, settings, torch.from_numpy(rng.random(DRAWS)))
    said = {int(t): float(lp.exp()) for t, lp in zip(drawn.token_N, drawn.logprob_N, strict=True)}
    assert sum(said.values()) == pytest.approx(1.0, abs=1e-6)
    for counts in (process, Counter(drawn.token_N.tolist())):
        statistic = sum((counts[t] - DRAWS * said[t]) ** 2 / (DRAWS * said[t]) for t in range(3))
        assert statistic < CRITICAL[2]


def test_redraws_act_after_truncation_and_leave_greedy_rows_alone() -> None:
    # top-k 2 keeps 0.8 and 0.15, that is 0.842 and 0.158; redrawn once: 0.842^2 = 0.709 and 0.158 x 1.842 = 0.291.
    settings = sampling(top_k=2, confidence=ConfidenceConfig())  # type: ignore[arg-type]
    drawn = draw(
        torch.tensor([SURE]).log(),
        settings,
        torch.tensor([0.0, 0.999, 0.999], dtype=torch.float64),
        torch.tensor([0, 0, 0]),
        torch.tensor([False, False, True]),
    )
    assert drawn.token_N.tolist() == [0, 1, 0]
    expected = [(0.8 / 0.95) ** 2, 0.15 / 0.95 * (1 + 0.8 / 0.95), 0.8]
    np.testing.assert_allclose(drawn.logprob_N.exp().numpy(), expected, atol=1e-6)
    assert drawn.kept_mass_N is not None
    np.testing.assert_allclose(drawn.kept_mass_N.numpy(), [0.95, 0.95, 1.0], atol=1e-6)


def test_without_confidence_the_same_tokens_are_drawn_with_the_same_log_probs() -> None:
    rng = np.random.default_rng(0)
    logits, u = (
        torch.from_numpy(rng.normal(size=(200, 50)).astype(np.float32)),
        torch.from_numpy(rng.random(200)),
    )
    plain = draw(logits.clone(), sampling(), u)
    never = draw(logits.clone(), sampling(confidence=ConfidenceConfig(threshold=0.999999)), u)  # type: ignore[arg-type]
    assert torch.equal(plain.token_N, never.token_N)
    assert torch.equal(plain.logprob_N, never.logprob_N)
