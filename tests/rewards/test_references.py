import pytest

from groupwise.rewards.references import texts_in


def test_one_text_or_several() -> None:
    assert texts_in("a b") == ["a b"]
    assert texts_in(["a", " ", "b"]) == ["a", "b"]
    assert texts_in(None) == texts_in("") == texts_in([]) == []


def test_anything_else_is_an_error_that_names_the_column() -> None:
    for wrong in (3, {"a": 1}, ["a", 3]):
        with pytest.raises(TypeError, match="the answer column holds"):
            texts_in(wrong, "answer")
