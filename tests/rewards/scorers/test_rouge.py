import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from groupwise.rewards.scorers.rouge import rouge

KINDS = ("1", "2", "L")
MEASURES = {"f1": "fmeasure", "precision": "precision", "recall": "recall"}
SCORER = RougeScorer([f"rouge{kind}" for kind in KINDS])


@pytest.mark.parametrize(
    ("kind", "measure", "score"),
    [
        # "a b c d" against "a c b e": words a b c are common; no pair is; a b (or a c) is the longest in order.
        ("1", "recall", 3 / 4),
        ("2", "f1", 0.0),
        ("L", "precision", 2 / 4),
        ("L", "f1", 2 / 4),
    ],
)
def test_hand_worked(kind: str, measure: str, score: float) -> None:
    assert rouge(["a b c d"], ["a c b e"], kind=kind, measure=measure) == [score]  # type: ignore[arg-type]


def test_f1_is_the_harmonic_mean() -> None:
    # P = 1/1, R = 1/3: 2 x 1/3 / (4/3) = 1/2
    assert rouge(["a"], ["a b c"], kind="1") == [pytest.approx(0.5, abs=1e-12)]


@given(st.text("abc d'.é\n", max_size=30), st.text("abc d'.é\n", min_size=1, max_size=30))
def test_the_numbers_are_those_of_rouge_score(said: str, wanted: str) -> None:
    if not wanted.strip() or not re.search("[abcd]", wanted):
        return  # refused
    expected = SCORER.score(wanted, said)
    for kind in KINDS:
        for measure, name in MEASURES.items():
            found = rouge([said], [wanted], kind=kind, measure=measure)  # type: ignore[arg-type]
            assert found == [pytest.approx(getattr(expected[f"rouge{kind}"], name), abs=1e-12)]


def test_on_sentences_too() -> None:
    wanted = "The parcel was sent on Monday, and it will arrive on Wednesday at 3 o'clock."
    said = "We sent it on Monday; the parcel will be there at 3 o'clock on Wednesday."
    expected = SCORER.score(wanted, said)
    for kind in KINDS:
        assert rouge([said], [wanted], kind=kind)[0] == pytest.approx(  # type: ignore[arg-type]
            expected[f"rouge{kind}"].fmeasure, abs=1e-12
        )


def test_the_best_reference_counts() -> None:
    references = ["it was sent", "it will arrive soon"]
    expected = SCORER.score_multi(references, "it will arrive")["rougeL"].fmeasure
    assert rouge(["it will arrive"], [references]) == [pytest.approx(expected, abs=1e-12)]


def test_other_scripts_need_their_own_words() -> None:
    with pytest.raises(ValueError, match="'Привет мир' has no word of a to z or 0 to 9; set words: unicode"):
        rouge(["Привет мир"], ["Привет мир"])  # 0, and for every completion, by rouge-score
    assert rouge(["Привет, мир"], ["привет мир"], words="unicode") == [1.0]
    # Each letter is a word where none stands between spaces: 2 of 3 and 2 of 3 are common, in order.
    assert rouge(["東京市"], ["東京都"], words="unicode") == [pytest.approx(2 / 3, abs=1e-12)]


def test_nothing_said_and_nothing_to_compare_with() -> None:
    for kind in KINDS:
        assert rouge(["", "..."], ["a", "a"], kind=kind) == [0.0, 0.0]  # type: ignore[arg-type]
    assert rouge(["a", "a", "a"], [None, "", []]) == [None, None, None]


@pytest.mark.timeout(20)
def test_long_texts_take_little_time() -> None:
    assert rouge(["w x " * 20_000], ["w y x " * 500]) == [pytest.approx(2 * 1000 / 41_500, abs=1e-3)]
