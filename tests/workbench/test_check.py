from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import load
from groupwise.errors import ConfigError, RewardError
from groupwise.registry import import_function
from groupwise.training.inputs import Inputs, read_inputs
from groupwise.training.setup import assemble
from groupwise.workbench.check import batch_arithmetic, check, micro_batch_arithmetic


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "8 prompts x 8 rollouts = 64 rollouts, one update per batch"),
        (
            "training.micro_batch_rollouts=16",
            "8 prompts x 8 rollouts = 64 rollouts, 4 micro-batches of 16, one update per batch",
        ),
        (
            "training.micro_batch_rollouts=20",  # 20 + 20 + 20 + 4
            "8 prompts x 8 rollouts = 64 rollouts, 4 micro-batches of at most 20, one update per batch",
        ),
        (
            "training.micro_batch_rollouts=64",
            "8 prompts x 8 rollouts = 64 rollouts, one micro-batch, one update per batch",
        ),
        (
            "training.updates_per_batch=3",
            "8 prompts x 8 rollouts = 64 rollouts, 3 updates per batch (3 passes x 1 mini-batches)",
        ),
        (
            "training.mini_batches=4 training.micro_batch_rollouts=8",  # 64 / 4 = 16 = 2 x 8
            "8 prompts x 8 rollouts = 64 rollouts, 4 mini-batches of 16, 2 micro-batches of 8 rollouts each, "
            "4 updates per batch (1 pass x 4 mini-batches)",
        ),
        (
            "training.mini_batches=3 rollout.prompts_per_step=2 rollout.group_size=5",  # 10 = 4 + 3 + 3
            "2 prompts x 5 rollouts = 10 rollouts, 3 mini-batches of at most 4, "
            "3 updates per batch (1 pass x 3 mini-batches)",
        ),
    ],
)
def test_the_arithmetic_of_a_batch(words: str, said: str) -> None:
    assert batch_arithmetic(load({}, words.split()).config) == said


def test_the_budget_of_tokens() -> None:
    # 64 rollouts x 256 = 16384 tokens; 8192 // 256 = 32 at once, so at least 64 / 32 = 2 passes.
    text = micro_batch_arithmetic(load({}).config)
    assert "at most 32 responses of the full 256, so at least 2 passes for 64 such responses" in text
    # With prompts of at most 768 each takes at most 1024: at least 8 at once, so at most 8 passes.
    text = micro_batch_arithmetic(load({}, ["prompts.max_prompt_tokens=768"]).config)
    assert text.endswith("With prompts of at most 768 tokens it takes at least 8, so at most 8 passes.")
    # 64 x 10 = 640 fit at once.
    text = micro_batch_arithmetic(load({}, ["rollout.max_new_tokens=10"]).config)
    assert text.endswith("64 responses of at most 10 tokens are 640 of them.")


def inputs(tmp_path: Path, *words: str, **tree: object) -> Inputs:
    rows = [{"prompt": f"{i} + 1 =", "answer": str(i + 1)} for i in range(10)]
    (tmp_path / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "held_out.jsonl").write_text(json.dumps({"prompt": "50 + 1 =", "answer": "51"}) + "\n")
    given = {"model": "tiny", "prompts": {"train": "train.jsonl"}, "rewards": ["numeric"], **tree}
    return read_inputs(load(given, words, base=tmp_path))


def test_steps_and_epochs_against_the_rows(tmp_path: Path) -> None:
    def said(*words: str) -> str:
        lines = check(inputs(tmp_path, "rollout.prompts_per_step=4", *words))
        return next(line for line in lines if line.startswith("training data")).split(maxsplit=2)[2]

    # 10 rows by 4 are 3 batches, the last of 2; 6 steps are 2 epochs.
    assert (
        said("training.steps=6")
        == "train.jsonl: 10 rows, 3 steps an epoch (the last has 2 prompts); 6 steps are 2 epochs"
    )
    assert said("training.epochs=2.5") == (
        "train.jsonl: 10 rows, 3 steps an epoch (the last has 2 prompts); 2.5 epochs: 8 steps"  # round(7.5)
    )
    assert said("prompts.drop_last=true") == (
        "train.jsonl: 10 rows, 2 steps an epoch (2 rows a time left out); 1 epoch: 2 steps"
    )


def test_weights_that_cannot_be_kept_are_found_here_and_before_a_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = [{"source": f"{name}.jsonl", "weight": weight} for name, weight in (("train", 300), ("few", 1))]
    (tmp_path / "few.jsonl").write_text(json.dumps({"prompt": "70 + 1 =", "answer": "71"}) + "\n")
    given = inputs(tmp_path, prompts={"train": sources})
    said = (
        r"the source few.jsonl has the weight 1, which gives it none of the 11 places of an epoch; raise it"
    )
    with pytest.raises(ConfigError, match=said):
        check(given)
    monkeypatch.setattr(
        "groupwise.training.setup.load_policy", lambda *a, **k: pytest.fail("a model was loaded")
    )
    with pytest.raises(ConfigError, match=said):
        assemble(given)
    with pytest.raises(ConfigError, match=r"training.warmup_steps is 9, more than the run's 3 steps"):
        check(inputs(tmp_path, "training.warmup_steps=9", "rollout.prompts_per_step=4"))


def test_made_up_completions_are_scored_by_the_real_rewards(tmp_path: Path) -> None:
    lines = check(
        inputs(
            tmp_path, "prompts.held_out=held_out.jsonl", rewards=["numeric", {"name": "length", "weight": 2}]
        )
    )
    text = "\n".join(lines)
    assert "rewards         numeric (weight 1), length (weight 2)" in lines
    assert "'1'  reward 1: numeric 1, length 0" in text  # the answer of the first row
    assert "'I do not know.'  reward 0: numeric 0, length 0" in text
    assert "'51'  reward 1: numeric 1, length 0" in text
    assert lines[-1] == "configuration is fine"


def test_rewards_are_named_with_the_weights_that_they_have(tmp_path: Path) -> None:
    # Two of one name are two rewards; a Python function has a weight as well.
    given = inputs(tmp_path, rewards=["numeric", {"name": "numeric", "weight": 5}])
    assert "rewards         numeric (weight 1), numeric_2 (weight 5)" in check(given)

    def brief(completions: list[str], **columns: object) -> list[float]:
        return [float(len(text) < 9) for text in completions]

    both = read_inputs(given.loaded, rewards=[(brief, 0.5)])
    assert "rewards         numeric (weight 1), numeric_2 (weight 5), brief (weight 0.5)" in check(both)


def test_a_system_turn_and_the_columns_are_those_of_training(tmp_path: Path) -> None:
    (tmp_path / "reward.py").write_text(
        "seen = []\n\ndef look(prompts, completions, **columns):\n"
        "    seen.append((prompts[0], sorted(set(columns) - {'completion_ids', 'stop_reasons', 'trainer_state'})))\n"
        "    return [0.0] * len(completions)\n"
    )
    turns = [{"role": "developer", "content": "Mine."}, {"role": "user", "content": "2 + 2 ="}]
    rows = [{"prompt": turns, "answer": "4", "told": None}]
    given = inputs(
        tmp_path, "prompts.system_prompt=Be brief.", "prompts.chat=true", rewards=["reward.py:look"]
    )
    found = read_inputs(load(given.loaded, ["prompts.train=null"]), train=rows)
    check(found)
    seen = import_function("reward.py:look", base=tmp_path).__globals__["seen"]
    prompt, columns = seen[-1]
    assert prompt == turns  # it has a system turn of its own, by another name
    assert set(columns) == {"answer", "told", "log_extra", "log_metric"}


@pytest.mark.parametrize("chat", [True, False])
def test_rewards_get_the_shape_of_training(tmp_path: Path, chat: bool) -> None:
    (tmp_path / "reward.py").write_text(
        "seen = []\n\ndef look(prompts, completions, completion_ids, stop_reasons, answer, **columns):\n"
        "    seen.append((prompts[0], completions[0], stop_reasons[0], answer[0], sorted(columns)))\n"
        "    return [0.0] * len(completions)\n"
    )
    words = [f"prompts.chat={str(chat).lower()}", *(["prompts.system_prompt=Be brief."] if chat else [])]
    found = inputs(tmp_path, *words, rewards=["reward.py:look"])
    check(found)
    reward = import_function("reward.py:look", base=tmp_path)  # the same module, by the same name
    prompt, completion, stop, answer, columns = reward.__globals__["seen"].pop()
    user = {"role": "user", "content": "0 + 1 ="}
    assert prompt == ([{"role": "system", "content": "Be brief."}, user] if chat else "0 + 1 =")
    assert completion == ([{"role": "assistant", "content": "1"}] if chat else "1")
    assert (stop, answer) == ("stop", "1")
    assert "prompt" not in columns


def test_far_settings_are_questioned_once_and_by_name(tmp_path: Path) -> None:
    lines = check(inputs(tmp_path, "training.learning_rate=1", "rollout.group_size=2", "objective.kl.beta=5"))
    asked = [line for line in lines if "Is it meant?" in line]
    for key in ("training.learning_rate is 1;", "rollout.group_size is 2;", "objective.kl.beta is 5;"):
        assert sum(key in line for line in asked) == 1
    assert len(asked) == 3


def test_usual_settings_are_not_questioned(tmp_path: Path) -> None:
    assert not [line for line in check(inputs(tmp_path)) if "Is it meant?" in line]


def test_a_taken_run_folder_is_noted(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    lines = check(inputs(tmp_path, f"run.dir={tmp_path / 'run'}"))
    assert any(line.startswith("note") and "not empty" in line for line in lines)


def test_a_hub_id_is_not_looked_up(tmp_path: Path) -> None:
    lines = check(inputs(tmp_path, model="someone/some-model"))
    assert lines[0] == "model           someone/some-model: taken for a hub id, and not looked up here"


def silent(tmp_path: Path, answer: str, *rewards: object) -> list[str]:
    given = inputs(tmp_path, rewards=list(rewards))
    rows = [{"prompt": "2 + 2 =", "answer": answer}]
    found = read_inputs(load(given.loaded, ["prompts.train=null"]), train=rows)
    return [line for line in check(found) if "Is it meant?" in line]


def test_a_row_that_no_reward_applies_to_is_questioned(tmp_path: Path) -> None:
    assert silent(tmp_path, "4", "numeric") == []
    (asked,) = silent(tmp_path, "nobody", "numeric")
    assert asked == (
        "question        no reward applies to train:0, whatever the completion: check the column 'answer', which "
        "holds 'nobody'. Is it meant?"
    )
    (tmp_path / "none.py").write_text("def none(completions):\n    return [None] * len(completions)\n")
    (asked,) = silent(tmp_path, "4", "none.py:none")
    assert "no reward applies to train:0, whatever the completion: check what the rewards return." in asked


def test_one_reward_of_several_that_does_not_apply_is_questioned(tmp_path: Path) -> None:
    (asked,) = silent(tmp_path, "nobody", "numeric", "length")
    assert (
        "the reward 'numeric' does not apply to train:0, whatever the completion: check the column" in asked
    )
    assert silent(tmp_path, "4", "numeric", "length") == []


def test_nulls_in_some_rows_of_a_column_that_a_reward_needs_are_questioned(tmp_path: Path) -> None:
    def asked(**files: list[str | None]) -> list[str]:
        for name, answers in files.items():
            rows = [{"prompt": f"{name} {i}", "answer": answer} for i, answer in enumerate(answers)]
            (tmp_path / f"{name}.jsonl").write_text("\n" + "".join(f"{json.dumps(row)}\n" for row in rows))
        prompts = {"train": [f"{name}.jsonl" for name in files]}
        lines = check(inputs(tmp_path, prompts=prompts, rewards=["numeric", "exact", "length"]))
        return [line.removeprefix("question").strip() for line in lines if "is null in" in line]

    assert asked(a=["1", None, "3", None], b=["1"]) == [
        "the column 'answer', which the rewards 'numeric' and 'exact' need, is null in 2 of 4 rows of a.jsonl, the "
        "first of which is a.jsonl line 3. Is it meant?"  # line 1 is blank
    ]
    # A source without any value says that the reward is not for it.
    assert asked(a=["1", "2"], b=[None, None]) == []


def test_a_failure_on_a_made_up_completion_names_the_line_of_its_row(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def own(completions):\n    raise ValueError('odd')\n")
    with pytest.raises(RewardError, match=r"ValueError: odd \(the prompt is train.jsonl line 1\)"):
        check(inputs(tmp_path, rewards=["own.py:own"]))


def test_repeats_overlap_and_sources_are_told_without_a_model(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "1 + 1", "answer": "2"}\n' * 2)
    (tmp_path / "b.csv").write_text("prompt,answer\n2 + 2,4\n")
    (tmp_path / "held.json").write_text('[{"prompt": "2 + 2 ?", "answer": "4"}]')
    prompts = {"train": ["a.jsonl", "b.csv"], "held_out": "held.json"}
    tree = {"model": "tiny", "prompts": prompts, "rewards": ["numeric"], "training": {"steps": 1}}
    text = "\n".join(check(read_inputs(load(tree, base=tmp_path))))
    assert "a.jsonl (2), b.csv (1): 3 rows" in text
    assert "1 of 3 training rows repeat an earlier one in every column" in text
    assert "1 of 1 held-out prompts are trained on as well (such as held.json:0 is b.csv line 2)" in text


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "return rewards_G - rewards_G.mean()",
            ["a group of 0  1 gets -0.5  0.5", "a group of 1  1 gets 0  0"],
        ),
        (
            "return None",
            "objective.advantage, tried on made-up rewards: the advantage own .own.py, line 1. returned nothing",
        ),
        ("return rewards_G / rewards_G.std()", r"gave (inf|nan) for a rollout .*\(rewards \[1\. 1\.\]\)"),
        ("return rewards_G[1:]", "gave 1 entries for 2 rollouts"),
        ("raise KeyError('a')", "failed: KeyError: 'a'"),
    ],
)
def test_an_estimator_of_ones_own_is_tried(tmp_path: Path, body: str, said: Any) -> None:
    (tmp_path / "own.py").write_text(f"def own(rewards_G):\n    {body}\n")
    asked = inputs(tmp_path, "rollout.group_size=2", f"objective.advantage.name={tmp_path}/own.py:own")
    if isinstance(said, list):
        lines = check(asked)
        assert all(any(one in line for line in lines) for one in said)
        return
    with pytest.raises(ConfigError, match=said):
        check(asked)


@pytest.mark.parametrize("form", ["{path}:own", "{{name: '{path}:own'}}"])
def test_an_estimator_of_ones_own_inside_buckets_is_tried(tmp_path: Path, form: str) -> None:
    (tmp_path / "own.py").write_text("def own(rewards_G):\n    return rewards_G - rewards_G.mean()\n")
    advantage = f"objective.advantage={{name: length_buckets, of: {form.format(path=tmp_path / 'own.py')}}}"
    lines = check(inputs(tmp_path, "rollout.group_size=2", advantage))
    # Lengths 2 and 3 share a bucket.
    assert any("a group of 0  1 gets -0.5  0.5" in line for line in lines)
    assert not any("made-up rewards" in line for line in check(inputs(tmp_path, "rollout.group_size=2")))


def test_a_pass_out_of_reach_is_questioned(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "def brief(completions):\n    return [-len(said) for said in completions]\n"
    )
    given = {
        "prompts": {"train": "train.jsonl", "held_out": "held_out.jsonl"},
        "rewards": ["numeric", {"name": "own.py:brief", "weight": 0.0125}],
    }
    # 1 for "51", less 2 x 0.0125 for its two characters.
    [question] = [line for line in check(inputs(tmp_path, **given)) if "evaluate.pass_reward" in line]
    assert "the made-up answer to held_out.jsonl line 1 gets 0.975, but only 1 or more passes" in question
    lower = check(inputs(tmp_path, "evaluate.pass_reward=0.9", **given))
    assert not any("may stay at 0" in line for line in lower)
