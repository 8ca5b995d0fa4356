"""Our losses against the installed TRL's: the same log-probs into both, loss and gradient out, in float64.

    python benchmarks/parity/compare.py            # prints the table; exit code 1 when a case is not as expected
    python benchmarks/parity/compare.py --write    # and writes RESULTS.md and trl_settings.txt beside this file

TRL's side is its own trainer, built as a user builds it, whose loss method is called on prepared tensors. Ours is the
objective of a configuration, built as a run builds it. A case that is expected to differ says why and how to get the
other; one that starts to agree fails as well, so that the reason cannot outlive the difference.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).parent
LIMIT = 1e-8
"""Largest difference of two equal losses, or of any entry of their gradients, in float64."""
N, G, T, PROMPT, BUDGET = 12, 4, 9, 3, 16
"""Rollouts, of them in a group, longest response, prompt and generation budget in tokens."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One loss on both sides."""

    name: str
    """What it is called in the table."""
    trl: dict[str, Any]
    """Arguments of TRL's configuration."""
    ours: dict[str, Any]
    """The section `objective`, or `dpo`."""
    method: str = "grpo"
    """TRL's trainer: grpo, rloo or dpo."""
    micro_batches: int = 1
    """Forward passes that one update is divided into, on both sides."""
    differs: str | None = None
    """Why the two are not the same; None when they are to be equal."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a case gave."""

    case: Case
    loss_gap: float
    gradient_gap: float

    @property
    def equal(self) -> bool:
        """Loss and gradient agree."""
        return max(self.loss_gap, self.gradient_gap) <= LIMIT

    @property
    def expected(self) -> bool:
        """It is as the case says."""
        return self.equal == (self.case.differs is None)


def objective(preset: str = "grpo", beta: float = 0.0, **changes: Any) -> dict[str, Any]:
    kl = {"beta": beta, **changes.pop("kl", {})}
    return {"preset": preset, "kl": kl, **changes}


CLIP = {"name": "clip", "low": 0.2, "high": 0.2}
PER_MICRO_BATCH = (
    "TRL divides each forward pass by its own tokens and averages the passes, so its loss depends on how the batch is "
    "divided; ours counts the tokens of the whole optimiser batch. With one pass they are equal (the row `bnpo`)"
)
CASES = (
    Case(name="grpo", trl={"loss_type": "grpo"}, ours=objective()),
    Case(name="grpo, two micro-batches", trl={"loss_type": "grpo"}, ours=objective(), micro_batches=2),
    Case(
        name="grpo with KL (k3)",
        trl={"loss_type": "grpo", "beta": 0.04, "use_bias_correction_kl": False},
        ours=objective(beta=0.04),
    ),
    Case(
        name="KL with bias correction",
        trl={"loss_type": "grpo", "beta": 0.3, "use_bias_correction_kl": True},
        ours=objective(beta=0.3, kl={"estimator": "k3_ratio"}),
    ),
    Case(
        name="KL, TRL's default against ours",
        trl={"loss_type": "grpo", "beta": 0.3},
        ours=objective(beta=0.3),
        differs="TRL 1.16 multiplies k3 by the ratio unless `use_bias_correction_kl=False`; ours is k3 as DeepSeekMath "
        "has it, and `kl.estimator: k3_ratio` is TRL's default",
    ),
    Case(name="bnpo", trl={"loss_type": "bnpo"}, ours=objective(aggregation="token_mean")),
    Case(
        name="bnpo, two micro-batches",
        trl={"loss_type": "bnpo"},
        ours=objective(aggregation="token_mean"),
        micro_batches=2,
        differs=PER_MICRO_BATCH,
    ),
    Case(
        name="dr_grpo",
        trl={"loss_type": "dr_grpo", "max_completion_length": BUDGET},
        ours=objective("dr_grpo", aggregation={"name": "constant", "length": BUDGET}),
    ),
    Case(
        name="dr_grpo, two micro-batches",
        trl={"loss_type": "dr_grpo", "max_completion_length": BUDGET},
        ours=objective("dr_grpo", aggregation={"name": "constant", "length": BUDGET}),
        micro_batches=2,
    ),
    Case(
        name="dapo",
        trl={"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28},
        ours=objective(surrogate={**CLIP, "high": 0.28}, aggregation="token_mean"),
    ),
    Case(
        name="dapo, two micro-batches",
        trl={"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28},
        ours=objective(surrogate={**CLIP, "high": 0.28}, aggregation="token_mean"),
        micro_batches=2,
    ),
    Case(
        name="cispo",
        trl={"loss_type": "cispo", "epsilon_high": 1.3},
        ours=objective(surrogate={"name": "cispo", "bound": 1.3}, aggregation="token_mean"),
    ),
    Case(
        name="gspo (sequence level)",
        trl={
            "loss_type": "grpo",
            "importance_sampling_level": "sequence",
            "epsilon": 3e-4,
            "epsilon_high": 4e-4,
        },
        ours=objective(ratio="sequence_geometric", surrogate={"name": "clip", "low": 3e-4, "high": 4e-4}),
    ),
    Case(
        name="gspo with KL and bias correction",
        trl={"loss_type": "grpo", "importance_sampling_level": "sequence", "beta": 0.3},
        ours=objective(ratio="sequence_geometric", beta=0.3, kl={"estimator": "k3_ratio"}),
    ),
    Case(
        name="two-sided clip",
        trl={"loss_type": "grpo", "delta": 1.3},
        ours=objective(surrogate={**CLIP, "dual": 1.3}),
    ),
    Case(
        name="rloo",
        method="rloo",
        trl={"epsilon": 0.2},
        ours=objective(ratio="sequence_product", surrogate=CLIP),
    ),
    Case(
        name="entropy bonus, token mean",
        trl={"loss_type": "bnpo", "entropy_coef": 0.01},
        ours=objective(aggregation="token_mean", entropy_bonus=0.01),
    ),
    Case(
        name="entropy bonus, sequence mean",
        trl={"loss_type": "grpo", "entropy_coef": 0.01},
        ours=objective(entropy_bonus=0.01),
        differs="TRL's bonus is the mean over tokens whatever the loss type; ours is aggregated as the rest of the "
        "loss",
    ),
    Case(name="dpo", method="dpo", trl={"loss_type": ["sigmoid"], "beta": 0.1}, ours={"beta": 0.1}),
    Case(
        name="dpo, two micro-batches",
        method="dpo",
        trl={"loss_type": ["sigmoid"], "beta": 0.4},
        ours={"beta": 0.4},
        micro_batches=2,
    ),
)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Prepared tensors. Padding holds numbers that would be seen if anything read it."""

    policy_NT: torch.Tensor
    old_NT: torch.Tensor
    reference_NT: torch.Tensor
    entropy_NT: torch.Tensor
    advantages_N: torch.Tensor
    mask_NT: torch.Tensor
    rows: list[list[int]] = field(default_factory=list)


def batch_of(seed: int, micro_batches: int) -> Batch:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)

    old = -normal(N, T).abs()
    lengths = torch.randint(1, T + 1, (N,), generator=generator)
    mask = torch.arange(T)[None, :] < lengths[:, None]
    parts = [part.tolist() for part in np.array_split(np.arange(N), micro_batches)]
    return Batch(
        policy_NT=(old + normal(N, T, scale=0.3)).masked_fill(~mask, -7.0).requires_grad_(),
        old_NT=old.masked_fill(~mask, -5.0),
        reference_NT=(old + normal(N, T, scale=0.3)).masked_fill(~mask, -3.0),
        entropy_NT=normal(N, T).abs().masked_fill(~mask, 9.0).requires_grad_(),
        advantages_N=normal(N),
        mask_NT=mask,
        rows=parts,
    )


def gradients(batch: Batch) -> list[torch.Tensor]:
    found = [
        torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        for leaf in (batch.policy_NT, batch.entropy_NT)
    ]
    # Behind a response's end there is nothing to train.
    assert all(not grad[~batch.mask_NT].any() for grad in found), "padding has a gradient"
    return found


def trl_trainer(method: str, arguments: dict[str, Any], folder: str) -> Any:
    """A trainer as a user builds it, around a model that its loss is not asked of."""
    import datasets
    import trl
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from groupwise.model.tiny import write_tiny

    datasets.disable_progress_bars()
    name = str(write_tiny(Path(folder) / "model", hidden=16, layers=1))
    model, tokenizer = AutoModelForCausalLM.from_pretrained(name), AutoTokenizer.from_pretrained(name)
    usual = {"output_dir": folder, "use_cpu": True, "bf16": False, "report_to": "none"}
    Dataset = datasets.Dataset
    if method == "dpo":
        data = Dataset.from_list([{"prompt": "a", "chosen": " b", "rejected": " c"}] * 4)
        arguments = {**usual, **arguments}
        return trl.DPOTrainer(
            model=model, args=trl.DPOConfig(**arguments), train_dataset=data, processing_class=tokenizer
        )
    kind = {"grpo": (trl.GRPOTrainer, trl.GRPOConfig), "rloo": (trl.RLOOTrainer, trl.RLOOConfig)}[method]
    usual |= {"per_device_train_batch_size": N, "num_generations": G}
    return kind[0](
        model=model,
        reward_funcs=lambda completions, **columns: [0.0 for _ in completions],
        args=kind[1](**{**usual, **arguments}),
        train_dataset=Dataset.from_list([{"prompt": "a"}] * N),
        processing_class=tokenizer,
    )


def by_trl(case: Case, batch: Batch) -> float:
    """TRL's loss, its gradient left on the batch's leaves."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = trl_trainer(case.method, case.trl, folder)
        trainer.current_gradient_accumulation_steps = case.micro_batches
        trainer.args.steps_per_generation = case.micro_batches
        trainer.model.train()
        total = 0.0
        for rows in batch.rows:
            if case.method == "dpo":
                # The Trainer divides a plain loss by the number of accumulation steps before the backward pass.
                loss = dpo_by_trl(trainer, batch, rows) / case.micro_batches
            else:
                loss = rollouts_by_trl(trainer, batch, rows)
            loss.backward()
            total += float(loss.detach())
        return total


def rollouts_by_trl(trainer: Any, batch: Batch, rows: Sequence[int]) -> torch.Tensor:
    def prepared(*_: Any, **__: Any) -> Any:
        return batch.policy_NT[rows], batch.entropy_NT[rows], None

    trainer._get_per_token_logps_and_entropies = prepared
    mask = batch.mask_NT[rows].long()
    inputs = {
        "prompt_ids": torch.ones(len(rows), PROMPT, dtype=torch.long),
        "prompt_mask": torch.ones(len(rows), PROMPT, dtype=torch.long),
        "completion_ids": torch.ones(len(rows), T, dtype=torch.long),
        "completion_mask": mask,
        "advantages": batch.advantages_N[rows],
        "old_per_token_logps": batch.old_NT[rows],
        "ref_per_token_logps": batch.reference_NT[rows],
        "old_logps": (batch.old_NT[rows] * mask).sum(1),
        "num_items_in_batch": batch.mask_NT.sum(),
    }
    loss: torch.Tensor = trainer.compute_loss(trainer.model, inputs)
    return loss


def dpo_by_trl(trainer: Any, batch: Batch, rows: Sequence[int]) -> torch.Tensor:
    """The rows of even number are chosen, those behind them rejected; a micro-batch holds whole pairs."""
    order = [*rows[0::2], *rows[1::2]]
    mask = torch.cat([torch.zeros(len(order), PROMPT, dtype=torch.long), batch.mask_NT[order].long()], dim=1)
    policy = batch.policy_NT[order].masked_fill(~batch.mask_NT[order], 0.0)
    shifted = torch.cat([torch.zeros(len(order), PROMPT - 1, dtype=policy.dtype), policy], dim=1)

    def scored(**_: Any) -> Any:
        zeros = torch.zeros_like(shifted)
        return SimpleNamespace(log_probs=shifted, mean_logits=zeros, is_top1=zeros.bool(), entropy=zeros)

    reference = (batch.reference_NT * batch.mask_NT).sum(1)
    trainer.precompute_ref_logps = True
    inputs = {
        "input_ids": torch.ones_like(mask),
        "attention_mask": torch.ones_like(mask),
        "completion_mask": mask,
        "ref_chosen_logps": reference[rows[0::2]],
        "ref_rejected_logps": reference[rows[1::2]],
    }
    loss: torch.Tensor = trainer.compute_loss(scored, inputs)
    return loss


def by_us(case: Case, batch: Batch) -> float:
    """Our loss, its gradient left on the batch's leaves."""
    total = 0.0
    for rows in batch.rows:
        loss = dpo_by_us(case, batch, rows) if case.method == "dpo" else rollouts_by_us(case, batch, rows)
        loss.backward()
        total += float(loss.detach())
    return total


def rollouts_by_us(case: Case, batch: Batch, rows: Sequence[int]) -> torch.Tensor:
    from groupwise.config import load
    from groupwise.objective.loss import policy_loss
    from groupwise.training.inputs import objective_of

    loaded = load({"objective": case.ours, "rollout": {"max_new_tokens": BUDGET}})
    functions = objective_of(loaded.config, loaded.base)
    lengths = batch.mask_NT.sum(1).numpy()
    weights = torch.from_numpy(np.asarray(functions["aggregate"](lengths)))
    mask = batch.mask_NT[rows]
    counts = mask.sum(1)

    def each(values_N: torch.Tensor) -> torch.Tensor:
        return values_N[rows].repeat_interleave(counts)

    terms = policy_loss(
        functions["objective"],
        policy_logprobs_M=batch.policy_NT[rows][mask],
        old_logprobs_M=batch.old_NT[rows][mask],
        advantages_M=each(batch.advantages_N),
        weights_M=each(weights),
        rollout_M=torch.arange(len(rows)).repeat_interleave(counts),
        rollouts=len(rows),
        reference_logprobs_M=batch.reference_NT[rows][mask],
        entropy_M=batch.entropy_NT[rows][mask],
    )
    loss: torch.Tensor = terms.loss
    return loss


def dpo_by_us(case: Case, batch: Batch, rows: Sequence[int]) -> torch.Tensor:
    from groupwise.objective.dpo import dpo

    policy = batch.policy_NT.masked_fill(~batch.mask_NT, 0.0).sum(1)
    reference = (batch.reference_NT * batch.mask_NT).sum(1)
    chosen, rejected = rows[0::2], rows[1::2]
    terms = dpo(policy[chosen], policy[rejected], reference[chosen], reference[rejected], **case.ours)
    loss: torch.Tensor = terms.loss_P.sum() / (N // 2)
    return loss


def compare(case: Case, seeds: Sequence[int] = (0, 1, 2)) -> Found:
    """Both sides on a few random batches; the largest differences."""
    loss_gap = gradient_gap = 0.0
    for seed in seeds:
        sides: list[tuple[float, list[torch.Tensor]]] = []
        for side in (by_trl, by_us):
            batch = batch_of(seed, case.micro_batches)
            sides.append((side(case, batch), gradients(batch)))
        (theirs, their_grads), (own, own_grads) = sides
        loss_gap = max(loss_gap, abs(theirs - own))
        gaps = [float((a - b).abs().max()) for a, b in zip(their_grads, own_grads, strict=True)]
        gradient_gap = max(gradient_gap, *gaps)
    return Found(case=case, loss_gap=loss_gap, gradient_gap=gradient_gap)


def table(results: Sequence[Found], version: str) -> str:
    lines = [
        f"# Parity with TRL {version}",
        "",
        "Written by `make parity`. The same log-probs, advantages and masks go into TRL's trainer and into the "
        "objective of a configuration; in float64, three random batches each. Equal means that the loss and every "
        f"entry of its gradient differ by at most {LIMIT:g}.",
        "",
        "| case | TRL | ours | loss differs by | gradient differs by | |",
        "|---|---|---|---|---|---|",
    ]
    for found in results:
        case = found.case
        said = ("equal" if found.equal else "differs") + ("" if found.expected else ", UNEXPECTED")
        theirs = ", ".join(f"{k}={v!r}" for k, v in case.trl.items())
        lines.append(
            f"| {case.name} | `{theirs}` | `{plain(case)}` | {found.loss_gap:.1e} | {found.gradient_gap:.1e} | {said} |"
        )
    lines += ["", "Why some differ:", ""]
    lines += [f"- {found.case.name}: {found.case.differs}." for found in results if found.case.differs]
    return "\n".join(lines) + "\n"


def plain(case: Case) -> str:
    """Our settings on one line, in YAML's flow style."""

    def said(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{k}: {said(v)}" for k, v in value.items()) + "}"
        return f"{value:g}" if isinstance(value, float) else str(value)

    section = "dpo" if case.method == "dpo" else "objective"
    return f"{section}: {said(case.ours)}"


def settings() -> str:
    """The settings of TRL's GRPOConfig that are its own, one a line: what docs/from_trl.md has to answer."""
    from trl import GRPOConfig

    return "".join(f"{name}\n" for name in GRPOConfig.__annotations__ if not name.startswith("_"))


def main(argv: Sequence[str] | None = None, say: Callable[[str], None] = print) -> int:
    parser = argparse.ArgumentParser(description="Our losses against the installed TRL's.")
    parser.add_argument("--write", action="store_true", help="write RESULTS.md and trl_settings.txt")
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore")  # TRL's own
    logging.disable(logging.WARNING)
    try:
        import trl
    except ImportError:
        say("TRL is not installed: pip install 'trl==1.16.0', or `make parity`")
        return 2
    results = [compare(case) for case in CASES]
    text = table(results, trl.__version__)
    say(text)
    if options.write:
        (HERE / "RESULTS.md").write_text(text, encoding="utf-8")
        (HERE / "trl_settings.txt").write_text(settings(), encoding="utf-8")
    wrong = [found.case.name for found in results if not found.expected]
    if wrong:
        say(f"not as expected: {', '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
