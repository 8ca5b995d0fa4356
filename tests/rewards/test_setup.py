from pathlib import Path
from typing import Any

import pytest

import groupwise
from groupwise.config import load
from groupwise.config.rewards import RewardConfig
from groupwise.errors import ConfigError, DataError
from groupwise.rewards import build
from tests.rewards.examples import HERE, fragile, fragile_later, one, values


def third(completions: list[str]) -> list[float]:
    return [0.0] * len(completions)


def test_weights_beside_the_functions() -> None:
    rewards = build([], base=HERE, functions=[fragile, third], weights=[0.5, -2])
    assert rewards.weighted == (("fragile", 0.5), ("third", -2.0))


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ([1.0, 2.0], "there are 3 reward functions but 2 weights; give one weight per function"),
        ([1.0] * 4, "there are 3 reward functions but 4 weights"),
        ([], "there are 3 reward functions but 0 weights"),
        ([1, 2, "x"], "reward function 2: the weight 'x' is not a finite number"),
        ([1, 2, float("nan")], "reward function 2: the weight nan is not a finite number"),
        ([1, 2, True], "the weight True is not a finite number"),
        ("123", "the weights of the rewards are '123'"),
        (3.0, "the weights of the rewards are 3.0"),
        ({"fragile": 1}, "the weights of the rewards are"),
        ([0, 0, 0], "the weight of every reward is 0"),
    ],
)
def test_wrong_weights_have_a_sentence_before_any_model_is_loaded(
    weights: Any, said: str, tmp_path: Any
) -> None:
    functions = [fragile, fragile_later, third]
    with pytest.raises(ConfigError, match=said):
        build([], base=HERE, functions=functions, weights=weights)
    config = {"model": str(tmp_path / "no model is here"), "run": {"dir": str(tmp_path / "run")}}
    with pytest.raises(ConfigError, match=said):
        groupwise.train(config, rewards=functions, reward_weights=weights, train=[{"prompt": "a"}])


def test_weights_and_pairs_are_one_too_many() -> None:
    with pytest.raises(ConfigError, match="reward function 1 is a pair, and weights were given as well"):
        build([], base=HERE, functions=[fragile, (third, 2)], weights=[1, 1])


def test_a_function_takes_what_an_entry_of_a_configuration_has() -> None:
    gate = {"reward": "ok", "at_least": 0.5}
    functions = [(third, {"label": "ok", "weight": 3}), (fragile, {"on_failure": "drop", "gate": gate})]
    rewards = build([], base=HERE, functions=functions)
    assert rewards.weighted == (("ok", 3.0), ("fragile", 1.0))


def test_settings_and_columns_stand_beside_a_function() -> None:
    def at_most(completions: list[str], *, limit: int = 1, words: list[str]) -> list[float]:
        return [
            float(len(said) <= limit and said in own) for said, own in zip(completions, words, strict=True)
        ]

    beside = {"settings": {"limit": 3}, "columns": {"words": "allowed"}}
    assert values(one((at_most, beside)), ["abc", "abcd"], columns={"allowed": [["abc"], ["abcd"]]}) == [
        1.0,
        0.0,
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"wait": 2}, "reward function 0: there is no 'wait' beside a function"),
        ({"timeout_second": 2}, "did you mean 'timeout_seconds'"),
        ({"name": "exact"}, "there is no 'name' beside a function"),
        ({"settings": {"odd": 1}}, "settings: .*'odd'"),
        ({"on_failure": "ignore"}, "reward function 0: on_failure: 'ignore' should be 'fail', 'drop' or 'value'"),
        ({"on_failure": "value"}, "failure_value goes with on_failure: value"),
        ({"timeout_seconds": 0}, "timeout_seconds: 0 should be greater than 0"),
        ({"workers": 0}, "workers: 0 should be greater than or equal to 1"),
        ({"smoothing": 0.5}, "smoothing is of the statistics that normalise"),
        ({"normalise": "batch", "smoothing": 1}, "smoothing: 1"),
        ({"schedule": [[5, 1.0], [5, 2.0]]}, r"its steps are \[5, 5\], but each point must be of a later step"),
        ({"schedule": [[-1, 1.0]]}, "schedule"),
        ({"schedule": [[0, 0.0], [9, 0.0]]}, "the weight of every reward is 0"),
        ({"weight": 0, "normalise": "group", "schedule": [[0, 1.0]]}, "only watched and normalise and schedule would"),
        ({"gate": {"reward": "fragile"}}, "the function fragile.gate.reward is 'fragile', the reward itself"),
        ({"gate": {"reward": "fragil"}}, "no reward has the label 'fragil'; did you mean 'fragile'"),
        ({"gate": {"at_least": 1}}, "gate.reward: it is missing"),
        ({"label": "a/b"}, "has a slash"),
    ],
)  # fmt: skip
def test_wrong_options_have_a_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build([], base=HERE, functions=[(fragile, options)])


def test_two_rewards_of_one_label_are_refused_wherever_they_come_from() -> None:
    with pytest.raises(ConfigError, match="the label 'right' is given to two rewards"):
        build([RewardConfig(name="exact", label="right")], base=HERE, functions=[(third, {"label": "right"})])


def test_a_gate_in_a_configuration_names_a_label() -> None:
    entries = [{"name": "numeric"}, {"name": "exact", "gate": {"reward": "numerik"}}]
    with pytest.raises(
        ConfigError, match=r"rewards\[1\].gate.reward: no reward has the label 'numerik'; did you mean"
    ):
        build(load({"rewards": entries}).config.rewards, base=HERE)


@pytest.mark.parametrize(
    ("entry", "column"),
    [
        ("keywords", "keywords"),
        ("language", "language"),
        ({"name": "http", "settings": {"url": "http://localhost:9/", "send": ["gold"]}}, "gold"),
    ],
)
def test_a_column_that_only_the_settings_make_necessary_is_missed_before_a_model_is_loaded(
    tmp_path: Path, entry: Any, column: str
) -> None:
    from groupwise.config import load
    from groupwise.training.inputs import read_inputs

    rows = [{"prompt": "Say it."}]
    with pytest.raises(DataError, match=f"needs the column '{column}'"):
        read_inputs(load({"rewards": [entry]}, base=tmp_path), train=rows)
    given = {"keywords": ["a"], "language": "en", "gold": 1}
    read_inputs(
        load({"rewards": [entry]}, base=tmp_path), train=[{**row, column: given[column]} for row in rows]
    )
    enough = {"keywords": {"words": ["a"]}, "language": {"code": "en"}}
    if column in enough:
        read_inputs(load({"rewards": [{"name": column, "settings": enough[column]}]}), train=rows)
