"""Several processes through the command, `torchrun` and `accelerate launch`, and what becomes of them in trouble."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from groupwise.records.metrics_file import read_metrics
from tests.end_to_end.interrupted import ROWS, tree
from tests.end_to_end.test_signals import command
from tests.nursery import nursery
from tests.training.test_distributed import same_metrics, same_model

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

REWARD = '''
import os, time

def digits(completions, trainer_state, **columns):
    """Leaves the number of each process that scores, and takes its time where it is asked to."""
    slow = os.environ.get("SLOW_STEP")
    if slow is not None and trainer_state.global_step == int(slow):
        open("slow.txt", "w").close()
        time.sleep(float(os.environ.get("SLOW_SECONDS", "60")))
    if os.environ.get("WRONG_STEP") == str(trainer_state.global_step):
        raise ValueError("out of order")
    return [sum(c.isdigit() for c in text) / max(len(text), 1) for text in completions]
'''
ENDS_WITHIN = 15.0


def project(place: Path, strategy: str = "ddp") -> Path:
    place.mkdir(exist_ok=True)
    config = tree(
        place / "run",
        prompts={"train": "train.jsonl"},
        rewards=["reward.py:digits"],
        checkpoint={"every_steps": 1, "every_minutes": None},
        distributed={"strategy": strategy, "timeout_seconds": 120},
    )
    config["evaluate"] = {}
    config["training"] |= {"steps": 5, "reuse_sampling": False}
    config["run"]["sinks"] = ["terminal"]
    (place / "config.yaml").write_text(yaml.safe_dump(config))
    (place / "reward.py").write_text(REWARD)
    (place / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    return place


def begin(place: Path, *words: str, **environment: str) -> subprocess.Popen[str]:
    own = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=place,
        env=own,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def done(place: Path, *words: str, **environment: str) -> str:
    process = begin(place, *words, **environment)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    return said


def processes_in(place: Path) -> list[int]:
    """Of those that work in a folder, the numbers."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
                if state != "Z" and (entry / "cwd").resolve() == place.resolve():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def wait_for(there: Path, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not there.exists():
        assert time.monotonic() < end, f"{there} did not come"
        time.sleep(0.05)


def alone(place: Path, *words: str) -> None:
    """The command in one process, forked from one that has imported everything."""
    process = nursery().Process(target=command, args=(str(place), list(words), {}, str(place / "said.txt")))
    process.start()
    process.join(120)
    assert process.exitcode == 0, (place / "said.txt").read_text()


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = project(tmp_path_factory.mktemp("one"))
    alone(place, "train", "config.yaml")
    return place / "run"


@pytest.mark.parametrize(
    ("launcher", "environment", "strategy"),
    [
        (("groupwise", "train", "--processes", "2"), {}, "ddp"),
        (
            ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "groupwise", "train"),
            {},
            "fsdp2",
        ),
        (
            ("accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "-m", "groupwise", "train"),
            {"ACCELERATE_USE_CPU": "true"},
            "fsdp2",
        ),
    ],
    ids=["processes", "torchrun", "accelerate"],
)
def test_every_launcher_trains_as_one_process_does(
    launcher: tuple[str, ...], environment: dict[str, str], strategy: str, one: Path, tmp_path: Path
) -> None:
    if launcher[0].startswith("accelerate"):
        pytest.importorskip("accelerate")
    place = project(tmp_path / "several", strategy)
    said = done(place, *launcher, "config.yaml", **environment)
    assert f"2 processes (gloo on cpu), {strategy}: " in said
    assert ("fsdp2 is in force: 20 of 20 parameters are DTensors" in said) == (strategy == "fsdp2")
    assert said.count("run folder ") == 1, "one process speaks"
    same_metrics(place / "run", one)
    same_model(place / "run", one)


def test_a_run_that_fails_says_so_once(tmp_path: Path) -> None:
    place = project(tmp_path / "p")
    process = begin(place, "groupwise", "train", "--processes", "2", "config.yaml", WRONG_STEP="1")
    said, _ = process.communicate(timeout=200)
    assert process.returncode == 2, said
    lines = [line for line in said.splitlines() if line.startswith("error")]
    assert len(lines) == 1, said
    assert "out of order" in lines[0]
    assert processes_in(place) == []


def test_sigterm_to_the_launcher_saves_the_run_and_it_goes_on(one: Path, tmp_path: Path) -> None:
    place = project(tmp_path / "p")
    slow = {"SLOW_STEP": "2", "SLOW_SECONDS": "2"}
    process = begin(place, "groupwise", "train", "--processes", "2", "config.yaml", **slow)
    wait_for(place / "slow.txt")
    process.terminate()
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert said.count("goes on from there") == 1, said
    assert processes_in(place) == []
    assert len(read_metrics(place / "run" / "metrics.jsonl")) == 2
    alone(place, "train", "--resume", "run")
    same_metrics(place / "run", one)
    same_model(place / "run", one)


def test_no_process_outlives_its_launcher(tmp_path: Path) -> None:
    place = project(tmp_path / "p")
    process = begin(place, "groupwise", "train", "--processes", "2", "config.yaml", SLOW_STEP="1")
    wait_for(place / "slow.txt")
    assert len(processes_in(place)) >= 3
    process.send_signal(signal.SIGKILL)
    end = time.monotonic() + ENDS_WITHIN
    while processes_in(place) and time.monotonic() < end:
        time.sleep(0.1)
    assert processes_in(place) == []
    process.communicate()
