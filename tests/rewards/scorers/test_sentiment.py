import pytest
from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

from groupwise.rewards.scorers.sentiment import sentiment

GLAD, ANGRY, PLAIN = (
    "I am very happy to help you!",
    "This is a terrible, awful mistake.",
    "The parcel is red.",
)


def test_the_score_is_vaders_compound_moved_to_0_to_1() -> None:
    analyzer = SentimentIntensityAnalyzer()
    for text in (GLAD, ANGRY, PLAIN):
        compound = analyzer.polarity_scores(text)["compound"]
        assert sentiment([text]) == [pytest.approx((1 + compound) / 2, abs=1e-12)]
        assert sentiment([text], towards="negative") == [pytest.approx((1 - compound) / 2, abs=1e-12)]
        assert sentiment([text], towards="neutral") == [pytest.approx(1 - abs(compound), abs=1e-12)]


def test_tones_are_told_apart() -> None:
    glad, plain, angry = sentiment([GLAD, PLAIN, ANGRY])
    assert glad > 0.75 > 0.5 == plain > 0.25 > angry


def test_a_text_is_the_mean_of_its_sentences() -> None:
    glad, angry, plain = sentiment([GLAD, ANGRY, PLAIN])
    both = sentiment([f"{GLAD} {ANGRY}\n{PLAIN}"])[0]
    assert both == pytest.approx((glad + angry + plain) / 3, abs=1e-12)
    # Saying it again does not make it more.
    assert sentiment([f"{GLAD} {GLAD} {GLAD}"])[0] == pytest.approx(glad, abs=1e-12)


@pytest.mark.parametrize("towards", ["positive", "negative", "neutral"])
def test_nothing_said_is_not_paid(towards: str) -> None:
    assert sentiment(["", " \n", "...", "!?"], towards=towards) == [0.0] * 4  # type: ignore[arg-type]


@pytest.mark.timeout(20)
def test_hostile_text_takes_little_time() -> None:
    assert len(sentiment(["not good " * 20_000, "." * 100_000, "a" * 100_000])) == 3
