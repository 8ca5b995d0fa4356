from typing import Any

import pytest

from groupwise.config.rewards import RewardConfig
from groupwise.errors import DataError
from groupwise.rewards import build
from groupwise.rewards.score_file import score_rows
from tests.rewards.examples import HERE, one, pairs

NUMERIC = [RewardConfig(name="numeric")]


def test_rows_are_judged_as_rollouts_are() -> None:
    texts, answers = ["it is 4", "5", "none"], ["4", "4", "see the figure"]
    rewards = build([*NUMERIC, RewardConfig(name="length", settings={"target": 2, "alpha": 0.5})], base=HERE)
    trained = rewards.score(*pairs(texts, columns={"answer": answers}))
    rows = [
        {
            "prompt": f"question {i}",
            "completion": texts[i],
            "answer": answers[i],
            "completion_ids": list(range(i + 1)),
        }
        for i in range(3)
    ]
    assert score_rows(rewards, rows) == trained
    # Lengths 1, 2, 3 against 2 at 0.5 each: 0, 0, -0.5.
    assert [v.reward for v in trained] == [1.0, 0.0, -0.5]


def test_a_chat_prompt_gives_chat_completions() -> None:
    seen: list[Any] = []

    def reward(prompts, completions):  # type: ignore[no-untyped-def]
        seen.extend(completions)
        return [0.0] * len(completions)

    chat = [{"role": "user", "content": "hi"}]
    message = [{"role": "assistant", "content": "yes"}]
    score_rows(
        one(reward),
        [
            {"prompt": chat, "completion": "yes"},
            {"prompt": chat, "completion": message},
            {"prompt": "hi", "completion": message},
        ],
    )
    assert seen == [message, message, "yes"]


def test_other_column_names() -> None:
    rows = [{"question": "2+2?", "reply": "4", "answer": 4}]
    assert score_rows(build(NUMERIC, base=HERE), rows, prompt="question", completion="reply")[0].reward == 1.0


def test_a_column_that_a_row_lacks_is_none() -> None:
    rows = [{"prompt": "", "completion": "4", "answer": "4"}, {"prompt": "", "completion": "4"}]
    assert [v.reward for v in score_rows(build(NUMERIC, base=HERE), rows)] == [1.0, None]


def test_the_stop_reason_is_handed_on() -> None:
    rewards = one(lambda completions, stop_reasons: [float(s == "length") for s in stop_reasons])
    rows = [{"prompt": "", "completion": "", "stop_reason": s} for s in ("stop", "length")]
    assert [v.reward for v in score_rows(rewards, rows)] == [0.0, 1.0]


def test_no_rows() -> None:
    assert score_rows(one(lambda completions: [1.0]), []) == []


GOOD = {"prompt": "q", "completion": "4", "answer": "4"}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            {"prompt": "q", "completon": "4", "answer": "4"},
            "f row 2: there is no column 'completion'; did you mean 'completon'",
        ),
        (
            {"completion": "4", "answer": "4"},
            "f row 2: there is no column 'prompt'; there are completion, answer",
        ),
        (GOOD | {"completion": 4}, "f row 2: 'completion' holds 4; it should be text"),
        (GOOD | {"completion": None}, "f row 2: 'completion' holds None"),
        (GOOD | {"prompt": []}, r"f row 2: 'prompt' holds \[\]"),
        (GOOD | {"prompt": {"role": "user", "content": "q"}}, "f row 2: 'prompt' holds {'role'"),
        (GOOD | {"prompt": [{"role": "user"}]}, r"f row 2: 'prompt' holds \[{'role'"),
    ],
)
def test_a_wrong_row_is_named(row: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        score_rows(build(NUMERIC, base=HERE), [GOOD, row], place="f")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"stop_reason": "eos"}, "f row 1: 'stop_reason' holds 'eos'; it should be stop or length"),
        (
            {"completion_ids": [1.5]},
            r"f row 1: 'completion_ids' holds \[1.5\]; it should be a list of token ids",
        ),
        ({"completion_ids": "12"}, "f row 1: 'completion_ids' holds '12'"),
        (
            {"answer2": "4"},
            "f: the reward 'numeric' needs the column 'answer', .* did you mean 'answer2'",
        ),
    ],
)
def test_a_wrong_column_is_named(change: dict[str, Any], said: str) -> None:
    row = {"prompt": "q", "completion": "4"} | ({} if "answer2" in change else {"answer": "4"}) | change
    with pytest.raises(DataError, match=said):
        score_rows(build(NUMERIC, base=HERE), [row], place="f")


def test_token_ids_that_only_rollouts_have_are_asked_for_clearly() -> None:
    with pytest.raises(
        DataError, match="the reward 'lambda' needs completion_ids, which rollouts have but these rows"
    ):
        score_rows(one(lambda completion_ids: [1.0]), [GOOD])
