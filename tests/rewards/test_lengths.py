import pytest

from groupwise.rewards.lengths import lengths_of


def test_each_unit() -> None:
    texts = ["one  two\n", [{"role": "assistant", "content": "é"}], ""]
    assert lengths_of(texts, [[1, 2], [], [3]], "tokens") == [2, 0, 1]
    assert lengths_of(texts, None, "words") == [2, 1, 0]
    assert lengths_of(texts, None, "characters") == [9, 1, 0]


def test_tokens_need_token_ids() -> None:
    assert lengths_of([], None, "tokens") == []
    with pytest.raises(ValueError, match="add the column completion_ids"):
        lengths_of(["a"], None, "tokens")
