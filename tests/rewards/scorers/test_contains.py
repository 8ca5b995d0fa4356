from typing import Any

import pytest

from groupwise.rewards.scorers.contains import contains


@pytest.mark.parametrize(
    "said", ["", "b", "beagle or poodle or terrier or spaniel", "beagle or poodle or ..."]
)
def test_what_plain_containment_paid_for_is_not_paid(said: str) -> None:
    # Case n02: "gold in answer or answer in gold" taught a model to answer nothing.
    assert contains([said], ["beagle"]) == [0.0]


@pytest.mark.parametrize(
    ("said", "answer", "score"),
    [
        ("It is a beagle.", "beagle", 1.0),
        ("BEAGLE", "Beagle", 1.0),
        ("new\n york is big", "New York", 0.0),  # a line end is a border
        ("New  York is big", "new york", 1.0),
        ("beagles", "beagle", 0.0),  # word borders
        ("un-beagle-like", "beagle", 0.0),  # another word
        ("Not a non-beagle", "beagle", 0.0),
        ("beagle - a hound", "beagle", 1.0),
        ("It is written in C++.", "C", 0.0),
        ("It is written in C#, as most are", "C", 0.0),
        ("It is written in C++.", "C++", 1.0),
        ("beagle+hound", "beagle", 1.0),
        ("It is a poodle or a beagle.", "beagle", 0.0),
        ("poodle/beagle", "beagle", 0.0),
        ("beagle | poodle", "beagle", 0.0),
        ("poodle, beagle, pug", "beagle", 0.0),
        ("poodle\nbeagle\npug", "beagle", 0.0),
        ("poodle; beagle and pug", "beagle", 0.0),
        ("poodle? beagle? pug?", "beagle", 0.0),
        ("poodle - beagle - pug", "beagle", 0.0),
        ("poodle & beagle vs pug", "beagle", 0.0),
        ("A beagle! Yes! Sure!", "beagle", 1.0),
        ("Well, yes, it is surely a small beagle, I think.", "beagle", 1.0),
        ("It is a beagle, a small hound from England.", "beagle", 1.0),
        ("The number is 15", 15, 1.0),
        ("The number is 150", 15, 0.0),
        ("-15", 15, 0.0),
        ("\u221215", 15, 0.0),
        ("-$15", 15, 0.0),
        ("15.5", 15, 0.0),
        ("3.15", 15, 0.0),
        (".15", 15, 0.0),
        ("15,000", 15, 0.0),
        ("1,015", 15, 0.0),
        ("2,15", 15, 0.0),
        ("15-20", 15, 0.0),
        ("10-15", 15, 0.0),
        ("15:30", 15, 0.0),
        ("2*15", 15, 0.0),
        ("15th", 15, 0.0),
        ("It is $15.", 15, 1.0),
        ("It is -15.", -15, 1.0),
        ("It is 15, I think", 15, 1.0),
        ("(15)", 15, 1.0),
        ("5+10=15", 15, 1.0),
        ("答案是东京。", "东京", 1.0),
        ("答案是东", "东京", 0.0),
        ("東京です", "東京", 1.0),
        ("很" * 13 + "东京", "东京", 0.0),  # each such letter is a word beside the answer
        ("C++ it is", "c++", 1.0),
        ("ein Pudel oder ein Beagle", "Beagle", 0.0),
        ("Pudel oder Beagle", "Beagle", 0.0),
        ("yes", ["yes", "yeah"], 1.0),
        ("yeah", ["yes", "yeah"], 1.0),
        ("anything", None, None),
        ("", "", None),
        ([{"role": "assistant", "content": "a cat"}], "cat", 1.0),
    ],
)
def test_hand_worked(said: Any, answer: Any, score: float | None) -> None:
    assert contains([said], [answer]) == [score]


def test_a_flood_around_the_answer_is_not_paid() -> None:
    assert contains(["so " * 12 + "beagle", "so " * 13 + "beagle"], ["beagle"] * 2) == [1.0, 0.0]
    assert contains(["so beagle"], ["beagle"], max_extra_words=0) == [0.0]


def test_naming_another_choice_is_not_paid() -> None:
    choices = [["beagle", "poodle"]] * 3
    said = ["a beagle", "no poodle, a beagle", "a poodle"]
    assert contains(said, ["beagle"] * 3, choices) == [1.0, 0.0, 0.0]
    assert contains(["a beagle"], ["beagle"], [None]) == [1.0]
    assert contains(["C++"], ["C++"], [["C", "C++", "C#"]]) == [1.0]  # which holds no C


def test_joiners_are_a_setting() -> None:
    assert contains(["beagle tai poodle"], ["beagle"]) == [1.0]
    assert contains(["beagle tai poodle"], ["beagle"], joiners=("tai",)) == [0.0]


def test_wrong_columns_are_errors() -> None:
    for wrong in (2.5, {"a": 1}, [3]):
        with pytest.raises(TypeError, match="the answer column holds"):
            contains(["a"], [wrong])
    with pytest.raises(TypeError, match="the choices column holds"):
        contains(["a"], ["a"], [3])


@pytest.mark.timeout(20)
def test_hostile_text_takes_little_time() -> None:
    texts = [
        "a" * 200_000 + "!beagle",
        "a!" * 100_000 + " beagle",
        "beagle" * 50_000,
        "/" * 200_000 + " beagle",
    ]
    assert contains(texts, ["beagle"] * 4) == [1.0, 1.0, 0.0, 0.0]
