"""Training on preference pairs: real tiny models, from rows to a run folder."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from transformers import AutoModelForCausalLM

import groupwise
from groupwise.config import load
from groupwise.errors import ConfigError
from groupwise.model.logprobs import plain_logprobs
from groupwise.model.shared_prefix import Family
from groupwise.model.tiny import write_tiny
from groupwise.records.metrics_file import comparable, read_metrics
from groupwise.workbench import dpo
from groupwise.workbench.preferences import read_preferences
from tests.contracts.documentation import undocumented

PROMPTS = ["Say yes.", "Give one word.", "What is two plus two?", "Hello", "How are you?", "Answer briefly."]
WORDS = ["one", "two", "three", "hello", "yes", "no", "the answer", "with you"]
ROWS = [
    {"prompt": prompt, "chosen": f" {word}", "rejected": f" {word} {word} and so on"}
    for prompt in PROMPTS
    for word in WORDS
]
TRAIN, HELD_OUT = ROWS[::2], ROWS[1::6]


def tree(folder: Path, **sections: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "method": "dpo",
        "model": {"name": "tiny"},
        "dpo": {"pairs_per_step": 6},
        "training": {"steps": 3, "learning_rate": 1e-3},
        "run": {"dir": str(folder), "sinks": [], "save_model": False},
    }
    for name, values in sections.items():
        base[name] = {**base.get(name, {}), **values}
    return base


@pytest.fixture
def pair_run(tmp_path: Path) -> Iterator[Callable[..., dpo.PreferenceRun]]:
    made: list[dpo.PreferenceRun] = []

    def build(**sections: Any) -> dpo.PreferenceRun:
        loaded = load(tree(tmp_path / f"run{len(made)}", **sections))
        inputs = read_preferences(loaded, train=TRAIN, held_out=HELD_OUT)
        made.append(dpo.assemble(inputs, console=Console(quiet=True)))
        return made[-1]

    yield build
    for run in made:
        run.recorder.metrics.close()


def test_accuracy_on_held_out_pairs_rises(tmp_path: Path) -> None:
    config = tree(
        tmp_path / "run", training={"steps": 12, "learning_rate": 2e-3}, evaluate={"every_steps": 6}
    )
    result = groupwise.train(config, train=TRAIN, held_out=HELD_OUT)
    lines = read_metrics(result.folder / "metrics.jsonl")
    assert [line["step"] for line in lines if "eval/dpo_accuracy" in line] == [0, 6, 12]
    accuracy, margin = result.series("eval/dpo_accuracy"), result.series("eval/dpo_margin_mean")
    assert accuracy[0] == 0.5, "the policy is its own reference before the first update"
    assert accuracy[-1] >= 0.95
    assert margin[0] == pytest.approx(0.0, abs=1e-6)
    assert margin[-1] > 0.3
    assert result.series("eval/dpo_loss")[0] == pytest.approx(math.log(2), abs=1e-6)
    assert result.series("dpo/loss")[-1] < result.series("dpo/loss")[0] - 0.1
    assert undocumented({name for line in lines for name in line} - {"step"}) == []


def test_with_the_sides_exchanged_the_same_responses_are_learned_away(tmp_path: Path) -> None:
    turned = [{**row, "chosen": row["rejected"], "rejected": row["chosen"]} for row in TRAIN]
    config = tree(tmp_path / "run", training={"steps": 12, "learning_rate": 2e-3})
    result = groupwise.train(config, train=turned, held_out=HELD_OUT)
    assert result.series("eval/dpo_accuracy")[-1] <= 0.05


def test_a_run_leaves_a_folder_that_repeats_it(tmp_path: Path) -> None:
    config = tree(tmp_path / "run", run={"save_model": True})
    first = groupwise.train(config, train=TRAIN, held_out=HELD_OUT)
    again = groupwise.train(
        load(first.folder / "config.yaml", [f"run.dir={tmp_path / 'again'}"]), train=TRAIN, held_out=HELD_OUT
    )
    assert [comparable(line) for line in first.metrics] == [comparable(line) for line in again.metrics]
    sample = (first.folder / "samples" / "step-000003-held-out.md").read_text()
    assert "### Chosen, implied reward" in sample
    assert AutoModelForCausalLM.from_pretrained(first.folder / "model") is not None


def by_hand(run: dpo.PreferenceRun, model: Any) -> torch.Tensor:
    """The loss of the first pairs from the formula, with every sequence computed by itself."""
    losses = []
    for pair in run.pairs[:8]:
        sums = []
        for answer in pair.answers:
            family = Family(prompt_ids=answer.prompt_ids, responses=[answer.rollout.token_ids_T])
            for each in (run.policy.model, model):
                sums.append(plain_logprobs(each, [family], temperature=1.0)[0].sum())
        chosen, chosen_reference, rejected, rejected_reference = sums
        margin = 0.1 * ((chosen - chosen_reference.detach()) - (rejected - rejected_reference.detach()))
        losses.append((1 + (-margin).exp()).log())
    return torch.stack(losses).mean()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-10)])
def test_loss_and_gradient_are_those_of_the_formula_however_the_batch_is_divided(
    pair_run: Callable[..., dpo.PreferenceRun], tmp_path: Path, dtype: torch.dtype, tolerance: float
) -> None:
    """GPT-2 computes in float64 throughout, so that what is left is the order of summation."""
    folder = write_tiny(tmp_path / "gpt2", architecture="gpt2", hidden=32, weight_scale=0.2)
    run = pair_run(model={"name": str(folder)}, training={"max_grad_norm": None})
    run.policy.model.to(dtype)
    beginning = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    with torch.no_grad():
        reference = {}
        for pair in run.pairs[:8]:
            families = [
                Family(prompt_ids=a.prompt_ids, responses=[a.rollout.token_ids_T]) for a in pair.answers
            ]
            each = [
                plain_logprobs(beginning, [f], temperature=1.0)[0].double().sum().item() for f in families
            ]
            reference[pair.prompt.id] = np.array(each)
        generator = torch.Generator().manual_seed(1)
        for p in run.policy.model.parameters():
            p.add_((0.05 * torch.randn(p.shape, generator=generator)).to(dtype))
    run.optimizer.set_rate(0.0)

    def flat() -> torch.Tensor:
        grads = [p.grad.flatten() for p in run.policy.model.parameters() if p.grad is not None]
        return torch.cat(grads).clone()

    expected = by_hand(run, beginning)
    run.policy.model.zero_grad()
    expected.backward()
    right = flat()
    for tokens, rollouts in ((8192, None), (8192, 2), (60, None), (8192, 7)):
        changed = replace(run, forward=replace(run.forward, tokens=tokens, rollouts=rollouts))
        metrics = dpo.update(changed, run.pairs[:8], reference)
        assert metrics["dpo/loss"].value == pytest.approx(expected.item(), rel=tolerance)
        assert float((flat() - right).norm() / right.norm()) < tolerance
    assert metrics["dpo/accuracy"].value not in (0.0, 0.5, 1.0), "the case must have both signs"


def test_lora_trains_the_adapter_alone_and_needs_no_second_model(
    pair_run: Callable[..., dpo.PreferenceRun],
) -> None:
    run = pair_run(lora={"rank": 8}, training={"steps": 15, "learning_rate": 1e-2})
    base = {n: p.detach().clone() for n, p in run.policy.model.named_parameters() if "lora_" not in n}
    result = dpo.train(run)
    assert result.series("eval/dpo_accuracy")[-1] >= 0.95
    after = dict(run.policy.model.named_parameters())
    assert all(torch.equal(value, after[name]) for name, value in base.items())


def test_the_references_log_probs_are_computed_once_for_what_is_used(
    pair_run: Callable[..., dpo.PreferenceRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = pair_run(training={"steps": 2}, evaluate={"at_start": False, "at_end": False})
    seen: list[int] = []
    inner = dpo.summed

    def counting(forward: Any, pairs: Any) -> Any:
        seen.append(len(pairs))
        return inner(forward, pairs)

    monkeypatch.setattr(dpo, "summed", counting)
    dpo.train(run)
    assert seen == [2 * 6 + len(HELD_OUT)]  # two batches of six, not all 24 pairs
    longer = pair_run(training={"steps": 9}, prompts={"drop_last": True}, dpo={"pairs_per_step": 7})
    assert set(dpo.reference_logprobs(longer)) == {p.prompt.id for p in (*longer.pairs, *longer.held_out)}


def test_a_pair_is_never_split(pair_run: Callable[..., dpo.PreferenceRun]) -> None:
    pairs = pair_run().pairs[:5]
    sizes = [pair.tokens for pair in pairs]
    for tokens, rollouts in ((1, None), (sizes[0] + sizes[1], None), (10**6, 4), (10**6, 1), (10**6, None)):
        parts = list(dpo.parts_of(pairs, tokens=tokens, rollouts=rollouts))
        assert [id(pair) for part in parts for pair in part] == [id(pair) for pair in pairs]
        assert all(len(p) == 1 or sum(x.tokens for x in p) <= tokens for p in parts)
        assert all(len(p) == 1 or rollouts is None or 2 * len(p) <= rollouts for p in parts)
    assert [len(p) for p in dpo.parts_of(pairs, tokens=10**6, rollouts=4)] == [2, 2, 1]


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"rollout": {"group_size": 4}}, "rollout.group_size is set, but the method is dpo"),
        ({"objective": {"preset": "dr_grpo"}}, "objective.preset is set, but the method is dpo"),
        ({"objective": {"kl": {"beta": 0.1}}}, "objective.kl.beta is set, but the method is dpo"),
        ({"training": {"mini_batches": 2}}, "training.mini_batches is set, but the method is dpo"),
        ({"evaluate": {"pass_reward": 0.5}}, "evaluate.pass_reward is set, but the method is dpo"),
        ({"reference": {"device": "cpu"}}, "computed once, by the policy itself before its first update"),
        ({"dpo": {"beta": 0}}, "dpo.beta: 0 should be greater than 0"),
        ({"dpo": {"label_smoothing": 0.5}}, "dpo.label_smoothing: 0.5 should be less than 0.5"),
        ({"dpo": {"pairs_per_step": 0}}, "dpo.pairs_per_step: 0 should be greater than or equal to 1"),
        ({"dpo": {"betta": 1}}, "unknown key dpo.betta; did you mean dpo.beta?"),
    ],
)
def test_settings_without_effect_or_sense_are_refused(
    sections: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tree(tmp_path, **sections))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"method": "dpo", "rewards": ["exact"]}, "rewards is set, but the method is dpo"),
        (
            {"dpo": {"beta": 0.2}},
            "dpo.beta is set, but the method is rl, which has no pairs; set method to dpo",
        ),
        ({"method": "grpo"}, "grpo is an objective; write objective: grpo and leave method out"),
        ({"method": "ipo"}, "method: 'ipo' should be 'rl' or 'dpo'"),
        ({"objective": "dpo"}, "dpo trains on given pairs, not by an objective; set method to dpo"),
        ({"method": 3}, "method: 3 should be 'rl' or 'dpo'"),
        ({"method": "dpo", "dpo": 0.1}, "dpo is 0.1, but it is a section with keys of its own"),
    ],
)
def test_the_method_and_what_it_does_not_go_with(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(given)
    assert said in str(caught.value)


def test_rewards_from_python_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="rewards were given, but the method is dpo"):
        groupwise.train(tree(tmp_path / "run"), rewards=[lambda completions: [0.0]], train=TRAIN)
    assert not (tmp_path / "run").exists()


def test_a_run_that_is_stopped_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    sections: dict[str, Any] = {
        "checkpoint": {"every_steps": 1, "best_metric": "eval/dpo_accuracy"},
        "evaluate": {"every_steps": 2},
        "training": {"steps": 4, "learning_rate": 1e-3},
        "lora": {"rank": 4, "dropout": 0.1},
        "run": {"save_model": True},
    }
    given: dict[str, Any] = {"train": TRAIN, "held_out": HELD_OUT}
    whole = groupwise.train(tree(tmp_path / "whole", **sections), **given).folder
    folder = tmp_path / "stopped"
    inputs = read_preferences(load(tree(folder, **sections)), **given)
    run = dpo.assemble(inputs, console=Console(quiet=True))
    step = run.optimizer.step
    calls = 0

    def fails() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        step()

    run.optimizer.step = fails  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        dpo.train(run)
    result = groupwise.train(resume=folder, **given)
    assert [line["step"] for line in result.metrics] == [0, 1, 2, 3, 4]
    logged = [[comparable(line) for line in read_metrics(each / "metrics.jsonl")] for each in (whole, folder)]
    assert logged[0] == logged[1]
    weights = [(each / "model" / "model.safetensors").read_bytes() for each in (whole, folder)]
    assert weights[0] == weights[1]
