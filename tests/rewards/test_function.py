import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.config import load
from groupwise.config.rewards import RewardConfig
from groupwise.errors import ConfigError, DataError
from groupwise.rewards import build
from tests.rewards.examples import HERE, fragile, one, pairs, values


def named(prompts, completions, gold, extra=None, *, scale: float = 1.0):  # type: ignore[no-untyped-def]
    return [scale * float(c == g) for c, g in zip(completions, gold, strict=True)]


def test_a_missing_column_is_named_with_the_nearest_and_the_remedy() -> None:
    rewards = one(named, label="mine")
    assert rewards.needs == {"mine": ("gold",)}
    with pytest.raises(DataError) as caught:
        rewards.check_columns(["golds", "id"], "train.jsonl")
    assert str(caught.value) == (
        "train.jsonl: the reward 'mine' needs the column 'gold', but there are golds, id; did you mean 'golds'? "
        "Set rewards[0].columns: {gold: golds}"
    )
    rewards.check_columns(["gold"], "train.jsonl")
    mapped = one(named, columns={"gold": "golds"})
    assert mapped.needs == {"named": ("golds",)}
    mapped.check_columns(["golds", "id"], "train.jsonl")
    assert values(mapped, ["x"], columns={"golds": ["x"]}) == [1.0]
    with pytest.raises(
        DataError, match=r"the data: the reward 'named' needs the column 'gold', but there are none"
    ):
        values(one(named), ["x"])


def test_a_misspelt_argument_is_told_from_a_column() -> None:
    with pytest.raises(DataError, match="did you mean the argument 'completions'"):
        one(lambda completion: [1.0]).check_columns(["answer"], "train.jsonl")


def test_a_setting_may_not_have_the_name_of_a_column() -> None:
    with pytest.raises(DataError) as caught:
        one(named, settings={"scale": 2}).check_columns(["gold", "scale"], "train.jsonl")
    assert str(caught.value) == (
        "train.jsonl: the column 'scale' has the name of a setting of the reward 'named'; rename the column"
    )
    with pytest.raises(DataError, match=r"or, to read it, set rewards\[0\].columns: \{scale: scale\}"):
        one(named, label="n").check_columns(["gold", "scale"], "train.jsonl")
    build([RewardConfig(name="length")], base=HERE).check_columns(["target"], "train.jsonl")


def test_a_column_that_some_prompts_lack_is_none_there() -> None:
    prompts, rollouts = pairs(["x", "y"], columns={"gold": ["x", "y"]})
    object.__setattr__(prompts[1], "columns", {})
    assert [v.reward for v in one(named).score(prompts, rollouts)] == [1.0, 0.0]


def test_a_column_with_the_name_of_an_argument_is_reached_by_mapping() -> None:
    def reward(completions, theirs):  # type: ignore[no-untyped-def]
        return [float(c == t) for c, t in zip(completions, theirs, strict=True)]

    rewards = one(reward, columns={"theirs": "completions"})
    assert values(rewards, ["x", "y"], columns={"completions": ["x", "x"]}) == [1.0, 0.0]


def test_prompts_of_other_rollouts_are_refused() -> None:
    prompts, rollouts = pairs(["a", "b"])
    with pytest.raises(
        ValueError, match=r"rollout 0 is of prompt data\.jsonl:0, but prompt 0 is data\.jsonl:1"
    ):
        one(fragile).score(prompts[::-1], rollouts)


def test_settings_are_checked_and_passed() -> None:
    assert values(one(named, settings={"scale": "2.5"}), ["x"], columns={"gold": ["x"]}) == [2.5]


def star(completions, **kwargs):  # type: ignore[no-untyped-def]
    return [0.0] * len(completions)


def by_position(completions, /):  # type: ignore[no-untyped-def]
    return [0.0]


def by_star(*args):  # type: ignore[no-untyped-def]
    return [0.0]


def nothing():  # type: ignore[no-untyped-def]
    return [0.0]


@pytest.mark.parametrize(
    ("function", "config", "said"),
    [
        (
            named,
            {"settings": {"scales": 2}},
            r"rewards\[0\].settings: named has no setting 'scales'; did you mean 'scale'",
        ),
        (named, {"settings": {"scale": "big"}}, r"rewards\[0\].settings: scale: 'big' is not a number"),
        (named, {"settings": {"gold": "x"}}, r"'gold' of named is filled from the rollouts or the data"),
        (
            named,
            {"settings": {"scale": 1}, "columns": {"scale": "s"}},
            "'scale' is given in settings and in columns",
        ),
        (named, {"columns": {"goal": "g"}}, r"named has no argument 'goal'; did you mean 'gold'"),
        (
            named,
            {"columns": {"completions": "c"}},
            "'completions' comes from the rollouts, not from a column",
        ),
        (star, {"settings": {"k": 2}}, "star has no setting 'k'; it has none"),
        (star, {"settings": {"prompts": 2}}, "'prompts' of star is filled from the rollouts"),
        (by_position, {}, "takes 'completions' by position only"),
        (
            by_star,
            {},
            r"by_star takes its arguments by position, .* write def by_star\(completions, \*\*columns\)",
        ),
        (nothing, {}, "nothing takes no arguments, but rewards are called with keywords"),
        (dict, {}, "dict is a class; give an instance"),
        (named, {"weight": 0}, "the weight of every reward is 0"),
    ],
)
def test_what_cannot_work_is_refused_when_built(function: Any, config: dict[str, Any], said: str) -> None:
    import tests.rewards.examples as examples

    examples.chosen = function
    with pytest.raises(ConfigError, match=said):
        build([RewardConfig(name="tests.rewards.examples:chosen", **config)], base=HERE.parents[1])


@pytest.mark.parametrize(
    ("functions", "said"),
    [
        ([], "there is no reward"),
        (["numeric"], "reward function 0 is a str"),
        ([(star, 1.0, 2.0)], "a pair is \\(function, weight\\), but this has 3 items"),
        ([star, (star, "1")], "reward function 1: the weight '1' is not a finite number"),
        ([(star, math.nan)], "the weight nan is not a finite number"),
        ([(star, 10**400)], "the weight 1000.* is not a finite number"),
        ([star, 2], r"reward function 1 is the number 2; a weight stands in a pair .* \[\(function, 2\)\]"),
        ([[star]], "a pair is .*, but this has 1 items"),
        ([by_star], "by_star takes its arguments by position"),
        ([nothing], "nothing takes no arguments"),
        ([(star, True)], "the weight True is not"),
        ([(star, 0)], "the weight of every reward is 0"),
        ([dict], "dict is a class"),
        ([max], "cannot be read; wrap it in a Python function"),
    ],
)
def test_wrong_functions_given_in_python_are_refused(functions: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build([], base=HERE, functions=functions)


def test_labels_of_the_configuration_come_first() -> None:
    configs = [
        RewardConfig(name="length"),
        RewardConfig(name="length", label="length_2"),
        RewardConfig(name="length"),
    ]
    assert build(configs, base=HERE, functions=[(star, 0)]).labels == (
        "length",
        "length_2",
        "length_3",
        "star",
    )


def test_an_unknown_scorer_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"rewards\[1\]: .*'numerc': did you mean 'numeric'"):
        build([RewardConfig(name="exact"), RewardConfig(name="numerc")], base=HERE)


def test_a_function_in_a_file_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def shout(completions):\n    return [float(c.isupper()) for c in completions]\n"
    )
    rewards = build([RewardConfig(name="mine.py:shout", weight=2)], base=tmp_path)
    assert rewards.labels == ("shout",)
    assert values(rewards, ["A", "a"]) == [2.0, 0.0]
    (tmp_path / "broken.py").write_text("import nonexistent_package_x\n")
    with pytest.raises(ConfigError, match=r"rewards\[0\]: .*nonexistent_package_x"):
        build([RewardConfig(name="broken.py:f")], base=tmp_path)


def test_a_built_in_scorers_settings_are_checked_together_when_built() -> None:
    with pytest.raises(ConfigError, match=r"rewards\[0\] \(format\): give pattern or tags"):
        build([RewardConfig(name="format")], base=HERE)


def test_pairs_may_be_lists_and_weights_numpys() -> None:
    rewards = build([], base=HERE, functions=[[star, 2], (named, np.float32(0.5)), (star, np.int64(3))])  # type: ignore[list-item]
    assert rewards.weighted == (("star", 2.0), ("named", 0.5), ("star_2", 3.0))
    assert all(type(weight) is float for _, weight in rewards.weighted)


def test_the_first_row_that_lacks_a_column_is_named() -> None:
    rewards = one(named)
    rows = [("d line 1", ["gold"]), ("d line 4", ["gold", "id"]), ("d line 5", ["id"]), ("d line 6", ["id"])]
    rewards.check_rows(rows[:2], "d")
    with pytest.raises(
        DataError, match=r"^d line 5: the reward 'named' needs the column 'gold', which other rows"
    ):
        rewards.check_rows(rows, "d")
    with pytest.raises(DataError, match=r"^d: the reward 'named' needs the column 'gold', but there are id"):
        rewards.check_rows(rows[2:], "d")


@pytest.mark.parametrize("label", ["", "  ", "a/b", "a\nb", "a\tb"])
def test_a_label_is_a_name_on_one_line(label: str) -> None:
    with pytest.raises(
        ConfigError, match=r"rewards\[0\].label: it (is empty|has ).*a label is a name on one line"
    ):
        load({"rewards": [{"name": "numeric", "label": label}]})

    def unnamed(completions: list[str]) -> list[float]:
        return [0.0] * len(completions)

    unnamed.__name__ = label
    with pytest.raises(ConfigError, match=r"its name (is empty|has)"):
        build([], base=HERE, functions=[unnamed])
