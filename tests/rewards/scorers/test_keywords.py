from typing import Any

import pytest

from groupwise.rewards.scorers.keywords import keywords


@pytest.mark.parametrize(
    ("completion", "wanted", "score"),
    [
        ("The cat sat on the mat.", ["cat", "mat"], 1.0),
        ("The cat sat.", ["cat", "mat"], 0.5),
        ("category matters", ["cat", "mat"], 0.0),  # word borders
        ("CAT, mat!", ["Cat", "MAT"], 1.0),
        ("new\n  york", ["New York"], 1.0),
        ("C++ and C", ["c++"], 1.0),
        ("C++, C# and F#", ["c", "f"], 0.0),
        ("the cat", ["cat", "Cat", "dog"], 0.5),  # counted once: 1 of 2
        ("a beagle", "beagle", 1.0),
        ("", ["beagle"], 0.0),
        ("b", ["beagle"], 0.0),
        ("anything", [], None),
        ("anything", None, None),
        ([{"role": "assistant", "content": "a cat"}], ["cat"], 1.0),
    ],
)
def test_hand_worked(completion: Any, wanted: Any, score: float | None) -> None:
    assert keywords([completion], [wanted]) == [score]


def test_a_list_of_everything_is_stopped_by_max_words() -> None:
    listed = "beagle or poodle or terrier or spaniel"
    assert keywords([listed], ["beagle"]) == [1.0]
    assert keywords([listed, "a beagle"], ["beagle", "beagle"], max_words=3) == [0.0, 1.0]


def test_words_of_every_row_join_the_columns() -> None:
    assert keywords(["since it is red", "red"], words=("since", "red")) == [1.0, 0.5]
    assert keywords(["since it is red"], [["blue"]], words=("since", "red")) == [
        pytest.approx(2 / 3, abs=1e-15)
    ]


def test_wrong_keywords_are_errors() -> None:
    with pytest.raises(ValueError, match="there are no keywords"):
        keywords(["a"])
    with pytest.raises(ValueError, match="words: a keyword is blank"):
        keywords([], words=("a", " "))
    with pytest.raises(ValueError, match="blank keyword"):
        keywords(["a"], [["a", ""]])
    for wrong in (3, {"a": 1}, [3]):
        with pytest.raises(TypeError, match="the keywords column holds"):
            keywords(["a"], [wrong])
