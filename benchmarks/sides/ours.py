"""Our side of a comparison, in the environment that groupwise is installed in.

python -m benchmarks.sides.ours WHAT, with what benchmarks/step.py and the others give it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from benchmarks import facts
from benchmarks.cases import Case, by_place, prompts_of, write_prompts
from benchmarks.phases import Phases
from benchmarks.turns import Seat
from groupwise.checkpoint.export import save_model
from groupwise.config import load
from groupwise.health.metric import Metric
from groupwise.model.embedded import embedded_folder
from groupwise.model.logprobs import TokenLogprobs
from groupwise.records import TrainingGroup
from groupwise.training import loop, setup
from groupwise.training.inputs import read_inputs
from groupwise.training.setup import Run
from groupwise.workbench.evaluation import evaluate_model

VERSIONS = ("torch", "transformers", "numpy")
_NEVER = 100_000  # steps: the leader says when it is enough


def assemble(
    tree: dict[str, Any],
    settings: Sequence[str],
    *,
    precision: str,
    rewards: Sequence[Callable[..., Any]] = (),
    endless: bool,
) -> Run:
    """The parts of a run as `groupwise train` makes them.

    Args:
        tree: the configuration.
        settings: `key=value`, over it.
        precision: float32 or bfloat16.
        rewards: functions.
        endless: no token ends a response, so that every rollout has the full length. A stop token that is drawn
            counts as any other, which leaves sampling and log-probs as they are.
    """
    words = [f"model.precision={precision}", *settings]
    given = setup.load_policy
    if endless:
        setup.load_policy = lambda *a, **k: dataclasses.replace(given(*a, **k), stop_token_ids=(-1,))
    try:
        return setup.assemble(read_inputs(load(tree, words), rewards=rewards))
    finally:
        setup.load_policy = given


def case_run(given: argparse.Namespace, folder: str) -> Run:
    """A run on a case's prompts, with rewards that differ in every group."""
    case = Case(**json.loads(given.case))
    tree = {
        "model": "smollm2-135m",
        "prompts": {"train": str(given.prompts.resolve()), "shuffle": False},
        "rollout": {
            "prompts_per_step": case.prompts,
            "group_size": case.group,
            "max_new_tokens": case.new_tokens,
        },
        "objective": {"preset": "grpo", "kl": {"beta": 0.0}},
        "training": {"steps": _NEVER, "learning_rate": 1e-6},
        "run": {"dir": f"{folder}/run", "sinks": []},
        "checkpoint": {"save": False},  # as on the other side
    }
    return assemble(tree, given.set, precision=given.precision, rewards=[by_place(case.group)], endless=True)


def weights_of(run: Run) -> dict[str, int]:
    """Weights that every token passes (body) and that a token passes where the next one is predicted (head)."""
    model: Any = run.policy.model
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    total = sum(p.numel() for p in model.parameters())
    return {
        "body": total - embedding.numel() - (0 if head is embedding else head.numel()),
        "head": head.numel(),
    }


class _Enough(Exception):  # noqa: N818
    """There are to be no more steps."""


Step = tuple[tuple[TrainingGroup, ...], dict[str, Metric]]


def in_steps(
    run: Run, begin: Callable[[], dict[str, Any] | None], end: Callable[[float, Step, int | None], None]
) -> None:
    """`loop.train`, told before each step whether to go on.

    Args:
        run: the run.
        begin: called before a step; a request, whose `count_flops` has the step's FLOPs counted, or None to end.
        end: called when the loop asks for the next step, with the seconds since the last began (all that the loop does
            is in them, records included), what the step gave, and its FLOPs where they were counted.
    """
    inner = loop.train_step
    last: list[Any] = []

    def stepped(run: Run, number: int) -> Step:
        if last:
            start, *rest = last
            end(time.perf_counter() - start, *rest)
        request = begin()
        if request is None:
            raise _Enough
        counter = _counter() if request.get("count_flops") else None
        start = time.perf_counter()
        with counter or nullcontext():
            given = inner(run, number)
        last[:] = [start, given, None if counter is None else counter.get_total_flops()]
        return given

    loop.train_step = stepped
    try:
        loop.train(run)
    except _Enough:
        return
    finally:
        loop.train_step = inner


def step(given: argparse.Namespace, seat: Seat) -> None:
    """GRPO steps, one per turn."""
    with tempfile.TemporaryDirectory() as folder:
        run = case_run(given, folder)
        phases = Phases()
        phases.wrap(type(run.engine), "generate", "generate")
        phases.wrap(
            TokenLogprobs, "__call__", lambda: "forward" if torch.is_grad_enabled() else "old and reference"
        )
        phases.wrap(TokenLogprobs, "backward", "backward")
        for name in ("zero_grad", "gradient_norm", "scale_gradient", "step", "refuse_not_finite"):
            phases.wrap(type(run.optimizer), name, "optimiser")

        def begin() -> dict[str, Any] | None:
            while (asked := seat.wait()) is not None:
                if asked["do"] == "facts":
                    seat.answer(
                        versions=facts.versions(*VERSIONS),
                        threads=torch.get_num_threads(),
                        weights=weights_of(run),
                        prompts=[len(p.token_ids) for p in run.prompts],
                    )
                elif asked["do"] == "gemm":
                    seat.answer(**facts.gemm_rate(given.precision))
                elif asked["do"] == "rest":
                    facts.rest()
                    seat.answer()
                else:
                    phases.take(0.0)
                    return asked
            return None

        def end(seconds: float, made: Step, flops: int | None) -> None:
            groups, _ = made
            rollouts = [r for g in groups for r in g.group.rollouts_G]
            seat.answer(
                seconds=seconds,
                phases=phases.take(seconds),
                prompt_tokens=sum(len(g.group.prompt.token_ids) for g in groups),
                completion_tokens=sum(len(r.token_ids_T) for r in rollouts),
                without_advantage=sum(not a_T.any() for g in groups for a_T in g.advantages_GT),
                peak_memory_mb=facts.peak_memory_mb(),
                executed_flops=flops,
            )

        in_steps(run, begin, end)


class _NoModules:
    """In place of the tracker of modules, whose hooks fail where gradient checkpointing computes a layer again."""

    parents = frozenset({"Global"})

    def __enter__(self) -> None: ...

    def __exit__(self, *args: object) -> None: ...


def _counter() -> FlopCounterMode:
    counter = FlopCounterMode(display=False, custom_mapping=_formulas())
    counter.mod_tracker = _NoModules()
    return counter


def _formulas() -> dict[Any, Any]:
    """Operators of the processor that torch's counter does not know."""

    def linear(x: Any, weight: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
        rows = 1
        for size in x[:-1]:
            rows *= size
        return int(2 * rows * x[-1] * out_shape[-1])

    def attention(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
        return sdpa_flop_count(query, key, value)

    def attention_backward(grad_out: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
        return 5 * sdpa_flop_count(query, key, value) // 2  # five products in place of two

    aten, mkldnn = torch.ops.aten, torch.ops.mkldnn
    formulas = {
        aten._scaled_dot_product_flash_attention_for_cpu: attention,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_backward,
    }
    if hasattr(mkldnn, "_linear_pointwise"):
        formulas[mkldnn._linear_pointwise] = linear
    return formulas


def sample(given: argparse.Namespace, seat: Seat) -> None:
    """Sampling alone, one batch per turn."""
    with tempfile.TemporaryDirectory() as folder:
        run = case_run(given, folder)
        case = Case(**json.loads(given.case))
        round_ = 0
        while (asked := seat.wait()) is not None:
            if asked["do"] == "facts":
                seat.answer(
                    versions=facts.versions(*VERSIONS),
                    threads=torch.get_num_threads(),
                    prompts=[p.token_ids.tolist() for p in run.prompts],
                )
                continue
            round_ += 1
            start = time.perf_counter()
            groups = run.engine.generate(run.prompts, run.sampling, group_size=case.group, seed=(0, round_))
            seconds = time.perf_counter() - start
            tokens = sum(len(r.token_ids_T) for group in groups for r in group)
            seat.answer(seconds=seconds, tokens=tokens, peak_memory_mb=facts.peak_memory_mb())


def train(given: argparse.Namespace, seat: Seat) -> None:
    """The demo for so many seconds of training, then its model in a folder."""
    with tempfile.TemporaryDirectory() as folder:
        words = [
            f"run.seed={given.seed}",
            f"run.dir={folder}/run",
            "run.sinks=[]",
            "evaluate.at_start=false",
            "checkpoint.save=false",
            f"training.steps={_NEVER}",
            *given.set,
        ]
        tree: Any = facts.ROOT / "examples/first_run/config.yaml"
        run = assemble(tree, words, precision=given.precision, endless=False)
        while (seat.wait() or {})["do"] == "gemm":
            seat.answer(**facts.gemm_rate(given.precision))
        steps: list[dict[str, float]] = []
        began = time.perf_counter()

        def end(seconds: float, made: Step, flops: int | None) -> None:
            steps.append({"seconds": seconds, "reward": made[1]["reward/mean"].value})
            print(f"step {len(steps)}: {steps[-1]}", flush=True)

        in_steps(run, lambda: {} if time.perf_counter() - began < given.seconds else None, end)
        trained = time.perf_counter() - began
        memory = facts.peak_memory_mb()
        save_model(run.policy, given.save)
        seat.answer(
            versions=facts.versions(*VERSIONS),
            threads=torch.get_num_threads(),
            steps=steps,
            training_seconds=trained,
            peak_memory_mb=memory,
        )


def prompts(given: argparse.Namespace) -> None:
    """Write a case's prompts, and say where the model's folder is."""
    from transformers import AutoTokenizer

    folder = embedded_folder()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    write_prompts(given.prompts, prompts_of(tokenizer, Case(**json.loads(given.case))))
    print(folder)


def evaluate(given: argparse.Namespace) -> None:
    """Held-out accuracy of a model folder by the demo's configuration, greedy."""
    config = load(
        facts.ROOT / "examples/first_run/config.yaml",
        [f"model.name={given.model}", "model.precision=float32"],
    )
    print(json.dumps({"pass@1": evaluate_model(config, given.held_out).metrics["eval/pass@1"]}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["step", "sample", "train", "prompts", "evaluate", "model"])
    parser.add_argument("--model")
    parser.add_argument("--held-out", type=Path)
    parser.add_argument("--case")
    parser.add_argument("--prompts", type=Path)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    if given.what == "model":
        print(embedded_folder())
    elif given.what in ("prompts", "evaluate"):
        {"prompts": prompts, "evaluate": evaluate}[given.what](given)
    else:
        {"step": step, "sample": sample, "train": train}[given.what](given, Seat())


if __name__ == "__main__":
    main()
