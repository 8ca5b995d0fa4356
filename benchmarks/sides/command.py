"""The command `groupwise train` with a stopwatch: what passes until the first rollout, and what a step leaves outside.

python -m benchmarks.sides.command OUT groupwise-words...

OUT receives JSON: seconds since the process was started at which each phase of the start-up ended, and of each step
its seconds, those inside the model's work, and those of writing.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

_BEGAN = float(os.environ["GROUPWISE_BENCH_BEGAN"])  # of time.time() in the process that started this one
marks: dict[str, float] = {}
spent: dict[str, float] = {}
steps: list[dict[str, float]] = []


def mark(name: str) -> None:
    """Say that a phase has ended, once."""
    marks.setdefault(name, time.time() - _BEGAN)


def after(owner: Any, name: str, phase: str) -> None:
    """A phase ends whenever the function returns first."""
    inner = getattr(owner, name)

    def marked(*args: Any, **kwargs: Any) -> Any:
        result = inner(*args, **kwargs)
        mark(phase)
        return result

    setattr(owner, name, marked)


def counted(owner: Any, name: str, kind: str) -> None:
    """Sum up the seconds of a function."""
    inner = getattr(owner, name)

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return inner(*args, **kwargs)
        finally:
            spent[kind] = spent.get(kind, 0.0) + time.perf_counter() - start

    setattr(owner, name, timed)


def watch_steps(loop: Any, recorder: Any) -> None:
    """A step is everything until the loop asks for the next: records, sinks and checkpoints included."""
    step, write = loop.train_step, recorder.write
    metrics: dict[str, float] = {}

    def stepped(*args: Any) -> Any:
        now = time.perf_counter()
        if "start" in spent:
            steps.append({"seconds": now - spent.pop("start")} | spent | {"metrics": dict(metrics)})
        spent.clear()
        spent["start"] = now
        return step(*args)

    def written(self: Any, record: Any) -> Any:
        start = time.perf_counter()
        result = write(self, record)
        spent["write"] = time.perf_counter() - start
        metrics.update(record.metrics)
        return result

    loop.train_step, recorder.write = stepped, written


def main() -> None:
    out = Path(sys.argv.pop(1))
    mark("python")
    import torch

    mark("torch")
    from groupwise.cli.main import run as command
    from groupwise.model import load, logprobs
    from groupwise.rollouts import in_process
    from groupwise.training import inputs, loop, recorder, setup, step

    mark("imports")
    after(inputs, "read_inputs", "configuration, data and rewards read")
    after(load, "embedded_folder", "weights unpacked or checked")
    after(setup, "load_policy", "model loaded")
    after(logprobs.TokenLogprobs, "_probe", "model probed")
    after(setup, "assemble", "assembled")
    after(in_process, "run_packed", "first prefill")
    after(in_process.InProcessEngine, "generate", "first rollouts")
    counted(in_process.InProcessEngine, "generate", "model: generate")
    counted(loop, "logprobs_of", "model: log-probs")
    counted(step.Updater, "update", "model: update")
    counted(loop, "measure", "watch: metrics")
    watch_steps(loop, recorder.Recorder)
    code: Any = 0
    try:
        command()
    except SystemExit as end:
        code = end.code
    out.write_text(json.dumps({"marks": marks, "steps": steps, "threads": torch.get_num_threads()}))
    sys.exit(code)


if __name__ == "__main__":
    main()
