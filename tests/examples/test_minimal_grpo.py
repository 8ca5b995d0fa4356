"""The one-file GRPO: on the same rollouts its advantages, loss and gradient are the package's."""

import ast
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from groupwise.config import load
from groupwise.model.tiny import write_tiny
from groupwise.rollouts.collect import collect
from groupwise.training.advantages import advantages, judge_all
from groupwise.training.batch import Row
from groupwise.training.inputs import read_inputs
from groupwise.training.logprobs import logprobs_of, training_groups
from groupwise.training.setup import Run, assemble

FILE = Path(__file__).parents[2] / "examples" / "minimal_grpo.py"
PROMPTS = ["Say yes.", "What is two plus two?", "Hi", "Answer briefly, please."]
CLIP, BETA = 0.05, 0.04


@pytest.fixture(scope="module")
def minimal() -> ModuleType:
    spec = importlib.util.spec_from_file_location("minimal_grpo", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def vowels(completions: list[str], **columns: Any) -> list[float]:
    return [float(sum(c in "aeiou" for c in text)) for text in completions]


def package_run(folder: Path, model: str) -> Run:
    tree = {
        "model": model,
        "rollout": {
            "prompts_per_step": 4,
            "group_size": 6,
            "max_new_tokens": 9,
            "temperature": 0.9,
            "stop_tokens": list("bcdfghjklmnpqrstvwxyzBCDFGHJKLMNPQRSTVWXYZ"),
        },  # so that lengths differ
        "objective": {
            "preset": "grpo",
            "kl": {"beta": BETA},
            "surrogate": {"low": CLIP, "high": CLIP},
        },
        "training": {"steps": 1, "max_grad_norm": None},
        "run": {"dir": str(folder / "run"), "sinks": [], "save_model": False},
    }
    inputs = read_inputs(load(tree), rewards=[vowels], train=[{"prompt": p} for p in PROMPTS])
    return assemble(inputs, console=Console(quiet=True))


def batch_of(run: Run) -> tuple[list[Row], torch.Tensor]:
    """A batch as the package trains on it, and its rewards [P, G]; then the policy moves, so that old is old."""
    prompts = [run.prompts[i] for i in run.order.next()]
    collected = collect(run.engine, prompts, run.sampling, run.score(0), group_size=6, seed=(0, 1))
    judged = judge_all(collected.groups, run.config.objective)
    logprobs = logprobs_of(
        judged,
        policy=run.old_forward,
        reference=run.reference_forward,
        reference_weights=run.reference_weights,
    )
    groups = training_groups(judged, logprobs, advantages(judged, run.inputs.estimate))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in run.policy.model.parameters():
            p.add_((0.03 * torch.randn(p.shape, generator=generator)).to(p.dtype))
    rewards = [[v.reward for v in group.verdicts_G] for group in collected.groups]
    return run.updater.rows(groups), torch.tensor(rewards, dtype=torch.float64)


def padded(rows: list[Row], pad: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """The rows as the one-file trainer has them: prompts padded on the left, responses on the right."""
    before = max(len(r.prompt_ids) for r in rows)
    width = max(len(r.rollout.token_ids_T) for r in rows)
    ids = torch.full((len(rows), before + width), pad)
    attended = torch.zeros_like(ids)
    old, reference = torch.zeros(2, len(rows), width, dtype=dtype).unbind()
    for i, row in enumerate(rows):
        n, t = len(row.prompt_ids), len(row.rollout.token_ids_T)
        ids[i, before - n : before + t] = torch.from_numpy(
            np.concatenate([row.prompt_ids, row.rollout.token_ids_T])
        )
        attended[i, before - n : before + t] = 1
        assert row.reference_logprobs_T is not None
        old[i, :t] = torch.from_numpy(row.old_logprobs_T)
        reference[i, :t] = torch.from_numpy(row.reference_logprobs_T)
    return {
        "ids": ids,
        "attended": attended,
        "old": old,
        "reference": reference,
        "trained": attended[:, before:].bool(),
    }


def by_the_package(run: Run, rows: list[Row]) -> tuple[float, torch.Tensor, dict[str, float]]:
    run.optimizer.set_rate(0.0)
    metrics = {name: metric.value for name, metric in run.updater.update(rows).items()}
    gradient = torch.cat([p.grad.flatten() for p in run.policy.model.parameters() if p.grad is not None])
    return metrics["policy/loss"], gradient.clone(), metrics


@pytest.mark.parametrize(
    ("architecture", "dtype", "tolerance"),
    # GPT-2 computes in float64 throughout, so that nothing but the order of summation is left.
    [("llama", torch.float32, 1e-4), ("gpt2", torch.float64, 1e-10)],
)
def test_loss_and_gradient_are_the_packages(
    minimal: ModuleType, tmp_path: Path, architecture: Any, dtype: torch.dtype, tolerance: float
) -> None:
    folder = write_tiny(tmp_path / "model", architecture=architecture, hidden=32, weight_scale=0.2)
    run = package_run(tmp_path, str(folder))
    run.recorder.metrics.close()
    rows, rewards = batch_of(run)
    run.policy.model.to(dtype)
    loss, gradient, metrics = by_the_package(run, rows)
    assert metrics["clip/low_fraction"] > 0, "the case must exercise the clip on both sides"
    assert metrics["clip/high_fraction"] > 0
    assert metrics["kl/token_mean"] > 1e-3
    assert len({len(r.prompt_ids) for r in rows}) > 1
    assert len({len(r.rollout.token_ids_T) for r in rows}) > 1

    advantages = minimal.group_advantages(rewards).flatten()
    assert advantages.tolist() == pytest.approx([r.advantages_T[0] for r in rows], rel=1e-12, abs=1e-12)
    model = run.policy.model.eval()
    for pad in (run.policy.pad_token_id, 17):  # what fills a row up is never seen
        model.zero_grad()
        given = padded(rows, pad, dtype)
        policy = minimal.token_logprobs(model, given["ids"], given["attended"], given["old"].shape[1], 0.9)
        own = minimal.grpo_loss(
            policy,
            given["old"],
            given["reference"],
            advantages.to(dtype),
            given["trained"],
            clip=CLIP,
            beta=BETA,
        )
        own.backward()
        mine = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        assert own.item() == pytest.approx(loss, rel=tolerance, abs=tolerance / 100)
        assert float((mine - gradient).norm() / gradient.norm()) < tolerance


def test_the_advantages_of_a_group(minimal: ModuleType) -> None:
    # mean 2.25, deviations -1.25 -0.25 1.75 -0.25, squares add to 4.75, std sqrt(4.75 / 3) = 1.25831
    got = minimal.group_advantages(torch.tensor([[1.0, 2.0, 4.0, 2.0], [0.3, 0.3, 0.3, 0.3]]), eps=0.0)
    assert got[0].tolist() == pytest.approx([-0.99340, -0.19868, 1.39076, -0.19868], abs=1e-5)
    assert got[1].tolist() == [0.0] * 4


def test_it_needs_torch_and_transformers_only_and_fits_in_two_hundred_lines() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 200
    tree = ast.parse(text)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {"argparse", "copy", "torch", "transformers"}


def test_what_it_samples_is_marked_for_training(minimal: ModuleType) -> None:
    model, tokenizer = minimal.load(None)
    torch.manual_seed(0)
    with torch.no_grad():  # tied to no input: the end token becomes likely, so that responses end early
        model.lm_head.weight[tokenizer.eos_token_id] *= 40
    ids, attended, trained, texts = minimal.sample(model, tokenizer, ["Hi", "Longer"], 8, 10, 1.0)
    width = trained.shape[1]
    assert ids.shape == attended.shape == (16, len(b"Longer") + width)
    assert attended[0, :4].tolist() == [0] * 4  # "Hi" is four bytes shorter and padded on the left
    assert len(texts) == 16
    ends = ids[:, -width:] == tokenizer.eos_token_id
    early = 0
    for row in range(16):
        where = ends[row].nonzero()[:, 0].tolist()
        expected = where[0] + 1 if where else width
        early += expected < width
        assert trained[row].tolist() == [True] * expected + [False] * (width - expected)
    assert early > 0


@pytest.mark.long
def test_it_learns(minimal: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    curve = minimal.main(["--steps", "25"])
    assert np.mean(curve[-5:]) > np.mean(curve[:5]) + 0.4
    assert "step  25" in capsys.readouterr().out
