import pytest

from groupwise.rewards.scorers.format import format

GOOD = "<think>because</think>\n<answer>4</answer>"


@pytest.mark.parametrize(
    ("text", "score"),
    [
        (GOOD, 1.0),
        (f"  {GOOD}\n", 1.0),
        ("<think>\nlong\nlines </think><answer> 4 </answer>", 1.0),
        ("<think>a</think><think>b</think><answer>4</answer>", 0.0),  # two blocks of a kind
        ("<answer>4</answer><think>a</think>", 0.0),  # the other order
        ("<think></think><answer>4</answer>", 0.0),  # empty
        ("<think>a</think><answer> \n </answer>", 0.0),  # blank
        ("<think>\u200b</think><answer>b</answer>", 0.0),  # it only looks like content to a program
        ("<think>\U0001f914</think><answer>b</answer>", 1.0),
        (f"Sure! {GOOD}", 0.0),  # before
        ("<think>a</think> so <answer>4</answer>", 0.0),  # between
        (f"{GOOD} done", 0.0),  # after
        ("<think>a<answer>4</answer></think>", 0.0),  # nested
        ("<think>a</think><answer>4", 0.0),  # cut off
        ("<think>a</think><answer>4</answer></answer>", 0.0),
        ("</think>a<think><answer>4</answer>", 0.0),
        ("<THINK>a</THINK><answer>4</answer>", 0.0),
        ("", 0.0),
    ],
)
def test_blocks(text: str, score: float) -> None:
    assert format([text], tags=("think", "answer")) == [score]


def test_a_pattern_has_to_match_the_whole_completion() -> None:
    texts = ["Answer: 12", "Answer: 12\n", "So Answer: 12", "Answer: 12!", "", "Line\nAnswer: 3"]
    assert format(texts, pattern=r"Answer: \d+") == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert format(texts, pattern=r".*Answer: \d+") == [1.0, 0.0, 1.0, 0.0, 0.0, 1.0]  # the dot crosses lines


def test_only_the_completion_is_searched() -> None:
    # A chat completion holds the assistant's turn alone, whatever the prompt shows as an example.
    assert format([[{"role": "assistant", "content": "4"}]], pattern=r".*\\boxed\{.*\}.*") == [0.0]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "give pattern or tags"),
        ({"pattern": "a", "tags": ("a",)}, "give pattern or tags"),
        ({"pattern": "("}, "is not a regular expression"),
        ({"tags": ()}, "at least one name"),
        ({"tags": "think"}, "tags is a list"),
        ({"tags": ("<think>",)}, "give it without < and >"),
        ({"tags": ("a", "a")}, "'a' is given twice"),
        ({"tags": ("",)}, "is not a tag's name"),
    ],
)
def test_wrong_settings_are_found_on_no_completions(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        format([], **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+", "(?:.*)*", r"(\w+\s?)*", r"(\w+\s*)+x", "(a{2,})+", "([a-z]*){3,}", "(a+?)+"],
)
def test_patterns_of_exponential_time_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="can take exponential time"):
        format([], pattern=pattern)


@pytest.mark.parametrize(
    "pattern",
    [r"(?:a++)+", r"(?:\d{3},)*", r"(?:<s>.*?</s>)+", r"(\+)+", "([+*])+", r"\(a+\)", "(a+)?"],
)
def test_patterns_without_that_danger_are_taken(pattern: str) -> None:
    assert format([""], pattern=pattern) == [float(pattern in (r"(?:\d{3},)*", "(a+)?"))]


@pytest.mark.timeout(30)  # milliseconds; a search that starts again at every tag would take minutes
def test_hostile_text_takes_little_time() -> None:
    texts = ["<think>" * 20_000, "<think>a</think>" * 10_000, "<" * 100_000, " " * 100_000]
    assert format(texts, tags=("think", "answer")) == [0.0] * 4
