"""`eval`, `compare` and `rate` on a real project with the tiny model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import load
from groupwise.records.metrics_file import read_metrics
from groupwise.records.run_folder import RunFolder
from tests.cli.conftest import Said


def measured(project: Path, groupwise: Callable[..., Said], *words: str) -> dict[str, Any]:
    said = groupwise("eval", *words, "--output", "found.json")
    assert said.code == 0, said.err
    found: dict[str, Any] = json.loads((project / "found.json").read_text())
    return found


def test_pass_at_k_with_greedy_and_votes(project: Path, groupwise: Callable[..., Said]) -> None:
    said = groupwise("eval", "config.yaml", "evaluate.pass_reward=0.3", "--k", "1,4")
    assert said.code == 0, said.err
    names = [line.split("  ")[0] for line in said.out.splitlines()]
    assert names[:7] == ["model", "data", "passes", "pass@1", "pass@4", "majority@4", "greedy pass@1"]
    found = measured(project, groupwise, "config.yaml", "evaluate.pass_reward=0.3", "--k", "1,4")
    assert found["temperature"] == 1.0
    assert found["metrics"]["eval/pass@4"] == found["shares"]["pass@4"]["value"]
    assert found["metrics"]["eval/greedy_pass@1"] == found["shares"]["greedy pass@1"]["value"]
    assert all(len(prompt["responses"]) == 4 and prompt["greedy"]["text"] for prompt in found["prompts"])
    by_hand = [any(r["reward"] >= 0.3 for r in prompt["responses"]) for prompt in found["prompts"]]
    assert found["shares"]["pass@4"]["value"] == pytest.approx(sum(by_hand) / 3)
    greedy = measured(project, groupwise, "config.yaml")
    assert [p["greedy"]["text"] for p in found["prompts"]] == [
        p["responses"][0]["text"] for p in greedy["prompts"]
    ]


def test_text_metrics_of_a_bare_model(project: Path, groupwise: Callable[..., Said]) -> None:
    assert groupwise("train", "config.yaml", "training.learning_rate=0.05").code == 0
    words = ("--data", "held_out.jsonl", "--reference", "answer", "--diversity", "--perplexity")
    limits = ("rollout.max_new_tokens=6", "prompts.columns.prompt=prompt")
    found = measured(project, groupwise, "run/model", *limits, *words, "--samples", "3", "--temperature", "1")
    assert (found["judged_by"], found["shares"], found["metrics"]) == ([], {}, {})
    assert set(found["text"]) == {
        *("bleu", "rouge_1", "rouge_2", "rouge_l", "distinct_1", "distinct_2", "self_bleu"),
        "perplexity_under_base",
    }
    of_run = measured(project, groupwise, "run", "--perplexity", "--temperature", "1")
    of_model = measured(
        *(project, groupwise, "run/model", "rewards=[numeric]", "--data", "held_out.jsonl", "--perplexity"),
        *("rollout.max_new_tokens=4", "--temperature", "1"),
    )
    texts = [[p["responses"][0]["text"] for p in each["prompts"]] for each in (of_run, of_model)]
    assert texts[0] == texts[1]
    # The trained model's own text is less likely to the model that it began from than to itself.
    assert of_run["text"]["perplexity_under_base"] > of_model["text"]["perplexity_under_base"]


def test_other_tokens_are_told_before_anything_is_sampled(
    project: Path, groupwise: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    from groupwise.model.load import load_tokenizer
    from groupwise.rollouts.in_process import InProcessEngine

    assert groupwise("train", "config.yaml", "training.steps=1").code == 0
    load_tokenizer(load("run/config.yaml").config.model, base=project).save_pretrained("other")
    file = project / "other" / "tokenizer.json"
    tree = json.loads(file.read_text())
    words = tree["model"]["vocab"]
    words["a"], words["b"] = words["b"], words["a"]
    file.write_text(json.dumps(tree))
    sampled: list[object] = []
    monkeypatch.setattr(InProcessEngine, "generate", lambda *given, **more: sampled.append(given))
    said = groupwise("eval", "run", "model.tokenizer=other", "--perplexity", "--temperature", "1")
    assert said.code == 2
    assert "perplexity under tiny cannot be taken, since it reads other tokens than" in said.err
    assert sampled == []


def test_blind_answers_are_the_least_to_beat(project: Path, groupwise: Callable[..., Said]) -> None:
    said = groupwise("eval", "config.yaml", "rewards=[numeric]", "--blind")
    assert said.code == 0, said.err
    # "held_out 0:" is answered by 0, and so on: the last number of the prompt is always right.
    assert "the last number of the prompt" in said.out
    assert "the model shows no more than that here" in said.out


def test_held_out_is_judged_by_rewards_of_its_own(project: Path, groupwise: Callable[..., Said]) -> None:
    words = ("evaluate.rewards=[{name: exact, label: right}]", "training.steps=1")
    assert groupwise("train", "config.yaml", *words).code == 0
    lines = read_metrics(RunFolder(project / "run").metrics_file)
    assert lines[0]["eval/reward_mean"] == 0.0  # exact; the share of letters is not 0
    assert lines[1]["reward/mean"] > 0
    assert "right 0" in groupwise("check", "config.yaml", *words, "run.dir=other").out
    found = measured(project, groupwise, "run")
    assert found["judged_by"] == ["right"]
    assert found["metrics"]["eval/pass@1"] == lines[1]["eval/pass@1"]


def test_compare_prints_its_table(project: Path, groupwise: Callable[..., Said]) -> None:
    words = ("--vary", "objective=dr_grpo", "--seeds", "1", "--metric", "eval/reward_mean", "--output", "out")
    said = groupwise("compare", "config.yaml", *words)
    assert said.code == 0, said.err
    assert "| objective=dr_grpo | 1 | 0." in said.out
    assert said.out.endswith("wrote out/table.md, out/results.json and out/curves.svg\n")
    table = (project / "out" / "table.md").read_text().splitlines()
    assert all(line.removeprefix("- ") in said.out for line in table)
    assert not list((project / "out").rglob("*.safetensors"))


def test_rate_from_export_to_import(project: Path, groupwise: Callable[..., Said]) -> None:
    assert groupwise("train", "config.yaml").code == 0
    measured(project, groupwise, "config.yaml", "--temperature", "1")
    said = groupwise("rate", "export", "run", "found.json", "--output", "sheet")
    assert said.code == 0, said.err
    assert said.out.splitlines()[0] == "6 responses of 2 models in sheet"
    key = json.loads((project / "sheet" / "key.json").read_text())["items"]
    lines = ["item,rating"] + [f"{item['item']},{5 if item['model'] == 'run' else 2}" for item in key]
    (project / "ann.csv").write_text("\n".join(lines))
    said = groupwise("rate", "import", "sheet", "ann.csv", "--output", "rated.json")
    assert said.code == 0, said.err
    assert "run                   5.00 [5.00, 5.00], mean of 1 to 5" in said.out
    assert json.loads((project / "rated.json").read_text())["means"]["found.json"]["value"] == 2.0
    assert groupwise("rate", "import", "sheet", "ann.csv", "--output", "ann.csv").code == 2


def test_every_row_of_an_awkward_file_is_measured_once(project: Path, groupwise: Callable[..., Said]) -> None:
    # Case e06: a byte order mark, CRLF ends, U+2028 and U+0085 inside texts, a blank line. Case e05: a null answer.
    rows = [
        '{"prompt": "a\u2028b", "answer": "1"}',
        '{"prompt": "c\x85d", "answer": null}',
        "",
        '{"prompt": "e", "answer": "3"}',
    ]
    (project / "odd.jsonl").write_bytes(("\ufeff" + "\r\n".join(rows) + "\r\n").encode())
    found = measured(
        project, groupwise, "config.yaml", "rewards=[exact]", "--data", "odd.jsonl", "--k", "1,2"
    )
    assert [prompt["id"] for prompt in found["prompts"]] == ["odd.jsonl:0", "odd.jsonl:1", "odd.jsonl:2"]
    assert [prompt["prompt"] for prompt in found["prompts"]] == ["a\u2028b", "c\x85d", "e"]
    assert [r["reward"] for r in found["prompts"][1]["responses"]] == [None, None]
    assert found["metrics"]["eval/response_count"] == 6


def test_a_file_with_other_columns_is_refused_with_the_remedy(
    project: Path, groupwise: Callable[..., Said]
) -> None:
    # Case e04: the published columns of GSM8K without a mapping, and with one.
    (project / "gsm.jsonl").write_text('{"question": "2 + 2?", "answer": "so #### 4"}\n' * 2)
    said = groupwise("eval", "config.yaml", "rewards=[numeric]", "--data", "gsm.jsonl")
    assert said.code == 2
    assert "no column 'prompt'; the row has question, answer" in said.err
    assert "prompts.columns: {prompt: question}" in said.err
    words = ("rewards=[numeric]", "prompts.columns.prompt=question", "--data", "gsm.jsonl")
    assert groupwise("eval", "config.yaml", *words).code == 0


def test_other_prompts_by_the_name_of_any_source(project: Path, groupwise: Callable[..., Said]) -> None:
    (project / "maker.py").write_text(
        "def rows():\n    return [{'prompt': f'made {i}:', 'answer': str(i)} for i in range(2)]\n"
    )
    for source in ("maker.py:rows", "held_out.jsonl"):
        found = measured(project, groupwise, "config.yaml", "--data", source)
        assert found["data"] == source
        assert found["prompts"][0]["id"] == f"{source}:0"
    words = "prompts.held_out=[held_out.jsonl, {source: 'maker.py:rows'}]"
    assert measured(project, groupwise, "config.yaml", words)["data"] == "held_out.jsonl, maker.py:rows"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("config.yaml", "--reference", "answr"),
            "held_out.jsonl line 1: no column 'answr' to compare with; the row",
        ),
        (
            ("config.yaml", "--reference", "numbr"),
            "no column 'numbr' to compare with; did you mean 'number'?",
        ),
        (
            ("config.yaml", "--reference", "number"),
            "held_out.jsonl line 1: the number column holds 1, not text",
        ),
        (("train.jsonl",), "train.jsonl is a file of rows by its name; name a configuration"),
        (("config.yaml", "--output", "code.py"), "code.py is there already, and people write such files"),
        (
            ("config.yaml", "--output", "other.YAML"),
            "other.YAML is there already, and people write such files",
        ),
        (("config.yaml", "--data", "maker.py:rows"), "maker.py"),
    ],
)
def test_what_is_found_out_before_a_model_is_loaded(
    project: Path,
    groupwise: Callable[..., Said],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.setattr("groupwise.model.load.load_policy", lambda *a, **k: pytest.fail("a model was loaded"))
    (project / "held_out.jsonl").write_text('{"prompt": "a", "text": "b", "number": 1}\n')
    (project / "other.YAML").write_text("kept")
    (project / "code.py").write_text("")
    found = groupwise("eval", *words)
    assert (found.code, said in found.err) == (2, True), found.err
    assert (project / "other.YAML").read_text() == "kept"
