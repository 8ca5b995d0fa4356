import pytest

from groupwise.rewards.scorers.language import language

ENGLISH = "We are sorry that your parcel has not arrived. We will send you a new one today."
GERMAN = "Es tut uns leid, dass Ihr Paket nicht angekommen ist. Wir schicken Ihnen heute ein neues."
CHINESE = "很抱歉您的包裹还没有送到。我们今天会给您寄一个新的，并且退还您的运费，谢谢您的耐心等待和理解，祝您生活愉快。"


def test_the_language_is_told() -> None:
    texts = [ENGLISH, GERMAN, CHINESE]
    assert language(texts, code="en") == [1.0, 0.0, 0.0]
    assert language(texts, code="de") == [0.0, 1.0, 0.0]
    assert language(texts, ["en", "de", "zh"]) == [1.0, 1.0, 1.0]


def test_a_mixed_text_scores_the_share_of_its_letters() -> None:
    def letters(text: str) -> int:
        return sum(c.isalpha() for c in text)

    share = letters(ENGLISH) / (letters(ENGLISH) + letters(GERMAN))
    assert language([f"{ENGLISH}\n{GERMAN}"], code="en") == [pytest.approx(share, abs=1e-12)]


def test_code_and_addresses_are_no_language() -> None:
    noisy = f"{GERMAN}\n```\nfor item in the_list_of_all_items: print(item)\n```\nhttps://example.org/this/is/english"
    assert language([noisy], code="de") == [1.0]


def test_a_text_without_letters_is_not_paid() -> None:
    assert language(["", "42", " \n", "```x```"], code="en") == [0.0] * 4


def test_the_rows_language_comes_before_the_setting() -> None:
    assert language([GERMAN, ENGLISH], ["de", None], code="en") == [1.0, 1.0]
    assert language([GERMAN], [None]) == [None]


def test_candidates_help_short_answers() -> None:
    assert language(["refund"], code="en", among=("en", "de", "zh")) == [1.0]


def test_wrong_codes_are_errors() -> None:
    with pytest.raises(ValueError, match="'english' is no language"):
        language([], code="english")
    with pytest.raises(ValueError, match="'xx' is no language"):
        language([], among=("en", "xx"))
    with pytest.raises(ValueError, match="is not in among"):
        language([], code="fr", among=("en", "de"))
    with pytest.raises(ValueError, match="there is no language"):
        language(["a"])
    with pytest.raises(ValueError, match="3 is no language"):
        language(["a"], [3])  # type: ignore[list-item]
