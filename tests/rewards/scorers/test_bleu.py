import math

import pytest
import sacrebleu

from groupwise.rewards.scorers.bleu import bleu

REFERENCE = "The parcel was sent on Monday and will arrive on Wednesday."
SAID = [
    REFERENCE,
    "The parcel was sent on Tuesday.",
    "Your parcel will arrive on Wednesday, we are sure.",
    "no",
    "the parcel the parcel the parcel",
]


def test_hand_worked() -> None:
    # "a b c" against "a b d": precisions 2/3, 1/2, and a trigram without a match, smoothed to 1/(2 x 1); three orders.
    expected = (2 / 3 * 1 / 2 * 1 / 2) ** (1 / 3)
    assert bleu(["a b c"], ["a b d"]) == [pytest.approx(expected, abs=1e-9)]
    # All of "a b" is in "a b c d": no more than the brevity penalty exp(1 - 4/2).
    assert bleu(["a b"], ["a b c d"]) == [pytest.approx(math.exp(-1), abs=1e-9)]
    assert bleu([REFERENCE], [REFERENCE]) == [pytest.approx(1.0, abs=1e-9)]


@pytest.mark.parametrize("tokenize", ["13a", "intl", "char", "none"])
@pytest.mark.parametrize("lowercase", [False, True])
def test_the_numbers_are_sacrebleus(tokenize: str, lowercase: bool) -> None:
    metric = sacrebleu.BLEU(tokenize=tokenize, lowercase=lowercase, effective_order=True)
    expected = [min(1.0, metric.sentence_score(said, [REFERENCE]).score / 100) for said in SAID]
    assert bleu(SAID, [REFERENCE] * 5, tokenize=tokenize, lowercase=lowercase) == expected  # type: ignore[arg-type]


def test_several_references_are_matched_together() -> None:
    references = ["It was sent on Monday.", "It will arrive on Wednesday."]
    said = "It was sent on Wednesday."
    expected = sacrebleu.sentence_bleu(said, references).score / 100
    assert bleu([said], [references]) == [pytest.approx(expected, abs=1e-12)]


def test_nothing_said_and_nothing_to_compare_with() -> None:
    assert bleu(["", " "], ["a", "a"]) == [0.0, 0.0]
    assert bleu(["a", "a", "a"], [None, "", []]) == [None, None, None]
    with pytest.raises(TypeError, match="the reference column holds 3"):
        bleu(["a"], [3])


def test_the_same_text_is_1_and_not_a_rounding_more() -> None:
    # sacrebleu's 100 for two words is exp(log 100 + ...), 100.00000000000004.
    assert bleu(["the cat", "日本語"], ["the cat", "日本語"]) == [1.0, 1.0]
