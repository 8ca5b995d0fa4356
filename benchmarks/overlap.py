"""Steps in turn and one batch ahead, against the simulation of the pipeline: writes docs/results/overlap.md.

python -m benchmarks.overlap                  # three pairs of runs of twelve steps: about five minutes
python -m benchmarks.overlap --page           # only writes the page anew

Each pair is the same run twice, with rollout.overlap 0 and with 1; which comes first changes from pair to pair. A
sampler that computes on the trainer's own processor has nothing to gain, so each of its batches comes a known sleep
later, as from a server elsewhere; training is not slowed. What the simulation is told are the seconds of the stages as
the run in turn of the same pair measured them.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import facts
from benchmarks.cases import by_place
from benchmarks.facts import median
from benchmarks.record import RESULTS, Record, read
from benchmarks.results import paragraph, table

PAGE = facts.ROOT / "docs/results/overlap.md"
LEAST_GAIN, BOUND = 0.25, 0.20
"""What overlap has to save of the steps' time in turn, and how far the simulation may be from what is measured."""
STAGES = ("generate", "reward", "train", "push")
_SIZES = {"hidden": 192, "layers": 6}
_ROLLOUT = {"engine": "vllm", "prompts_per_step": 8, "group_size": 8, "max_new_tokens": 16}
_COUNTED = slice(
    2, -1
)  # of a run's steps: the first batch has to be waited for, and at the last none is sampled


def stages_of(line: dict[str, float]) -> dict[str, float]:
    """Seconds of a step that was made in turn: what is none of the others' is the trainer's."""
    generate, reward = line["time/generate_seconds"], line["time/reward_seconds"]
    push = line["time/weights_seconds"]
    return {
        "generate": generate,
        "reward": reward,
        "train": line["time/step_seconds"] - generate - reward - push,
        "push": push,
    }


def simulated(stages: Sequence[dict[str, float]], overlap: int) -> float:
    """Seconds of a step by `groupwise plan`'s own simulation."""
    from groupwise.workbench.planning.pipeline import Stages, simulate

    # Once more and a last, so that the second half without the last is just these steps.
    return simulate(
        [Stages(**each) for each in [*stages, *stages, stages[0]]], overlap=overlap
    ).seconds_per_step


def gains(runs: Sequence[dict[str, Any]]) -> list[dict[str, float]]:
    """Of each pair: seconds of a step in turn and ahead, what that saves, and what the simulation says it saves."""
    found = []
    for pair in sorted({run["pair"] for run in runs}):
        turns, ahead = (
            next(run for run in runs if run["pair"] == pair and run["overlap"] == overlap)
            for overlap in (0, 1)
        )
        seconds = [sum(run["seconds"][_COUNTED]) / len(run["seconds"][_COUNTED]) for run in (turns, ahead)]
        stages = turns["stages"][_COUNTED]
        said = [simulated(stages, overlap) for overlap in (0, 1)]
        found.append(
            {
                "turns": seconds[0],
                "ahead": seconds[1],
                "saved": 1 - seconds[1] / seconds[0],
                "simulated": said[1],
                "said": 1 - said[1] / said[0],
                "off": said[1] / seconds[1] - 1,
            }
        )
    return found


def page(held: dict[str, Any]) -> str:
    """The whole page."""
    found, identity = gains(held["runs"]), held["identity"]
    saved, worst = min(each["saved"] for each in found), max(abs(each["off"]) for each in found)
    all_stages = [each for run in held["runs"] if not run["overlap"] for each in run["stages"][_COUNTED]]
    middle = {name: median([each[name] for each in all_stages]) for name in STAGES}
    rows = [
        [
            str(i + 1),
            f"{each['turns']:.2f}",
            f"{each['ahead']:.2f}",
            f"{each['saved']:.1%}",
            f"{each['simulated']:.2f}",
            f"{each['said']:.1%}",
            f"{each['off']:+.1%}",
        ]
        for i, each in enumerate(found)
    ]
    first = "reached" if saved >= LEAST_GAIN else "NOT reached"
    second = "held" if worst <= BOUND else "NOT held"
    machine = identity["machine"]
    return (
        "\n\n".join(
            [
                "# What sampling one batch ahead brings",
                paragraph(
                    "Written by `python -m benchmarks.overlap`: a random model of",
                    f"{_SIZES['layers']} layers of width {_SIZES['hidden']}, {_ROLLOUT['prompts_per_step']} x",
                    f"{_ROLLOUT['group_size']} rollouts of {_ROLLOUT['max_new_tokens']} tokens, a sampler with a copy",
                    "of the weights, in a thread of its own, each of whose batches comes",
                    f"{identity['sleep']:g} s later.",
                    "Seconds of a step are means over a run without its first two and its last. The simulation is that",
                    "of `groupwise plan`, told the stages that the run in turn of the same pair measured:",
                    f"{middle['generate']:.2f} s sampling, {middle['reward']:.3f} s rewards, {middle['train']:.2f} s",
                    f"training and {middle['push']:.3f} s handing over (medians).",
                ),
                table(
                    ["pair", "in turn, s", "ahead, s", "saved", "ahead by simulation, s", "saved", "off"],
                    rows,
                ),
                paragraph(
                    f"At least {LEAST_GAIN:.0%} of a step's time is to be saved: {first} ({saved:.1%} in the worst",
                    "pair).",
                    f"The simulated step may be off by {BOUND:.0%}: {second} ({worst:.1%} in the worst pair).",
                ),
                paragraph(
                    f"Measured on {machine['processor']}, {machine['cores']} cores, {identity['threads']} thread(s).",
                    "That runs with overlap off are bit for bit those of the plain loop is a test,",
                    "`tests/training/test_ahead.py`.",
                ),
            ]
        )
        + "\n"
    )


def run_once(overlap: int, steps: int, sleep: float) -> dict[str, Any]:
    """One run, with its seconds and, in turn, its stages."""
    from benchmarks.sides import ours
    from groupwise.model.logprobs import TokenLogprobs
    from groupwise.model.tiny import write_tiny
    from groupwise.rollouts.in_process import InProcessEngine
    from groupwise.training import loop

    class Slowed(InProcessEngine):
        """Samples from a copy of the weights, as a server does, and is as slow as it is told to be."""

        same_as_trainer = False

        def __init__(self, run: Any) -> None:
            self.trained = run.policy.model
            model = copy.deepcopy(self.trained)
            scorer = TokenLogprobs(model, longest_tokens=run.policy.context_tokens)
            own = replace(run.policy, model=model)
            super().__init__(own, scorer, cache_megabytes=512, pack_weights=False)

        def load_weights(self, version: int, source: Any) -> None:
            super().load_weights(version, source)
            self.policy.model.load_state_dict(self.trained.state_dict())

        def generate(self, *args: Any, **kwargs: Any) -> Any:
            time.sleep(sleep)
            return super().generate(*args, **kwargs)

    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "prompts.jsonl"
        rows.write_text("".join(f'{{"prompt": "Say the number {i}."}}\n' for i in range(64)))
        tree = {
            "model": {"name": str(write_tiny(Path(folder) / "model", **_SIZES)), "device": "cpu"},
            "prompts": {"train": str(rows)},
            "rollout": {**_ROLLOUT, "overlap": overlap},
            "objective": {"kl": {"beta": 0.0}},
            "training": {"steps": steps, "learning_rate": 1e-4},
            "run": {"dir": f"{folder}/run", "sinks": [], "save_model": False},
            "checkpoint": {"save": False},
        }
        run = ours.assemble(
            tree, [], precision="float32", rewards=[by_place(_ROLLOUT["group_size"])], endless=True
        )
        lines = loop.train(replace(run, engine=Slowed(run))).metrics
    seconds = [line["time/step_seconds"] for line in lines]
    return {"seconds": seconds} | ({} if overlap else {"stages": [stages_of(line) for line in lines]})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--sleep", type=float, default=1.0, help="seconds by which a batch comes later")
    parser.add_argument("--page", action="store_true", help="measure nothing")
    parser.add_argument("--fresh", action="store_true", help="forget earlier runs")
    given = parser.parse_args()
    if not given.page:
        import torch

        torch.set_num_threads(1)
        identity = {"steps": given.steps, "sleep": given.sleep, "machine": facts.machine(), "threads": 1}
        record = Record("overlap", identity, fresh=given.fresh)
        for pair in range(given.pairs):
            for overlap in ((0, 1), (1, 0))[pair % 2]:
                if any(run["pair"] == pair and run["overlap"] == overlap for run in record.runs):
                    continue
                found = facts.moment() | {"pair": pair, "overlap": overlap, "source": facts.source()}
                found |= {"versions": facts.versions("torch", "transformers")}
                record.add(found | run_once(overlap, given.steps, given.sleep))
                print(overlap, [round(each, 2) for each in record.runs[-1]["seconds"]], flush=True)
    PAGE.write_text(page(read(RESULTS / "overlap.json")))
    print(PAGE.read_text())


if __name__ == "__main__":
    main()
