import pytest

from groupwise.rewards.made_up import FORMS, LISTS, PARTS, Case, in_form, probes, scrambled, wrong_answers


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ("5", {"off by one": "6", "times ten": "50", "last digit changed": "8", "sign flipped": "-5"}),
        ("-3", {"off by one": "-2", "times ten": "-30", "last digit changed": "-6", "sign flipped": "3"}),
        ("0", {"off by one": "1", "times ten": "00", "last digit changed": "3"}),
        (
            "2.5",
            {"off by one": "3.5", "times ten": "25", "last digit changed": "2.8", "sign flipped": "-2.5"},
        ),
        ("2 + 5 = 7\n#### 7", {"off by one": "2 + 5 = 7\n#### 8"}),  # the last number
        ("one two three four", {"half left out": "one two", "words in reverse": "four three two one"}),
        ("beagle", {"letters changed": "cfbhmf"}),
        ("You get 5 pounds back", {"off by one": "You get 6 pounds back", "half left out": "You get"}),
    ],
)
def test_wrong_answers_are_near_the_right_one(answer: str, wrong: dict[str, str]) -> None:
    found = wrong_answers(answer, [])
    assert wrong.items() <= found.items()
    assert answer not in found.values()


def test_a_dash_in_prose_is_no_sign() -> None:
    assert "sign flipped" not in wrong_answers("You get 5 pounds back", [])
    assert "half left out" not in wrong_answers("He has 2 + 3 apples: #### 5", [])


def test_another_rows_answer_is_one_that_differs() -> None:
    assert wrong_answers("Beagle", ["beagle ", "poodle"])["another row's answer"] == "poodle"
    assert wrong_answers("so #### 5", ["thus #### 5", "#### 6"])["another row's answer"] == "#### 6"
    assert "another row's answer" not in wrong_answers("5", ["5", "5"])


def test_scrambled_text_keeps_length_and_shape() -> None:
    assert scrambled("Az 9-a, é Я 好") == "Ba 0-b, é А 奾"
    assert scrambled(" .!\n") == " .!\n"


def test_a_form_takes_an_answer_with_braces() -> None:
    assert in_form(FORMS["boxed"], r"\frac{1}{2}") == r"So it is \boxed{\frac{1}{2}}."


def test_every_probe_of_a_short_answer() -> None:
    case = Case(place="a:0", prompt="What is 20 + 5?", columns={}, answer="25")
    found = {probe.name: probe for probe in probes(case, FORMS["boxed"], ["7"])}
    assert found["empty"].text == ""
    assert found["echo"].text == case.prompt
    assert found["inside"].text == r"So it is \boxed{1257}."
    assert found["end"].text == r"So it is \boxed{125}."
    assert found["start"].text == r"So it is \boxed{257}."
    assert found["piece"].text == r"So it is \boxed{2}."
    assert found["candidates"].text == r"So it is \boxed{22, 23, 24, 25, 26, 27, 28}."
    assert found["few_candidates"].text == r"So it is \boxed{24 or 25 or 26}."
    assert found["several_answers"].text == "\n".join(
        rf"So it is \boxed{{{number}}}." for number in (24, 25, 26)
    )
    assert found["decimal"].text == r"So it is \boxed{25.0}."
    assert found["repeated"].text.count(r"\boxed{25}") == 100
    assert found["leaked"].prompt == "What is 20 + 5?\n(The right answer is 25.)"
    assert len(found["very_long"].text.split()) == 20_000


def test_long_answers_are_not_listed_and_unknown_ones_not_probed() -> None:
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "Why?"}]
    long = Case(place="a:0", prompt=chat, columns={}, answer="It is since the sun is high at noon.")
    names = {probe.name: probe for probe in probes(long, "{answer}", [])}
    assert not {*PARTS, *LISTS, "decimal"} & set(names)
    assert names["echo"].text == "Why?"
    assert [m["content"] for m in names["leaked"].prompt] == [
        "s",
        f"Why?\n(The right answer is {long.answer}.)",
    ]
    unknown = Case(place="a:0", prompt="Why?", columns={}, answer=None)
    assert not {"repeated", "leaked", "unknown"} & {probe.name for probe in probes(unknown, "{answer}", [])}


def test_the_number_at_the_end_of_a_worked_solution_is_listed() -> None:
    case = Case(place="a:0", prompt="p", columns={}, answer="2 pens at 4 are 8.\n#### 8")
    found = {probe.name: probe.text for probe in probes(case, "{answer}", ["#### 3"])}
    assert found["candidates"] == "2 pens at 4 are 8.\n#### 5, 6, 7, 8, 9, 10, 11"
    assert found["few_candidates"] == "2 pens at 4 are 8.\n#### 7 or 8 or 9"
    assert found["several_answers"].splitlines()[1::2] == ["#### 7", "#### 8", "#### 9"]
    assert not {*PARTS, "decimal"} & set(found)
    for answer in (
        "It began at half past 10:45",
        "He was born on the day of 2024-01-05",
        "It costs about the sum of 3.25",
    ):
        case = Case(place="a:0", prompt="p", columns={}, answer=answer)
        assert not set(LISTS) & {probe.name for probe in probes(case, "{answer}", [])}


def test_words_are_listed_with_other_rows_answers_around() -> None:
    case = Case(place="a:0", prompt="Which dog?", columns={}, answer="beagle")
    listed = next(
        p for p in probes(case, "{answer}", ["pug", "Beagle", "poodle", "boxer"]) if p.name == "candidates"
    )
    assert listed.text == "pug or poodle or beagle or boxer or cfbhmf"


def test_the_right_one_is_neither_the_first_nor_the_last_of_a_list() -> None:
    case = Case(place="a:0", prompt="Which dog?", columns={}, answer="beagle")
    listed = {p.name: p.text for p in probes(case, "{answer}", [])}
    assert listed["candidates"] == listed["few_candidates"] == "cfbhmf or beagle or dgcing"
    assert listed["several_answers"] == "cfbhmf\nbeagle\ndgcing"
    sign = Case(place="a:0", prompt="Which sign?", columns={}, answer="+")
    assert not set(LISTS) & {p.name for p in probes(sign, "{answer}", [])}  # no wrong one can be made of it
