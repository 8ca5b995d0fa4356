from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import ConfigError, DataError, GroupwiseError, RunFolderError
from groupwise.workbench.check_reward import Source, check_reward
from groupwise.workbench.examined import Examined

PLANTED = Path(__file__).parent / "planted.py"
DOGS = ["beagle", "poodle", "boxer", "spaniel", "terrier", "mastiff"]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = random.Random(0)
    sums = [(rng.randint(12, 99), rng.randint(12, 99)) for _ in range(12)]
    rows: dict[str, list[dict[str, Any]]] = {
        "sums": [{"prompt": f"What is {a} + {b}?", "answer": str(a + b)} for a, b in sums],
        "worked": [
            {"prompt": f"What is {a} + {b}?", "answer": f"{a} and {b} are added: {a + b}.\n#### {a + b}"}
            for a, b in sums
        ],
        "dogs": [{"prompt": f"Which dog is in picture {i}?", "answer": dog} for i, dog in enumerate(DOGS)],
        "letters": [
            {
                "prompt": f"Order {i} is late. Write to the customer.",
                "reference": f"We are sorry that order {name} is late. You will have it on {day}, and the "
                "postage is on us.",
            }
            for i, (name, day) in enumerate(zip(DOGS, ("Monday", "Tuesday", "Friday") * 2, strict=True))
        ],
    }
    for name, some in rows.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in some))
    return tmp_path / "sums.jsonl"


def examined(reward: str, data: Path, **given: Any) -> Examined:
    ways = {
        key: given.pop(key) for key in ("overrides", "settings", "columns", "model", "run") if key in given
    }
    name = f"{PLANTED}:{reward.removeprefix('planted:')}" if reward.startswith("planted:") else reward
    return check_reward(Source(reward=name, data=data, **ways), **{"rows": 8, **given})


def faults(found: Examined) -> set[str]:
    return {finding.name for finding in found.found if finding.level == "fault"}


@pytest.mark.parametrize(
    ("reward", "fault", "others"),
    [
        ("at_random", "random", set()),
        ("always_one", "constant", set()),
        ("holds_answer", "substring", {"many_candidates", "pays_wrong"}),
        ("by_length", "length_only", set()),
        ("by_form", "format_only", set()),
        ("slowly", "slow", set()),
        ("nan_when_empty", "fails_on_empty", set()),
        ("ascii_only", "fails_on_unicode", set()),
        ("searches_the_prompt", "leaked_answer", {"many_candidates", "pays_wrong"}),
        ("with_noise", "not_repeatable", set()),
    ],
)
def test_ten_planted_faults_are_each_named(data: Path, reward: str, fault: str, others: set[str]) -> None:
    found = examined(f"planted:{reward}", data, step_seconds=0.1 if fault == "slow" else 10.0)
    assert faults(found) == {fault} | others
    assert not found.sound
    assert fault in found.verdict


SOUND: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a built-in scorer": ("numeric", "sums", {}),
    "mathematics": ("math_answer", "sums", {}),
    "one of TRL's shape": ("planted:right", "sums", {}),
    "form and answer in one": ("planted:right_in_tags", "sums", {}),
    "a word between borders": ("contains", "dogs", {}),
    "nearness to a reference": ("rouge", "letters", {}),
    "an async one": ("planted:right_later", "sums", {}),
    "an answer in JSON": ("planted:right_in_json", "sums", {}),
    "one for chats": ("planted:right_of_chat", "sums", {"overrides": ["prompts.chat=true"]}),
    "the whole answer": ("exact", "dogs", {"settings": ["ignore_case=true"]}),
    "keywords with a limit": (
        "keywords",
        "dogs",
        {"columns": ["keywords=answer"], "settings": ["max_words=2"]},
    ),
    "nearness to a number": ("planted:near_enough", "sums", {}),
    "a tenth for form": ("planted:with_a_tenth_for_form", "sums", {}),
    "a tenth for trying": ("planted:with_a_tenth_for_trying", "sums", {}),
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_rewards_pass(data: Path, name: str) -> None:
    reward, file, given = SOUND[name]
    found = examined(reward, data.with_name(f"{file}.jsonl"), **given)
    assert [finding for finding in found.found if finding.level != "note"] == []
    assert found.sound


@pytest.mark.parametrize(
    ("reward", "level", "name"),
    [
        ("worn_out", "fault", "not_repeatable"),
        ("by_hash", "fault", "unrelated"),
        ("either_way", "fault", "pays_empty"),
        ("any_number", "fault", "many_candidates"),
        ("counts_words", "fault", "pays_repeated"),
        ("starts_with", "fault", "substring"),
        ("ends_with", "fault", "substring"),
        ("signless", "fault", "pays_wrong"),
        ("one_short", "fault", "fails_on_samples"),
        ("none_ever", "fault", "never_applies"),
        ("against_the_batch", "warning", "depends_on_batch"),
        ("in_thousands", "warning", "large_values"),
    ],
)
def test_other_faults_are_named(data: Path, reward: str, level: str, name: str) -> None:
    found = examined(f"planted:{reward}", data)
    assert (level, name) in {(finding.level, finding.name) for finding in found.found}


@pytest.mark.parametrize(
    ("reward", "fault", "probes", "said"),
    [
        (
            "in_part_for_listing",
            "many_candidates",
            {"candidates", "few_candidates", "several_answers"},
            "0.3, where the right answer gets 1 and a wrong one 0: a model that is right in less than 30%",
        ),
        ("in_part_for_a_choice", "many_candidates", {"few_candidates"}, "or 127') 0.3, where the right"),
        ("in_part_for_any_line", "many_candidates", {"several_answers"}, "less than 30% of its tries"),
        # A wrong answer gets 0.3 where the right one's figures are in it.
        (
            "in_part_as_text",
            "many_candidates",
            {"candidates", "few_candidates", "several_answers"},
            "a wrong one 0: a model that is right in less than 30% of its tries",
        ),
        ("in_part_for_nothing", "pays_empty", {"empty", "blank"}, "nothing at all ('') 0.3, where the right"),
        (
            "in_part_for_the_question",
            "pays_echo",
            {"echo"},
            "0.25, where the right answer gets 1 and a wrong one 0: a model that is right in less than 25%",
        ),
        (
            "in_part_of_ten",
            "many_candidates",
            {"candidates", "few_candidates", "several_answers"},
            "-2, where the right answer gets 5 and a wrong one -5: a model that is right in less than 30%",
        ),
    ],
)
def test_a_part_of_the_reward_for_no_answer_is_a_fault(
    data: Path, reward: str, fault: str, probes: set[str], said: str
) -> None:
    found = examined(f"planted:{reward}", data)
    assert not found.sound
    says = {finding.name: finding.says for finding in found.found if finding.level == "fault"}
    assert said in says[fault]
    assert "earns more by it than by answering" in says[fault]
    table = {probe["name"]: probe for probe in json.loads(found.json())["probes"]}
    assert probes <= {name for name, probe in table.items() if probe["paid"] == 1.0}
    if reward == "in_part_for_listing":
        assert table["candidates"]["worth"] == pytest.approx(0.3, abs=1e-12)
        assert faults(found) == {"many_candidates"}


@pytest.mark.parametrize(("reward", "sound"), [("planted:in_part_behind_the_mark", False), ("numeric", True)])
def test_lists_are_tried_behind_worked_solutions_too(data: Path, reward: str, sound: bool) -> None:
    found = examined(reward, data.with_name("worked.jsonl"))
    assert {"candidates", "few_candidates", "several_answers"} <= {t.probe.name for t in found.measured.tried}
    assert found.sound is sound
    assert sound or faults(found) == {"many_candidates"}


def test_a_tenth_is_told_and_no_fault(data: Path) -> None:
    found = examined("planted:with_a_tenth_for_trying", data)
    notes = {finding.name: finding.says for finding in found.found}
    assert (
        "pays candidates 10%" in notes["pays_a_little"]
        or "candidates 10%, few_candidates 10%" in notes["pays_a_little"]
    )
    assert "below 20%" in notes["pays_a_little"]
    # Where wrong answers get the tenth for form too, nothing is paid for tricks.
    assert "pays_a_little" not in {f.name for f in examined("planted:with_a_tenth_for_form", data).found}


def test_silence_beside_a_penalty_is_a_warning(data: Path) -> None:
    # (0 - -0.5) / (1 - -0.5) = 1/3 of the way
    found = examined("planted:unless_wrong", data)
    assert found.sound
    (says,) = [f.says for f in found.found if f.level == "warning"]
    assert "nothing at all ('') 0 and white space" in says
    assert "a wrong one -0.5: a model that is right in less than 33% of its tries" in says


def test_the_table_says_what_its_columns_are(data: Path) -> None:
    def below_the_table(found: Examined) -> str:
        lines = found.lines()
        start = next(i for i, line in enumerate(lines) if line.startswith("probe ")) + 1
        start += len(found.measured.tried)
        return " ".join(lines[start : lines.index("", start)])

    said = below_the_table(examined("numeric", data))
    assert "paid: on how many rows that is 20% or more" in said
    assert all(f"{column}: " in said for column in ("score", "worth", "paid"))
    said = below_the_table(examined("sentiment", data.with_name("letters.jsonl"), has_answers=False))
    assert "as much as the best of some plain replies" in said
    assert "worth" not in said


def test_half_of_a_word_is_not_the_answer(data: Path) -> None:
    found = examined("planted:either_way", data.with_name("dogs.jsonl"))
    assert {"pays_empty", "substring"} <= faults(found)


def test_the_probes_come_with_their_text_and_score(data: Path) -> None:
    found = examined("numeric", data)
    value = json.loads(found.json())
    probes = {probe["name"]: probe for probe in value["probes"]}
    assert {"empty", "empty_tags", "very_long", "echo", "leaked", "repeated", "decimal", "unicode"} <= set(
        probes
    )
    row = probes["decimal"]["rows"][0]
    assert row["text"].endswith(".0")
    assert row["reward"] == 1.0
    table = [line for line in found.lines() if line.startswith("decimal ")]
    assert table == [f"decimal              1               {row['text']!r}"]


def test_only_times_differ_from_one_call_to_the_next(data: Path) -> None:
    def told() -> tuple[list[str], dict[str, Any]]:
        found = examined("numeric", data)
        value = json.loads(found.json())
        value.pop("seconds")
        for probe in value["probes"]:
            probe.pop("seconds")
        lines = found.lines()
        start = next(i for i, line in enumerate(lines) if line.startswith("time "))
        return [line for i, line in enumerate(lines) if not start <= i <= start + 1], value

    assert told() == told()


def test_rewards_of_a_configuration_are_examined_together(data: Path) -> None:
    config = data.with_name("config.yaml")
    config.write_text(
        "prompts: {train: sums.jsonl}\n"
        "rewards:\n"
        "  - {name: numeric, weight: 1}\n"
        "  - {name: format, weight: 0.2, settings: {tags: [think, answer]}}\n"
        "  - {name: length, weight: 1, settings: {target: 200, unit: characters}}\n"
        "rollout: {prompts_per_step: 4, group_size: 4}\n"
    )
    found = check_reward(Source(reward=str(config)))
    assert found.sound
    assert found.measured.form.startswith("<think>")
    assert found.measured.cost.rollouts_per_step == 16
    (right, *_) = found.measured.of_kind("right")
    assert right.verdict.parts == {"numeric": 1.0, "format": 1.0, "length": 0.0}
    assert right.value == pytest.approx(1.2, abs=1e-12)
    assert any(line.startswith("  format") for line in found.lines())
    # The form alone, as a run's only reward, is not enough.
    config.write_text(
        "prompts: {train: sums.jsonl}\nrewards: [{name: format, settings: {tags: [think, answer]}}]\n"
    )
    assert faults(check_reward(Source(reward=str(config)))) == {"format_only"}


def test_a_reward_that_ends_runs_is_examined_all_the_same(data: Path) -> None:
    config = data.with_name("config.yaml")
    config.write_text(
        f"prompts: {{train: sums.jsonl}}\nrewards: [{{name: '{PLANTED}:ascii_only', on_failure: fail}}]\n"
    )
    assert faults(check_reward(Source(reward=str(config)))) == {"fails_on_unicode"}


def test_style_is_not_asked_for_answers(data: Path) -> None:
    letters = data.with_name("letters.jsonl")
    assert faults(examined("sentiment", letters)) & {"unrelated", "blind"}
    found = examined("sentiment", letters, has_answers=False)
    assert found.sound
    assert found.answer_column is None
    assert faults(examined("planted:by_length", letters, has_answers=False)) == {"length_only"}


def test_tests_are_not_taken_for_answers(data: Path) -> None:
    rows = [
        {"prompt": "Write f.", "tests": ["assert f(1) == 2"]},
        {"prompt": "Write g.", "tests": ["assert g()"]},
    ]
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    data.with_name("own.py").write_text(
        "def passes(completions, tests):\n    return [0.0] * len(completions)\n"
    )
    found = examined("own.py:passes", data)
    assert found.answer_column is None
    assert "no right answer is known here" in found.found[0].says
    rows = [{**row, "solution": "def f(n):\n    return n + 1"} for row in rows]
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert examined("own.py:passes", data).answer_column == "solution"


def test_what_the_question_names_is_not_taken_for_its_answer(data: Path) -> None:
    pairs = [("hot", "cold"), ("big", "small"), ("old", "young")]
    rows = [{"prompt": f"The opposite of {a}?", "word": a, "opposite": b} for a, b in pairs]
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    data.with_name("own.py").write_text(
        "def turned(completions, word, opposite):\n"
        "    return [float(o in c and w not in c) for c, w, o in zip(completions, word, opposite)]\n"
    )
    found = examined("own.py:turned", data)
    assert found.answer_column == "opposite"
    assert "constant" not in faults(found)


def test_a_form_of_its_own_is_named(data: Path) -> None:
    settings = ["pattern='final: \\d+'"]
    assert faults(examined("format", data, settings=settings)) == {"constant"}
    assert faults(examined("format", data, settings=settings, form="final: {answer}")) == {"format_only"}


def test_rows_that_the_reward_is_wrong_about_are_told(data: Path) -> None:
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    rows[1]["answer"] = None
    rows[2]["answer"] = "see the figure"
    rows[3]["prompt"] = f"Is {rows[3]['answer']} right?"
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows[:6]))
    found = {finding.name: finding.says for finding in examined("numeric", data).found}
    assert "2 of 6 rows, first on" in found["does_not_apply"]
    assert "line 2;" in found["does_not_apply"]
    assert "prompt_holds_answer" not in found  # one of six
    assert "prompt_holds_answer" in {f.name for f in examined("numeric", data, answer="prompt").found}


def test_completions_are_sampled_from_a_model(data: Path) -> None:
    given = ["rollout.group_size=3", "rollout.max_new_tokens=6"]
    found = examined("numeric", data, model="tiny", rows=4, overrides=given)
    sampled = found.measured.of_kind("sampled")
    assert [each.item.group for each in sampled] == [g for g in (4, 5, 6, 7) for _ in range(3)]
    assert all(each.item.token_ids and len(each.item.token_ids) <= 6 for each in sampled)
    assert len({each.item.text for each in sampled}) > 6
    # An untrained model is never right, so no group can teach anything.
    flat = [finding.says for finding in found.found if finding.name == "flat_groups"]
    assert flat[0].startswith("in 4 of 4 groups")
    assert found.sampled_from == "tiny"
    assert (
        examined("numeric", data, model="tiny", rows=4, overrides=given).measured.of_kind("sampled")
        == sampled
    )


@pytest.mark.parametrize(
    ("given", "error", "why"),
    [
        ({"reward": "numerc"}, ConfigError, "did you mean 'numeric'"),
        ({"reward": "numeric", "data": None}, ConfigError, "name a JSONL file with --data"),
        ({"reward": "numeric", "data": Path("sum.jsonl")}, DataError, "did you mean sums.jsonl"),
        ({"reward": "numeric", "settings": ["tolerence=1"]}, ConfigError, "--set: .*'tolerance'"),
        (
            {"reward": "numeric", "columns": ["answer=anser"]},
            DataError,
            "--column answer=answer names another",
        ),
        ({"reward": "bleu"}, DataError, "needs the column 'reference'"),
        ({"reward": "numeric", "answer": "gold"}, DataError, "--answer gold: no row has text or a number"),
        ({"reward": "numeric", "form": "Answer:"}, ConfigError, "does not say where the answer goes"),
        ({"reward": "."}, RunFolderError, "is not a run folder"),
        ({"reward": "numeric", "run": Path("nowhere")}, RunFolderError, "is not a run folder"),
        ({"reward": "no.yaml"}, ConfigError, "no.yaml"),
        ({"reward": "empty.yaml"}, ConfigError, "rewards is empty"),
        ({"reward": "given.yaml", "settings": ["tolerance=1"]}, ConfigError, "a reward that is named alone"),
        (
            {"reward": "numeric", "overrides": ["prompts.columns.prompt=question"]},
            DataError,
            "no column 'question'",
        ),
        ({"reward": "numeric", "model": "no/such/model"}, GroupwiseError, "no/such/model"),
    ],
)
def test_wrong_inputs_are_sentences(
    data: Path, given: dict[str, Any], error: type[GroupwiseError], why: str
) -> None:
    data.with_name("empty.yaml").write_text("prompts: {train: sums.jsonl}\n")
    data.with_name("given.yaml").write_text("prompts: {train: sums.jsonl}\nrewards: [numeric]\n")
    given = {"data": data, **given}
    ways = {key: given.pop(key) for key in ("answer", "form") if key in given}
    with pytest.raises(error, match=why):
        check_reward(Source(**given), **ways)


def test_a_form_fills_in_the_answer_alone(data: Path) -> None:
    rows = [{"prompt": "8 m in cm?", "amount": "800", "unit": "cm"}]
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    data.with_name("own.py").write_text(
        "def same(completions, amount, unit):\n    return [0.0 for _ in completions]\n"
    )
    with pytest.raises(ConfigError, match=r"names the column 'unit', but \{answer\} alone is filled in"):
        examined("own.py:same", data, form="{answer} {unit}")
