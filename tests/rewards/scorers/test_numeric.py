import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from groupwise.rewards.scorers.numeric import numeric

ROOT = Path(__file__).parents[3]
GSM8K = ROOT / "examples" / "gsm8k" / "data" / "test.jsonl"


def answers(path: Path) -> list[str]:
    return [json.loads(line)["answer"] for line in path.read_text(encoding="utf-8").splitlines()]


def altered(gold: int) -> set[int]:
    """The answer off by one, times ten, with its sign flipped, with another last digit; less the answer itself."""
    last = [gold - gold % 10 + digit for digit in range(10)]
    return {gold - 1, gold + 1, gold * 10, -gold, *last} - {gold}


def test_gsm8k_solutions_score_one_and_altered_ones_zero_on_every_row() -> None:
    golds = answers(GSM8K)
    assert len(golds) == 1319
    assert numeric(golds, golds) == [1.0] * 1319
    for row, gold in enumerate(golds):
        solution, _, written = gold.rpartition("#### ")
        figure = int(written.replace(",", ""))
        forms = ("{}", "{:,}", "The answer is {}.", "so he has **{:,}** left.", r"Thus $\boxed{{{}}}$.")
        right = [form.format(figure) for form in forms]
        assert numeric(right, [gold] * len(right)) == [1.0] * len(right), written
        wrong = [solution + "#### " + str(other) for other in altered(figure)]
        wrong += [forms[row % len(forms)].format(other) for other in altered(figure)]
        assert numeric(wrong, [gold] * len(wrong)) == [0.0] * len(wrong), written


def score(completion: Any, answer: Any, **settings: Any) -> float | None:
    return numeric([completion], [answer], **settings)[0]


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        ("5", "5.0"),
        ("5.0", 5),
        ("5.10", 5.1),
        ("007", "7"),
        (".5", "0.5"),
        ("Total: **68**.", "68"),
        ("-3", "-3"),
        ("The answer is 18.", "#### 18"),
        ("First 70, no: 72!", "72"),
        ("1,305,000", "1305000"),
        ("1,00,000", "100000"),
        ("1'000", "1000"),
        ("9,\\!254.70", "9254.7"),
        ("1\u00a0000", "1000"),
        ("1\u202f000\u202f000", "1000000"),
        ("1 000 000", "1000000"),
        ("#### 1 000", "1000"),
        ("−3", "-3"),
        ("–3", "-3"),
        ("a loss of -$5.50", "-5.5"),
        ("$-5", "-5"),
        (r"\$6.35", "6.35"),
        ("€ 12", "12"),
        ("４２", "42"),
        ("４２．５", "42.5"),
        ("٤٢", "42"),
        ("4\u200b2", "42"),
        ("4²", "16"),
        ("4^2", "16"),
        ("10^{3}", "1000"),
        ("1½", "1.5"),
        ("-1½", "-1.5"),
        ("½", "0.5"),
        ("12 1/2", "12.5"),
        ("3/4", "0.75"),
        (r"$\frac{3}{4}$", "0.75"),
        (r"$-\dfrac{3}{4}$", "-3/4"),
        (r"\frac{-3}{4}", "-3/4"),
        (r"\frac12", "0.5"),
        (r"2\frac{1}{4}", "2.25"),
        ("1e3", "1000"),
        ("1.5E-3", "0.0015"),
        (r"2 \times 10^{3}", "2000"),
        ("2×10³", "2000"),
        ("24 cm²", "24"),
        (r"\boxed{24\text{ cm}^2}", "24"),
        (r"60^\circ", "60"),
        ("60 km/h", "60 km/h"),
        ("3h", "3"),
        (r"\boxed{x = 5} which took 3 steps", "5"),
        (r"\boxed{3}, no: \boxed{5}", "5"),
        (r"\boxed 5", "5"),
        (r"#### \boxed{5}", "5"),
        ("#### 5\nNext question: 7", "5"),
        ("#### **5**", "5"),
        ("#### $1,234 dollars", "1234"),
        ("#### 1. Add\n2 and 3.\n#### 2. Say\nIt is 5", "5"),
        ("#### Step 2\n3+2 = 5", "5"),
        ("<think>maybe 4</think>5", "5"),
        ("35%", "35%"),
        ("35 percent", r"35\%"),
        ("35%", "0.35"),
        ("35%", "35"),
        ("0.35", "35%"),
        (r"\boxed{35}\%", "0.35"),
        ([{"role": "assistant", "content": "so 5"}], "5"),
        ("5", r"We have $x+2=7$, hence $x=\boxed{5}$."),
    ],
)
def test_right(completion: Any, answer: Any) -> None:
    assert score(completion, answer) == 1.0


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        ("1e9999999999", "1"),
        ("2×10^99999", "2"),
        ("24", "240"),
        ("240", "24"),
        ("18", "8"),
        ("3", "-3"),
        ("- 3 apples", "-3"),  # a list's dash
        ("", "0"),
        ("none", "0"),
        ("3.475", "3,475"),
        ("7,5", "5"),
        ("1.2.3", "3"),
        ("5:18", "18"),
        ("3-5", "5"),
        ("3–5", "5"),
        ("12/25/2020", "2020"),
        (r"\frac{x}{2}", "2"),
        (r"\frac{5}{0}", "5"),
        (r"\frac{5}{0}", "0"),
        (r"2\sqrt{3}", "3"),
        ("√2", "2"),
        ("2π", "2"),
        ("4^x", "4"),
        ("x^2", "2"),
        ("H2", "2"),
        ("x_{12}", "12"),
        ("4²", "42"),
        ("1½", "5.5"),
        ("½", "2"),
        ("10^{10^{10}}", "10"),
        ("9^9999", "9"),
        ("1e99999", "1"),
        (r"\boxed{1, 2, 3}", "3"),
        (r"\boxed{5", "5"),
        (r"\boxed{}", "5"),
        (r"\boxed{(lambda: 7)()}", "7"),
        (r"\boxed{x > 5}", "5"),
        ("__import__('os').system('exit 7')", "8"),
        ("#### 10\n#### 12\nThe answer is 10", "10"),
        ("<think>\\boxed{4}</think> I do not know", "4"),
        ("0.35%", "0.35"),
        ("0.35%", "35%"),
        ("3.5%", "35%"),
        ("nan", "0"),
        ("inf", "1"),
        ("0.33", "1/3"),
        ("1000001", "1000000"),
        ("1" * 5000, "1"),
    ],
)
def test_wrong(completion: str, answer: Any) -> None:
    assert score(completion, answer) == 0.0


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "see the figure",
        None,
        True,
        float("nan"),
        "(1,234)",
        "3 apples and 4 pears",
        "x > 5",
        r"\pm 2",
        "#### ",
        "9" * 2000,
    ],
)
def test_an_answer_without_one_number_does_not_apply(answer: Any) -> None:
    assert score("1234", answer) is None


def test_an_answer_of_another_kind_is_an_error() -> None:
    with pytest.raises(TypeError, match="the answer column holds"):
        score("5", ["5"])


def test_tolerance_is_absolute_and_exact() -> None:
    assert score("0.33", "1/3") == 0.0
    assert score("0.33", "1/3", tolerance=0.01) == 1.0
    # 0.3 - 0.2 is 0.09999999999999998 in floats; as rationals the difference is the tolerance exactly.
    assert score("0.3", "0.2", tolerance=0.1) == 1.0
    assert score("0.3000001", "0.2", tolerance=0.1) == 0.0
    assert Fraction(1, 3) - Fraction(33, 100) == Fraction(1, 300)


@pytest.mark.timeout(60)  # about a second; a pattern that backtracks would take minutes
def test_hostile_text_takes_time_linear_in_its_length() -> None:
    hostile = [
        "9" * 100_000,
        "#" * 20_000,
        "#### " * 20_000,
        "#### 2. A\n" * 10_000,
        "\\boxed{" * 20_000,
        "{" * 100_000,
        "1 " * 50_000,
        "1," * 50_000,
        "1^" * 50_000,
        "\\frac{1}{" * 10_000,
        "$" * 100_000,
        "-" * 100_000,
        " " * 100_000,
        "½" * 100_000,
        "٣" * 100_000,
    ]
    numeric(hostile, ["5"] * len(hostile))
    numeric(["5"] * len(hostile), hostile)
