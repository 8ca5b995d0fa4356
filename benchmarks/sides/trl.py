"""TRL's side of a comparison, in an environment with trl: its own GRPOTrainer, asked from its callbacks.

python -m benchmarks.sides.trl step | train, with what benchmarks/step.py and real_run.py give it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from benchmarks import facts
from benchmarks.cases import Case, by_place
from benchmarks.phases import Phases
from benchmarks.turns import Seat

VERSIONS = ("trl", "torch", "transformers", "accelerate")


class _Enough(Exception):  # noqa: N818
    """There are no more turns."""


def configuration(folder: str, given: argparse.Namespace, rollouts: int, **more: Any) -> GRPOConfig:
    """What both comparisons share: our preset grpo with beta 0 and our AdamW, in TRL's words."""
    batch = given.batch or rollouts
    return GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=rollouts // batch,
        gradient_checkpointing=False,
        bf16=given.precision == "bfloat16",
        use_cpu=True,
        beta=0.0,
        epsilon=0.2,
        loss_type="grpo",
        scale_rewards="group",
        temperature=1.0,
        lr_scheduler_type="constant",
        adam_beta1=0.9,
        adam_beta2=0.999,
        adam_epsilon=1e-8,
        weight_decay=0.0,
        max_grad_norm=1.0,
        max_steps=100_000,
        report_to="none",
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
        model_init_kwargs={"dtype": "float32"},
        seed=given.seed,
        **more,
    )


class Turns(TrainerCallback):
    """A step per turn: waits before each, answers after it."""

    def __init__(self, seat: Seat, phases: Phases, tokens: dict[str, int]) -> None:
        self.seat, self.phases, self.tokens = seat, phases, tokens

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        while (asked := self.seat.wait()) is not None and asked["do"] == "rest":
            facts.rest()
            self.seat.answer()
        if asked is None:
            raise _Enough
        self.phases.take(0.0)
        self.start = time.perf_counter()

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        self.optimizer_start = time.perf_counter()

    def on_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        seconds = time.perf_counter() - self.optimizer_start
        self.phases.seconds["optimiser"] = self.phases.seconds.get("optimiser", 0.0) + seconds

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        seconds = time.perf_counter() - self.start
        self.seat.answer(
            seconds=seconds,
            phases=self.phases.take(seconds),
            **self.tokens,
            peak_memory_mb=facts.peak_memory_mb(),
        )


def step(given: argparse.Namespace, seat: Seat) -> None:
    """GRPO steps, one per turn."""
    case = Case(**json.loads(given.case))
    rows = [json.loads(line) for line in given.prompts.read_text().splitlines()]
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    lengths = {row["prompt"]: len(tokenizer(row["prompt"]).input_ids) for row in rows}
    tokens: dict[str, int] = {}
    place = by_place(case.group)

    def reward(
        prompts: list[str], completions: list[str], completion_ids: Any, **columns: Any
    ) -> list[float]:
        tokens["prompt_tokens"] = sum(lengths[p] for p in dict.fromkeys(prompts))
        tokens["completion_tokens"] = sum(len(ids) for ids in completion_ids)
        return place(completions)

    phases = Phases()
    with tempfile.TemporaryDirectory() as folder:
        config = configuration(
            folder,
            given,
            case.rollouts,
            num_generations=case.group,
            max_completion_length=case.new_tokens,
            learning_rate=1e-6,
            generation_kwargs={"min_new_tokens": case.new_tokens},
        )
        trainer = GRPOTrainer(
            model=given.model,
            reward_funcs=reward,
            args=config,
            train_dataset=Dataset.from_list(rows),
            callbacks=[Turns(seat, phases, tokens)],
        )
        phases.wrap(trainer, "_generate", "generate")
        phases.wrap(
            trainer,
            "_get_per_token_logps_and_entropies",
            lambda: None if torch.is_grad_enabled() else "old and reference",
        )
        phases.wrap(trainer, "compute_loss", "forward")
        phases.wrap(trainer.accelerator, "backward", "backward")
        phases.wrap(trainer.accelerator, "clip_grad_norm_", "optimiser")
        seat.wait()
        seat.answer(
            versions=facts.versions(*VERSIONS),
            threads=torch.get_num_threads(),
            prompts=list(lengths.values()),
            rows_per_pass=config.per_device_train_batch_size,
        )
        try:
            trainer.train()
        except _Enough:
            return


class Until(TrainerCallback):
    """Keeps the time and the reward of each step, and ends training when its time is over."""

    def __init__(self, budget: float) -> None:
        self.budget = budget
        self.steps: list[dict[str, float]] = []
        self.rewards: list[float] = []

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        self.began = self.last = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        now = time.perf_counter()
        mean = sum(self.rewards) / len(self.rewards)
        self.steps.append({"seconds": now - self.last, "reward": mean})
        print(f"step {len(self.steps)}: {self.steps[-1]}", flush=True)
        self.last = now
        if now - self.began >= self.budget:
            control.should_training_stop = True
        return control


def train(given: argparse.Namespace, seat: Seat) -> None:
    """The demo for so many seconds of training, then its model in a folder."""
    demo = facts.ROOT / "examples/first_run"
    spec = importlib.util.spec_from_file_location("demo_reward", demo / "reward.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows = [json.loads(line) for line in (demo / "train.jsonl").read_text().splitlines()]
    for row in rows:
        row["prompt"] = [{"role": "user", "content": row["prompt"]}]
    until = Until(given.seconds)
    with tempfile.TemporaryDirectory() as folder:
        config = configuration(
            folder, given, 96, num_generations=16, max_completion_length=14, learning_rate=2e-5
        )

        def reward(completions: Any, completion_ids: Any, answer: list[str], **columns: Any) -> list[float]:
            ends = set(trainer.eos_token_ids)
            reasons = ["stop" if ids and ids[-1] in ends else "length" for ids in completion_ids]
            until.rewards = module.right_and_brief(completions, stop_reasons=reasons, answer=answer)
            return until.rewards

        trainer = GRPOTrainer(
            model=given.model,
            reward_funcs=reward,
            args=config,
            train_dataset=Dataset.from_list(rows),
            callbacks=[until],
        )
        while (seat.wait() or {})["do"] == "gemm":
            seat.answer(**facts.gemm_rate(given.precision))
        trainer.train()
        memory = facts.peak_memory_mb()
        trainer.save_model(str(given.save))
        trainer.processing_class.save_pretrained(str(given.save))
    seat.answer(
        versions=facts.versions(*VERSIONS),
        threads=torch.get_num_threads(),
        steps=until.steps,
        training_seconds=until.last - until.began,
        peak_memory_mb=memory,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["step", "train"])
    parser.add_argument("--model", required=True)
    parser.add_argument("--case")
    parser.add_argument("--prompts", type=Path)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--batch", type=int, help="rollouts per forward pass; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    {"step": step, "train": train}[given.what](given, Seat())


if __name__ == "__main__":
    main()
