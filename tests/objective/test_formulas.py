"""The printed formulas are computed as they stand, and must give what the code gives."""

import functools
import math
import re
from typing import Any

import numpy as np
import pytest
import torch

from groupwise import registry
from groupwise.config.choice import check_settings
from groupwise.objective import kl, overlong, ratios
from tests.objective.formulas import product_signs, value

REWARDS = [np.array([1.0, 2.0, 4.0, 2.0]), np.array([0.0, -3.0, 0.5, 7.25, 0.5])]
DOUBLE = torch.float64


def chosen(package: str, name: str, settings: dict[str, Any]) -> tuple[Any, str]:
    """A function of a registry with settings, and its formulas with all of them filled in."""
    function = registry.find(f"groupwise.objective.{package}", name)
    every = check_settings(function, settings)
    namespace = function.__globals__
    formula = namespace["FORMULA"].format(**every)
    for key, given in every.items():
        if given is not None and f"FORMULA_{key.upper()}" in namespace:
            formula += namespace[f"FORMULA_{key.upper()}"].format(**every)
    return functools.partial(function, **every), formula


def std_of(formula: str) -> Any:
    ddof = 1 if "sample" in formula else 0
    return lambda r: np.std(r, ddof=ddof)


def places(r: np.ndarray) -> np.ndarray:
    return np.array([(np.sum(r < x) + np.sum(r <= x) - 1) / 2 for x in r])


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("group_zscore", {}),
        ("group_zscore", {"std": "population", "eps": 0.25}),
        ("group_mean", {}),
        ("leave_one_out", {}),
        ("sign", {}),
        ("rank", {}),
    ],
)
@pytest.mark.parametrize("rewards", REWARDS, ids=["four", "five"])
def test_advantages(name: str, settings: dict[str, Any], rewards: np.ndarray) -> None:
    function, formula = chosen("advantages", name, settings)
    functions = {"std": std_of(formula), "rank": places}
    formula = formula.replace("rank(r)_i", "rank(r)")
    found = value(formula, {"r": rewards, "r_i": rewards, "G": len(rewards)}, functions)
    np.testing.assert_allclose(found, function(rewards), rtol=1e-12, atol=1e-14)


def test_the_rank_hands_over_to_the_formula_behind_the_colon() -> None:
    function, formula = chosen("advantages", "rank", {"zscore_above": 0.5})
    after = re.search(r"is above 0\.5: (.*), with", formula)
    assert after is not None
    for rewards in REWARDS:
        names = {"r": rewards, "r_i": rewards}
        np.testing.assert_allclose(
            value(after[1], names, {"std": std_of("sample")}), function(rewards), rtol=1e-12
        )


@pytest.mark.parametrize("of", ["rewards", "deviations"])
@pytest.mark.parametrize("std", ["sample", "population"])
def test_the_z_score_of_the_batch(of: str, std: str) -> None:
    function, formula = chosen("advantages", "batch_zscore", {"spread_of": of, "std": std, "eps": 0.5})
    assert f"batch_std: {std}, of the batch's {of}" in formula
    groups = np.repeat([0, 1], [4, 5])
    every = np.concatenate(REWARDS if of == "rewards" else [r - r.mean() for r in REWARDS])
    names = {"batch_std": std_of(std)(every)}
    expected = [value(formula, {**names, "r": r, "r_i": r}) for r in REWARDS]
    np.testing.assert_allclose(
        function(np.concatenate(REWARDS), groups), np.concatenate(expected), rtol=1e-12
    )


def test_the_greedy_baseline() -> None:
    function, formula = chosen("advantages", "greedy_baseline", {})
    expected = value(formula.replace("r(greedy)", "greedy"), {"r_i": REWARDS[0], "greedy": 1.5})
    np.testing.assert_allclose(function(REWARDS[0], np.full(4, 1.5)), expected, rtol=1e-12)


def test_generalised_advantages() -> None:
    function, formula = chosen("advantages", "gae", {"gamma": 0.9, "lam": 0.5, "whiten": False})
    found = re.search(r"A_t = sum_l (\(.*\))\^l d_\(t\+l\),  d_t = (.*),  V from", formula)
    assert found is not None
    factor = value(found[1].replace("x", "*"), {})
    rewards, values = np.array([1.0, -2.0, 4.0]), np.array([0.5, 0.25, -1.0])
    step = found[2].replace("V_(t+1)", "after")
    after = [*values[1:], 0.0]
    d = [
        value(step, {"r_t": r, "V_t": v, "after": a}) for r, v, a in zip(rewards, values, after, strict=True)
    ]
    expected = [sum(factor**k * d[t + k] for k in range(3 - t)) for t in range(3)]
    np.testing.assert_allclose(function((rewards,), (values,))[0], expected, rtol=1e-12)


def test_whitening() -> None:
    function, formula = chosen("advantages", "token_whitening", {"discount": 0.5, "eps": 0.25})
    step = re.search(r"R_t = (.*); ", formula)
    assert step is not None
    step_text = step[1].replace("R_(t+1)", "later")
    batch = (np.array([1.0, -2.0, 4.0]), np.array([0.5]))
    returns = []
    for rewards in batch:
        later, found = 0.0, []
        for r in rewards[::-1]:
            later = value(step_text, {"r_t": r, "later": later})
            found.append(later)
        returns.append(np.array(found[::-1]))
    every = np.concatenate(returns)
    expected = [value(formula, {"R": every, "R_t": one}, {"std": std_of("population")}) for one in returns]
    for got, right in zip(function(batch), expected, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("clip", {}),
        ("clip", {"low": 0.1, "high": 0.28}),
        ("cispo", {}),
        ("cispo", {"bound": 1.5}),
        ("policy_gradient", {}),
        ("policy_gradient", {"weight": "ratio"}),
    ],
)
def test_surrogates(name: str, settings: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    rho, advantages, policy = rng.uniform(0.2, 6, 50), rng.normal(size=50), -rng.exponential(size=50)
    function, formula = chosen("surrogates", name, settings)
    names = {"rho": rho, "A": advantages, "policy_t": policy, "logprob": policy, "ratio": rho}
    got = function(*(torch.from_numpy(x) for x in (rho, advantages, policy))).numpy()
    np.testing.assert_allclose(value(formula, names), got, rtol=1e-12)


def test_the_dual_clip() -> None:
    function, formula = chosen("surrogates", "clip", {"dual": 3.0})
    floor = re.search(r"; for A < 0 at least (.*)$", formula)
    assert floor is not None
    rho, advantages = np.array([5.0, 2.0, 5.0]), np.array([-2.0, -2.0, 2.0])
    names = {"rho": rho, "A": advantages}
    expected = np.where(
        advantages < 0, np.maximum(value(formula, names), value(floor[1], names)), value(formula, names)
    )
    got = function(torch.from_numpy(rho), torch.from_numpy(advantages), torch.zeros(3, dtype=DOUBLE)).numpy()
    np.testing.assert_allclose(expected, got, rtol=1e-12)


@pytest.mark.parametrize("name", sorted(kl.KL_ESTIMATORS))
def test_kl_estimators(name: str) -> None:
    rng = np.random.default_rng(1)
    policy, reference, rho = (-rng.exponential(size=20) for _ in range(3))
    formula = kl.FORMULAS[name]
    definition = re.search(r",  d = (.*)$", formula)
    assert definition is not None
    difference = value(definition[1], {"policy_t": policy, "reference_t": reference})
    got = kl.KL_ESTIMATORS[name](*(torch.from_numpy(x) for x in (policy, reference, rho))).numpy()
    np.testing.assert_allclose(value(formula, {"d": difference, "rho_t": rho}), got, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("name", sorted(ratios.RATIOS))
def test_ratios(name: str) -> None:
    policy, old = np.array([-1.0, -2.0, -0.5]), np.array([-1.5, -1.0, -0.25])
    # A sum written without parentheses around what is summed reaches to the end of its own parenthesis.
    formula = re.sub(r"sum_t (\(policy_t - old_t\))", r"sum\1", ratios.FORMULAS[name])
    expected = np.broadcast_to(value(formula, {"policy_t": policy, "old_t": old, "T_i": 3}), 3)
    log_ratio = torch.from_numpy(policy - old)
    log_rho = ratios.RATIOS[name](log_ratio, torch.zeros(3, dtype=torch.long), 1)
    np.testing.assert_allclose(expected, ratios.ratio(log_rho)[0].numpy(), rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("sequence_mean", {}), ("token_mean", {}), ("constant", {"length": 7}), ("sequence_sum", {})],
)
def test_aggregations(name: str, settings: dict[str, Any]) -> None:
    function, formula = chosen("aggregations", name, settings)
    tokens = np.array([1, 3, 5])
    # What stands before the sums and between them is the weight of one token.
    weight = formula.replace("sum_i T_i", "total").replace("sum_i", "").replace("sum_t", "").strip()
    names = {"N": 3, "T_i": tokens, "total": tokens.sum()}
    expected = np.broadcast_to(value(weight, names) if weight else 1.0, 3)
    np.testing.assert_allclose(function(tokens), expected, rtol=1e-12)


@pytest.mark.parametrize(("tokens", "expected"), [(12, None), (15, None), (20, -2.0)])
def test_the_soft_penalty(tokens: int, expected: float | None) -> None:
    formula = overlong.FORMULA.format(penalty=2.0, start=12, buffer=8, limit=20)
    less = re.match(r"r_i less (.*), from 12 tokens on, in all 2 at 20$", formula)
    assert less is not None
    got = overlong.soft_overlong(tokens, limit=20, buffer=8, penalty=2.0)
    assert got == pytest.approx(-value(less[1], {"T_i": tokens}), abs=1e-15)
    assert expected is None or got == expected


CONTROLLERS: list[tuple[str, dict[str, Any], str]] = [
    (
        "interval",
        {"low": 2.0, "high": 9.0, "factor": 3.0},
        r"beta (x 3) after .* above 9 nats, (/ 3) below 2",
    ),
    (
        "proportional",
        {"target": 4.0},
        r"beta x (\(1 \+ 0\.1 e\)) after each step,  e = \(KL per rollout / 4 - 1\)",
    ),
]


@pytest.mark.parametrize(("name", "settings", "pattern"), CONTROLLERS)
def test_controllers(name: str, settings: dict[str, Any], pattern: str) -> None:
    function, formula = chosen("kl_controllers", name, settings)
    found = re.search(pattern, formula)
    assert found is not None, formula
    if name == "interval":
        for rollout, factor in ((10.0, found[1]), (1.0, found[2])):
            expected = value(f"0.1 {factor.replace('x', '*')}", {})
            assert function(0.1, 0.1, 0, math.nan, rollout) == pytest.approx(expected, rel=1e-12)
    else:
        expected = 0.1 * value(found[1], {"e": 4.4 / 4 - 1})
        assert function(0.1, 0.1, 0, math.nan, 4.4) == pytest.approx(expected, rel=1e-12)


def test_every_formula_of_numbers_is_evaluated_here() -> None:
    """A new file has to be added above, or here with what stands for it."""
    tested = {
        "advantages": {
            "group_zscore",
            "group_mean",
            "leave_one_out",
            "sign",
            "rank",
            "batch_zscore",
            "token_whitening",
            "greedy_baseline",
            "gae",
        },
        "surrogates": {"clip", "cispo", "policy_gradient"},
        "aggregations": {"sequence_mean", "token_mean", "constant", "sequence_sum"},
        "kl_controllers": {"interval", "proportional"},
    }
    in_words = {
        "advantages": {"length_buckets"},  # names another estimator
        "kl_controllers": {"fixed", "warmup_decay"},
    }
    for package, names in tested.items():
        known = set(registry.names(f"groupwise.objective.{package}"))
        assert known == names | in_words.get(package, set()), package


def test_a_formula_is_read_as_people_read_it() -> None:
    assert product_signs("rho A") == "rho * A"
    assert product_signs("min(rho A, 2 A)") == "min ( rho * A , 2 * A )"
    assert product_signs("(1/N) T_i x^2") == "( 1 / N ) * T_i * x ** 2"
    assert value("A_i = 2 x (y + 1),  x: of something", {"x": 3.0, "y": 4.0}) == 30.0


@pytest.mark.parametrize("wrong", ["A_i = r_i + mean(r)", "A_i = mean(r) - r_i", "A_i = r_i - mean(r) / 2"])
def test_a_wrong_formula_would_be_noticed(wrong: str) -> None:
    function, _ = chosen("advantages", "group_mean", {})
    assert not np.allclose(value(wrong, {"r": REWARDS[0], "r_i": REWARDS[0]}), function(REWARDS[0]))
