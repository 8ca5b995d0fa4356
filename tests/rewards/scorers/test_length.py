import math

import pytest

from groupwise.rewards.scorers.length import length


def test_the_penalty_grows_past_the_target() -> None:
    ids = [list(range(n)) for n in (0, 3, 4, 7)]
    # -0.5 x max(0, n - 3) for n = 0, 3, 4, 7.
    assert length(["", "", "", ""], ids, target=3, alpha=0.5) == [0.0, 0.0, -0.5, -2.0]


def test_characters_and_words_are_those_of_the_text() -> None:
    chat = [{"role": "assistant", "content": "héllo"}]
    assert length(["ab", chat], target=2, alpha=1.0, unit="characters") == [0.0, -3.0]  # 5 - 2
    assert length(["one two\n three  four", chat], target=2, alpha=1.0, unit="words") == [-2.0, 0.0]  # 4 - 2


def test_no_negative_zero() -> None:
    assert math.copysign(1, length(["a"], [[1]], target=1)[0]) == 1.0


def test_tokens_need_token_ids() -> None:
    with pytest.raises(ValueError, match="set unit to words or characters"):
        length(["a"], target=1)
