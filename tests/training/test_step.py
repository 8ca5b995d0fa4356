"""One update on real rollouts of a tiny model: nothing about batching may change it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.errors import TrainingError
from groupwise.model.logprobs import TokenLogprobs
from groupwise.model.tiny import write_tiny
from groupwise.rollouts.collect import collect
from groupwise.training.advantages import advantages, judge_all
from groupwise.training.batch import Row
from groupwise.training.logprobs import logprobs_of, training_groups
from groupwise.training.setup import Run


def rows_of(run: Run, shift: float = 0.0) -> list[Row]:
    """The rows of a first batch; `shift` moves the old log-probs so that the clip has work to do."""
    config = run.config
    prompts = [run.prompts[i] for i in run.order.next()]
    collected = collect(
        run.engine, prompts, run.sampling, run.score(1), group_size=config.rollout.group_size, seed=(0, 1)
    )
    judged = judge_all(collected.groups, config.objective)
    logprobs = logprobs_of(
        judged,
        policy=run.old_forward,
        reference=run.reference_forward,
        reference_weights=run.reference_weights,
    )
    rows = run.updater.rows(training_groups(judged, logprobs, advantages(judged, run.inputs.estimate)))
    rng = np.random.default_rng(0)
    return [
        replace(
            r,
            old_logprobs_T=r.old_logprobs_T
            + shift * rng.normal(size=len(r.old_logprobs_T)).astype(np.float32),
        )
        for r in rows
    ]


def gradient(run: Run, rows: list[Row]) -> tuple[torch.Tensor, dict[str, float]]:
    """The gradient and metrics of one update that leaves the weights alone."""
    run.optimizer.set_rate(0.0)
    metrics = run.updater.update(rows)
    flat = torch.cat([p.grad.flatten() for p in run.optimizer.parameters if p.grad is not None]).clone()
    return flat, {name: metric.value for name, metric in metrics.items()}


BASE: dict[str, Any] = {
    "training": {"max_grad_norm": None, "steps": 3, "learning_rate": 1e-3},
    "objective": {"kl": {"beta": 0.1}, "entropy_bonus": 0.01},
}


@pytest.mark.parametrize("aggregation", ["sequence_mean", "token_mean", "constant", "sequence_sum"])
def test_micro_batches_change_neither_gradient_nor_logged_loss(
    tiny_run: Callable[..., Run], aggregation: str
) -> None:
    base = {**BASE, "objective": {**BASE["objective"], "aggregation": aggregation}}
    run = tiny_run(**base)
    rows = rows_of(run, shift=0.3)
    whole, logged = gradient(run, rows)
    assert logged["clip/low_fraction"] > 0, "the case must exercise the clip"
    for size in (1, 2, 5):
        part = tiny_run(**{**base, "training": {**base["training"], "micro_batch_rollouts": size}})
        split, again = gradient(part, rows)
        assert float((split - whole).norm() / whole.norm()) < 1e-5
        for name in (
            "policy/loss",
            "policy/token_loss",
            "kl/token_mean",
            "kl/rollout_mean",
            "clip/low_fraction",
        ):
            assert again[name] == pytest.approx(logged[name], rel=1e-5, abs=1e-7), name


def test_the_order_of_rollouts_does_not_matter(tiny_run: Callable[..., Run]) -> None:
    run = tiny_run(**BASE)
    rows = rows_of(run, shift=0.3)
    whole, _ = gradient(run, rows)
    turned, _ = gradient(run, rows[::-1])
    assert float((turned - whole).norm() / whole.norm()) < 1e-5


def test_rows_without_advantage_are_skipped_yet_count_in_the_divisor(tiny_run: Callable[..., Run]) -> None:
    run = tiny_run(training=BASE["training"])
    rows = rows_of(run)
    some = [replace(r, advantages_T=r.advantages_T * (i % 3 == 0)) for i, r in enumerate(rows)]
    seen: list[int] = []
    inner = run.updater.forward.scorer.__class__.__call__

    def counting(self: Any, families: Any, *, temperature: float, reuse: bool = False) -> Any:
        seen.extend(len(f.responses) for f in families)
        return inner(self, families, temperature=temperature, reuse=reuse)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run.updater.forward.scorer.__class__, "__call__", counting)
        skipped, _ = gradient(run, some)
    assert sum(seen) == sum(r.has_advantage for r in some) < len(rows)
    # The same rows, all computed: an advantage of 1e-30 moves nothing that float32 can see.
    tiny = [replace(r, advantages_T=np.where(r.advantages_T == 0, 1e-30, r.advantages_T)) for r in some]
    computed, _ = gradient(run, tiny)
    assert float((skipped - computed).norm() / computed.norm()) < 1e-5


def test_constant_rewards_change_no_weight(tiny_run: Callable[..., Run]) -> None:
    run = tiny_run(reward=lambda completions, **columns: [0.3] * len(completions))
    before = [p.detach().clone() for p in run.optimizer.parameters]
    metrics = run.updater.update(rows_of(run))
    assert metrics["policy/loss"].value == 0.0
    assert all(torch.equal(a, b) for a, b in zip(before, run.optimizer.parameters, strict=True))


def test_the_first_ratio_is_one(tiny_run: Callable[..., Run]) -> None:
    for temperature in (1.0, 0.6):
        run = tiny_run(rollout={"temperature": temperature})
        _, metrics = gradient(run, rows_of(run))
        assert abs(metrics["ratio/max"] - 1) < 1e-4
        assert abs(metrics["ratio/min"] - 1) < 1e-4
        assert metrics["sampler/gap_abs_max"] < 1e-4


def test_truncated_sampling_takes_the_trainers_log_probs_and_corrects(tiny_run: Callable[..., Run]) -> None:
    run = tiny_run(rollout={"top_k": 20})
    rows = rows_of(run)
    assert all(r.correction_T is not None for r in rows)
    for r in rows:
        # The sampler renormalised over what it kept, so old - sampler = log(kept mass), and the weight is that mass.
        assert r.rollout.kept_mass_T is not None
        np.testing.assert_allclose(r.correction_T, r.rollout.kept_mass_T, rtol=1e-4)
    _, metrics = gradient(run, rows)
    assert abs(metrics["ratio/max"] - 1) < 1e-4, "the clip sees policy - old, not the truncation"


def test_the_kl_of_the_first_step_is_zero_and_pulls_back_later(tiny_run: Callable[..., Run]) -> None:
    run = tiny_run(
        objective={"kl": {"beta": 5.0}}, reward=lambda completions, **columns: [0.0] * len(completions)
    )
    rows = rows_of(run)
    _, metrics = gradient(run, rows)
    assert metrics["kl/token_mean"] < 1e-6
    with torch.no_grad():
        for p in run.optimizer.parameters:
            p.add_(0.02 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1)))
    run.optimizer.set_rate(3e-4)
    values = [run.updater.update(rows)["kl/token_mean"].value for _ in range(6)]
    assert values[0] > 1e-3
    assert values[-1] < values[0] * 0.8, "with no advantages, a step must lower the KL"


def test_non_finite_updates_are_skipped_and_bounded(tiny_run: Callable[..., Run]) -> None:
    run = tiny_run(training={"max_bad_steps": 2, "steps": 3, "learning_rate": 1e-3})
    rows = rows_of(run)
    bad = [replace(rows[0], advantages_T=rows[0].advantages_T * np.nan), *rows[1:]]
    before = [p.detach().clone() for p in run.optimizer.parameters]
    assert run.updater.update(bad)["training/skipped_updates"].value == 1
    assert run.updater.update(rows)["training/skipped_updates"].value == 0, (
        "a good update in between resets the count"
    )
    changed = [p.detach().clone() for p in run.optimizer.parameters]
    assert any(not torch.equal(a, b) for a, b in zip(before, changed, strict=True))
    run.updater.update(bad)
    with pytest.raises(TrainingError, match="2 updates in a row were skipped"):
        run.updater.update(bad)
    assert all(torch.equal(a, b) for a, b in zip(changed, run.optimizer.parameters, strict=True))
    assert all(bool(p.isfinite().all()) for p in run.optimizer.parameters)


def merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    both = {k: {**under[k], **over[k]} for k in under.keys() & over.keys()}
    return {**under, **over, **both}


@pytest.fixture
def gpt2_folder(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "gpt2", architecture="gpt2", hidden=32)


@pytest.mark.parametrize(
    ("aggregation", "more"),
    [
        ("sequence_mean", {}),
        ("token_mean", {}),
        ("constant", {}),
        ("sequence_sum", {}),
        # A ratio and a cap over whole responses, which no division may split.
        (
            "token_mean",
            {
                "ratio": "sequence_geometric",
                "surrogate": {"low": 0.02, "high": 0.02},
                "kl": {"estimator": "k3_ratio", "cap_token": 0.5, "cap_rollout": 1.0},
            },
        ),
        ("sequence_mean", {"ratio": "sequence_product", "advantage": "token_whitening"}),
    ],
    ids=["sequence_mean", "token_mean", "constant", "sequence_sum", "geometric", "product"],
)
def test_a_whole_update_in_float64_does_not_depend_on_how_it_is_divided(
    tiny_run: Callable[..., Run], gpt2_folder: Path, aggregation: str, more: dict[str, Any]
) -> None:
    """GPT-2 computes in float64 throughout, so that what is left is the order of summation."""
    base = {
        **BASE,
        "model": {"name": str(gpt2_folder)},
        "objective": merged({**BASE["objective"], "aggregation": aggregation}, more),
    }
    run = tiny_run(**base)
    rows = rows_of(run, shift=0.3)

    def divided(rows: list[Row], *, share: bool = True, **training: int) -> torch.Tensor:
        other = tiny_run(**{**base, "training": {**base["training"], **training}})
        other.policy.model.double()
        if not share:
            scorer = TokenLogprobs(other.policy.model, longest_tokens=64, share_prefix=False)
            other.updater.forward = replace(other.updater.forward, scorer=scorer)
        return gradient(other, rows)[0]

    whole = divided(rows)
    for other in (
        divided(rows, micro_batch_rollouts=1),
        divided(rows, micro_batch_rollouts=5),
        divided(rows, micro_batch_tokens=30),
        divided(rows[::-1]),
        divided(rows, share=False),
    ):
        assert whole.dtype == torch.float64
        assert float((other - whole).norm() / whole.norm()) < 1e-10
