import json
import logging
import multiprocessing
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from groupwise.config.rewards import RewardConfig
from groupwise.errors import ConfigError
from groupwise.rewards import build
from groupwise.rewards.mathematics import judging
from groupwise.rewards.scorers.math_answer import math_answer
from tests.rewards.examples import HERE, values

GSM8K = Path(__file__).parents[3] / "examples" / "gsm8k" / "data" / "test.jsonl"


def solutions() -> list[str]:
    return [json.loads(line)["answer"] for line in GSM8K.read_text(encoding="utf-8").splitlines()]


def figure(solution: str) -> int:
    return int(solution.rpartition("#### ")[2].replace(",", ""))


def altered(gold: int) -> set[int]:
    """The answer off by one, times ten, with its sign flipped, with another last digit; less the answer itself."""
    last = {gold - gold % 10 + digit for digit in range(10)}
    return ({gold - 1, gold + 1, gold * 10, -gold} | last) - {gold}


FORMS = (
    "#### {}",
    r"Thus $\boxed{{{}}}$.",
    "The answer is {}.",
    "The answer is ${:,}.00.",
    "so he has **{:,}** left.",
)


def test_gsm8k_solutions_score_one_in_every_form_and_altered_ones_zero_on_every_row() -> None:
    golds = solutions()
    assert len(golds) == 1319
    assert math_answer(golds, golds) == [1.0] * 1319
    for form in FORMS:
        assert math_answer([form.format(figure(gold)) for gold in golds], golds) == [1.0] * 1319, form
    for row, gold in enumerate(golds):
        value = figure(gold)
        form = FORMS[row % len(FORMS)]
        wrong = [
            form.format(other)
            for other in (value - 1, value + 1, value * 10, -value, value // 10 * 10 + (value + 3) % 10)
        ]
        wrong = [text for text in wrong if text != form.format(value)]
        assert math_answer(wrong, [gold] * len(wrong)) == [0.0] * len(wrong), gold[-20:]


@pytest.mark.long
def test_gsm8k_every_alteration_in_every_form_behind_every_solution() -> None:
    for gold in solutions():
        reasoning = gold.rpartition("#### ")[0]
        wrong = [reasoning + form.format(other) for form in FORMS[:4] for other in altered(figure(gold))]
        assert math_answer(wrong, [gold] * len(wrong)) == [0.0] * len(wrong), gold[-20:]
        right = [reasoning + form.format(figure(gold)) for form in FORMS[:4]]
        assert math_answer(right, [gold] * len(right)) == [1.0] * len(right), gold[-20:]


def score(completion: Any, answer: Any, **others: Any) -> float | None:
    return math_answer([completion], [answer], **others)[0]


def test_b02_every_value_is_wanted_and_no_other() -> None:
    assert score("343", "343, 512") == 0.0
    assert score("512", r"\{343, 512\}") == 0.0
    assert score("343, 512, 1", "343, 512") == 0.0
    assert score("512 and 343", r"\{343, 512\}") == 1.0


def test_b05_markdown_and_signs() -> None:
    assert score("First 70. Total: **68**.", "68") == 1.0
    assert score("-3", "-3") == 1.0
    assert score("-3", "3") == 0.0
    assert score("3", "-3") == 0.0
    assert score("So **-3**.", "-3") == 1.0
    assert score("**Final answer: -3**", "-3") == 1.0


HOSTILE = [
    r"10^{10^{10^{10}}}",
    "9^{9^{9}}",
    "1" * 5000,
    "#" * 20_000,
    "{" * 5000,
    "(" * 5000 + ")" * 5000,
    r"\log(\log(\log(\log(9^{9^{9}}))))",
    r"\sqrt{" * 200 + "2" + "}" * 200,
    r"\frac{1}{" * 200 + "2" + "}" * 200,
    "(x+1)^{1000}",
    r"\sin(10^{1000}) + \cos(x)^{999}",
    "1000!!!",
    "+".join(f"x^{{{i}}}" for i in range(150)),
]


@pytest.mark.timeout(120)
def test_b06_sixty_four_hostile_answers_in_one_batch_from_a_thread() -> None:
    answers = [HOSTILE[i % len(HOSTILE)] + (f" + {i}" if i % 2 else "") for i in range(64)]
    result: list[list[float | None]] = []
    thread = threading.Thread(target=lambda: result.append(math_answer(answers, ["2"] * 64)))
    began = time.monotonic()
    thread.start()
    thread.join(100)
    assert not thread.is_alive()
    assert result == [[0.0] * 64]
    assert time.monotonic() - began < 60


def _in_child(pipe: Any) -> None:
    pipe.send(math_answer([r"\boxed{\frac{\sqrt{2}}{2}}", "9^{9^{9}}"], [r"\frac{1}{\sqrt{2}}", "2"]))


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_b06_it_works_in_a_daemonic_worker_process(method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip("this system does not fork")
    assert (
        score(r"\sqrt{8}", r"2\sqrt{2}") == 1.0
    )  # a process of this one is running; a fork must not share it
    context = multiprocessing.get_context(method)
    here, there = context.Pipe()
    child = context.Process(target=_in_child, args=(there,), daemon=True)
    child.start()
    assert here.poll(100)
    assert here.recv() == [1.0, 0.0]
    child.join(30)
    assert score(r"\sqrt{8}", r"2\sqrt{2}") == 1.0


def test_b07_an_unreadable_gold_is_no_reward_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    logged: list[tuple[str, float]] = []
    golds = ["see the figure", "", "5", "5"]
    with caplog.at_level(logging.WARNING):
        scores = math_answer(
            ["see the figure", "", "5", "6"], golds, log_metric=lambda *pair: logged.append(pair)
        )
    assert scores == [None, None, 1.0, 0.0]
    assert logged == [("math_answer_unreadable", 0.5)]
    rewards = build(
        [RewardConfig(name="math_answer"), RewardConfig(name="length", weight=0.5, settings={"target": 3})],
        base=HERE,
    )
    verdicts = values(rewards, ["see the figure", "5"], columns={"answer": ["see the figure", "5"]})
    assert verdicts[1] == 1.0
    assert verdicts[0] != 1.0
    assert rewards.take_logged() == {"math_answer_unreadable": [0.5]}


def test_b07_the_reason_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert math_answer(["5"], ["see the other figure"]) == [None]
    assert len(caplog.records) == 1
    assert "'see the other figure' cannot be read" in caplog.text


def test_b09_unicode_means_what_it_shows() -> None:
    assert score("4²", "16") == 1.0
    assert score("4²", "42") == 0.0
    assert score("1½", "1.5") == 1.0
    assert score("1½", "5.5") == 0.0
    assert score("−3", "-3") == 1.0
    assert score("1\u00a0000", "1000") == 1.0
    assert score("４２", "42") == 1.0


@pytest.mark.parametrize(
    "said", ["5", "5.0", r"\boxed{5}", "5 apples", "five", "5/1", "10/2", "x = 5", "$5.00"]
)
def test_five_is_five(said: str) -> None:
    assert score(said, "5") == 1.0
    assert score(said, 5) == 1.0
    assert score(said, 5.0) == 1.0
    assert score(said, "6") == 0.0


def test_messages_and_golds_of_other_kinds() -> None:
    assert score([{"role": "assistant", "content": r"so \boxed{5}"}], "5") == 1.0
    assert score("0.1", 0.1) == 1.0
    assert score("1e22", 1e22) == 1.0
    for gold in (None, True, float("nan"), float("inf")):
        assert score("1", gold) is None
    with pytest.raises(TypeError, match="the answer column holds"):
        score("5", ["5"])


def test_an_echo_of_the_question_is_no_answer() -> None:
    question = "Tom lost 8 marbles and then found 8; he began with 20. He now has how many of the 20?"
    assert score(question, "20", prompts=[question]) == 0.0
    assert score("Tom lost 8 marbles and then found 8; he began with 20.", "20", prompts=[question]) == 0.0
    assert score(question + "\nHe has 20.", "20", prompts=[question]) == 1.0
    assert score("He still has 20 marbles.", "20", prompts=[[{"role": "user", "content": question}]]) == 1.0
    assert score("20", "20", prompts=[question]) == 1.0


def test_what_the_grammar_does_not_know_goes_to_math_verify() -> None:
    gold = r"\int_0^2 x\,dx"
    assert score("2", gold) == 1.0
    assert score("3", gold) == 0.0
    assert score(r"\sum_{i=1}^{4} i", r"\sum_{i=1}^{4} i") == 1.0
    assert score("10", r"\sum_{i=1}^{4} i") == 1.0
    assert score("11", r"\sum_{i=1}^{4} i") == 0.0
    assert score(r"\mathbb{R} \setminus \{2\}", r"\mathbb{R} \setminus \{2\}") == 1.0
    assert score(r"\mathbb{R} \setminus \{3\}", r"\mathbb{R} \setminus \{2\}") == 0.0


def test_nothing_is_evaluated_as_code(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    code = f"__import__('pathlib').Path({str(trace)!r}).touch()"
    for text in (
        code,
        rf"\boxed{{{code}}}",
        f"The answer is {code}",
        f"<answer>{code}</answer>",
        rf"\text{{{code}}}",
    ):
        assert score(text, "5") == 0.0
        assert score("5", text) in (None, 0.0)
        assert score(text, r"\int_0^2 x\,dx") == 0.0
    assert not trace.exists()


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1000.0, float("nan")])
def test_a_limit_out_of_range_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigError, match="seconds"):
        build([RewardConfig(name="math_answer", settings={"seconds": seconds})], base=HERE)


@pytest.mark.timeout(120)
def test_hostile_text_takes_time_linear_in_its_length() -> None:
    pieces = [
        "9", "#", "#### ", "#### 2. A\n", "#### 5\n", r"\boxed{", r"\boxed{5} or ", "{", "1 ", "1,", "1^", r"\frac{1}{",
        "$", "$1", "$x", "-", " ", "½", "the answer is 5. ", "answer ", "answer is not ", "(", "<think>", "<answer>",
        "\\", r"\text{", "a", "5 or ", "? ", "*", "*a ", "__", "=", r"\(5\) ", "²", "√", "<<", "final answer 5 ", "%",
    ]  # fmt: skip
    for piece in pieces:
        hostile = (piece * (50_000 // len(piece)))[:50_000]
        began = time.process_time()
        math_answer([hostile, hostile + " 5", "5"], ["5", "5", hostile])
        assert time.process_time() - began < 4, (
            piece
        )  # about 0.3; a pattern that backtracks would take minutes


def test_a_fault_of_ours_costs_one_answer_and_not_the_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compared = judging.compare

    def faulty(gold: Any, found: Any, values: Any) -> bool:
        if found.text == "9":
            raise ValueError("no such thing")
        return compared(gold, found, values)

    monkeypatch.setattr(judging, "compare", faulty)
    assert math_answer(["9", "7", "8"], ["7", "7", "7"]) == [0.0, 1.0, 0.0]
    assert "could not compare '9' with '7' (ValueError: no such thing), and scored 0" in caplog.text
