from pathlib import Path
from typing import Annotated, Literal

import pytest
from annotated_types import Ge, Lt, MinLen

from groupwise import registry
from groupwise.config.choice import Choice, as_choice, check_settings, path_settings
from groupwise.config.objective import ADVANTAGES, SURROGATES


def function(
    rewards: list[float],
    *,
    count: Annotated[int, Ge(1)] = 2,
    share: Annotated[float, Ge(0), Lt(1)] = 0.5,
    bound: Annotated[float, Ge(0)] | None = None,
    kind: Literal["a", "b"] = "a",
    flag: bool = False,
    anything=(),
) -> list[float]:
    return rewards


def test_settings_are_converted_by_the_types_of_the_signature_and_defaults_are_stated() -> None:
    found = check_settings(
        function, {"count": "4.0", "share": "1e-3", "bound": 3, "flag": "yes", "anything": [1]}
    )
    assert found == {"count": 4, "share": 1e-3, "bound": 3.0, "kind": "a", "flag": True, "anything": [1]}
    assert type(found["count"]) is int
    assert type(found["bound"]) is float
    assert check_settings(function, {})["bound"] is None
    assert check_settings(function, {"bound": None})["bound"] is None


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"count": 0}, "count: 0 should be greater than or equal to 1"),
        ({"count": 1.5}, "count: 1.5 is not a whole number"),
        ({"share": 1}, "share: 1 should be less than 1"),
        ({"share": True}, "share: true and false are not numbers"),
        ({"bound": "None"}, "write null for no value"),
        ({"kind": "c"}, "kind: 'c' should be 'a' or 'b'"),
        ({"flag": 1}, "flag: 1 is neither true nor false"),
        ({"cuont": 3}, "function has no setting 'cuont'; did you mean 'count'?"),
        ({"rewards": 3}, "function has no setting 'rewards'"),
    ],
)
def test_wrong_settings_are_named(given: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError) as caught:
        check_settings(function, given)
    assert why in str(caught.value)


def test_a_name_alone_is_a_choice_with_every_default_stated() -> None:
    choice = Choice.model_validate(as_choice("group_zscore")).checked(ADVANTAGES)
    assert choice.model_dump() == {"name": "group_zscore", "std": "sample", "eps": 1e-4}
    assert choice.settings == {"std": "sample", "eps": 1e-4}


def test_a_bound_choice_computes_with_its_settings() -> None:
    import numpy as np

    choice = Choice.model_validate({"name": "group_zscore", "std": "population", "eps": 0.0})
    assert choice.bind(ADVANTAGES)(np.array([0.0, 2.0])).tolist() == [-1.0, 1.0]


def test_a_function_of_ones_own_is_found_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def halves(rewards_G, *, by: float = 2.0):\n    return rewards_G / by\n"
    )
    choice = Choice.model_validate({"name": "mine.py:halves", "by": "4"}).checked(ADVANTAGES, base=tmp_path)
    assert choice.settings == {"by": 4.0}
    assert choice.bind(ADVANTAGES, base=tmp_path)(8.0) == 2.0


def test_unknown_names_list_what_there_is() -> None:
    with pytest.raises(ValueError, match="no surrogates entry is called 'klip': did you mean 'clip'"):
        Choice(name="klip").checked(SURROGATES)


def test_settings_that_are_files_are_marked() -> None:
    def plain(completions: list[str], *, words: int = 3) -> list[float]:
        return []

    assert path_settings(plain) == {}
    assert list(path_settings(registry.find("groupwise.rewards.scorers", "judge"))) == ["cache"]
    assert list(path_settings(registry.find("groupwise.rewards.scorers", "reward_model"))) == ["model"]


def test_a_list_that_is_too_short_is_told_in_plain_words() -> None:
    def sized(
        values: list[float], *, sizes: Annotated[tuple[int, ...], MinLen(3)] = (1, 2, 3)
    ) -> list[float]:
        return values

    with pytest.raises(ValueError, match=r"^sizes: \[1\] should have at least 3 items, not 1$"):
        check_settings(sized, {"sizes": [1]})
