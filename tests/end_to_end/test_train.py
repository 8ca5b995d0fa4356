"""Whole runs of the tiny model through the Python entry, and what they leave behind."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import groupwise
from groupwise.config import load
from groupwise.errors import GroupwiseError, RunFolderError
from groupwise.model.load import load_policy
from groupwise.model.logprobs import TokenLogprobs, plain_logprobs
from groupwise.model.shared_prefix import Family
from groupwise.records.metrics_file import comparable, read_metrics
from groupwise.records.rollout_file import read_rollouts
from groupwise.training import loop, setup
from groupwise.training.inputs import read_inputs
from tests.contracts.documentation import undocumented

PROMPTS = ["Say yes.", "Give one word.", "What is two plus two?", "Hello", "How are you?"]
ROWS = [{"prompt": p, "n": i} for i, p in enumerate(PROMPTS)]


def digits(completions: list[str], **columns: Any) -> list[float]:
    return [sum(c.isdigit() for c in text) / max(len(text), 1) for text in completions]


def letters(completions: list[str], **columns: Any) -> list[float]:
    return [sum(c.isascii() and c.isalpha() for c in text) / max(len(text), 1) for text in completions]


def tree(folder: Path, **sections: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "model": {"name": "tiny"},
        "rollout": {"prompts_per_step": 2, "group_size": 8, "max_new_tokens": 8},
        "objective": {"kl": {"beta": 0.01}},
        "training": {"steps": 4, "learning_rate": 3e-3},
        "run": {"dir": str(folder), "sinks": []},
    }
    for name, values in sections.items():
        base[name] = {**base.get(name, {}), **values} if isinstance(values, dict) else values
    return base


def test_a_run_leaves_a_complete_folder(tmp_path: Path) -> None:
    config = tree(
        tmp_path / "run", run={"sinks": ["tensorboard"]}, evaluate={"every_steps": 2, "pass_reward": 0.2}
    )
    result = groupwise.train(config, rewards=[digits], train=ROWS, held_out=[{"prompt": "Hi", "n": 9}])
    folder = result.folder
    logged = read_metrics(folder / "metrics.jsonl")
    assert [line["step"] for line in logged] == [0, 1, 2, 3, 4]
    assert [line["step"] for line in logged if "eval/pass@1" in line] == [0, 2, 4]
    names = {name for line in logged for name in line} - {"step"}
    assert undocumented(names) == []
    assert list((folder / "events").glob("events.out.tfevents.*"))
    assert json.loads((folder / "manifest.json").read_text())["seed"] == 0
    # The written configuration is the configuration, and remembers what its relative paths start from.
    again = load(folder / "config.yaml").config
    assert again.run.base == str(Path.cwd())
    assert (
        again.model_copy(update={"run": again.run.model_copy(update={"base": None})}) == load(config).config
    )
    # The records hold what was trained on, and the logged numbers follow from them.
    for line in logged[1:]:
        groups = read_rollouts(folder / f"rollouts/step-{int(line['step']):06d}.parquet")
        rewards = [v.reward for g in groups for v in g.group.verdicts_G]
        assert line["reward/mean"] == pytest.approx(np.mean(rewards))
        assert line["length/mean"] == pytest.approx(
            np.mean([len(r.token_ids_T) for g in groups for r in g.group.rollouts_G])
        )
        assert line["reward/zero_spread_fraction"] == pytest.approx(np.mean([g.zero_spread for g in groups]))
    model = AutoModelForCausalLM.from_pretrained(folder / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    ids = tokenizer("Hello", return_tensors="pt")
    assert model(**ids).logits.isfinite().all()


def test_five_prompts_two_a_step_use_every_row_once_per_epoch(tmp_path: Path) -> None:
    config = tree(tmp_path / "run", training={"steps": None, "epochs": 2, "learning_rate": 1e-3})
    result = groupwise.train(config, rewards=[digits], train=ROWS)
    seen = []
    for step in range(1, 7):  # 3 batches an epoch: 2, 2 and 1 prompts
        groups = read_rollouts(result.folder / f"rollouts/step-{step:06d}.parquet")
        seen.append([g.group.prompt.columns["n"] for g in groups])
    assert [len(s) for s in seen] == [2, 2, 1, 2, 2, 1]
    for epoch in (seen[:3], seen[3:]):
        assert sorted(n for batch in epoch for n in batch) == [0, 1, 2, 3, 4]
    assert not (result.folder / "rollouts/step-000007.parquet").exists()


def test_the_reward_rises_in_full_training(tmp_path: Path) -> None:
    config = tree(tmp_path / "run", training={"steps": 25, "learning_rate": 5e-3}, rollout={"group_size": 16})
    rewards = groupwise.train(config, rewards=[digits], train=ROWS).series("reward/mean")
    assert np.mean(rewards[-5:]) > np.mean(rewards[:5]) + 0.15


def test_lora_rises_and_leaves_the_base_as_it_was(tmp_path: Path) -> None:
    config = tree(
        tmp_path / "run",
        lora={"rank": 16},
        training={"steps": 50, "learning_rate": 1e-2},
        rollout={"group_size": 16},
    )
    inputs = read_inputs(load(config), rewards=[letters], train=ROWS)
    run = setup.assemble(inputs)
    before = {n: p.detach().clone() for n, p in run.policy.model.named_parameters() if "lora_" not in n}
    result = loop.train(run)
    rewards = result.series("reward/mean")
    assert np.mean(rewards[-10:]) > np.mean(rewards[:10]) + 0.05
    after = dict(run.policy.model.named_parameters())
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    # With the adapter off the log-probs are exactly those of a freshly loaded base.
    base = load_policy(load(config).config.model, lora=None, base=tmp_path, seed=0)
    families = [Family(prompt_ids=np.array([5, 9, 7], np.int32), responses=[np.array([11, 12, 2], np.int32)])]
    assert run.reference_weights is not None
    with torch.no_grad():
        expected, _ = TokenLogprobs(base.model, longest_tokens=32)(families, temperature=1.0)
        tuned, _ = run.updater.forward.scorer(families, temperature=1.0)
        with run.reference_weights():
            off, _ = run.updater.forward.scorer(families, temperature=1.0)
        on_again, _ = run.updater.forward.scorer(families, temperature=1.0)
    assert torch.equal(off, expected)
    assert not torch.equal(tuned, expected)
    assert torch.equal(on_again, tuned)
    # What is saved is the merged model, and it computes what the adapted one does.
    merged = AutoModelForCausalLM.from_pretrained(result.folder / "model")
    with torch.no_grad():
        loaded, _ = plain_logprobs(merged, families, temperature=1.0)
    torch.testing.assert_close(loaded, tuned, atol=1e-4, rtol=0)


def test_the_same_seed_gives_the_same_run_and_another_seed_another(tmp_path: Path) -> None:
    runs = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        config = tree(tmp_path / name, run={"seed": seed, "save_model": False})
        runs.append([comparable(m) for m in groupwise.train(config, rewards=[digits], train=ROWS).metrics])
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_reused_batches_need_the_clip(tmp_path: Path) -> None:
    config = tree(
        tmp_path / "run",
        training={"steps": 3, "learning_rate": 2e-2, "updates_per_batch": 4, "mini_batches": 2},
        objective={"kl": {"beta": 0.0}},
    )
    result = groupwise.train(config, rewards=[letters], train=ROWS)
    assert result.series("training/updates") == [8.0, 16.0, 24.0]
    assert max(result.series("clip/high_fraction")) > 0
    assert max(result.series("ratio/max")) > 1.2


def test_a_second_run_into_the_folder_is_refused_and_overwriting_is_clean(tmp_path: Path) -> None:
    config = tree(tmp_path / "run")
    groupwise.train(config, rewards=[digits], train=ROWS)
    with pytest.raises(RunFolderError, match="overwrite"):
        groupwise.train(config, rewards=[digits], train=ROWS)
    (tmp_path / "run" / "mine.txt").write_text("keep")
    shorter = tree(tmp_path / "run", training={"steps": 2}, run={"overwrite": True})
    groupwise.train(shorter, rewards=[digits], train=ROWS)
    assert (tmp_path / "run" / "mine.txt").read_text() == "keep"
    assert len(list((tmp_path / "run" / "rollouts").iterdir())) == 2


def test_a_run_that_fails_keeps_what_it_wrote(tmp_path: Path) -> None:
    calls = 0

    def breaks(completions: list[str], **columns: Any) -> list[float]:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise ValueError("the judge is gone")
        return digits(completions)

    with pytest.raises(GroupwiseError, match="the judge is gone"):
        groupwise.train(tree(tmp_path / "run"), rewards=[breaks], train=ROWS)
    assert [line["step"] for line in read_metrics(tmp_path / "run/metrics.jsonl")] == [1, 2]
