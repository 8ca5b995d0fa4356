"""Ctrl-C and SIGTERM through the command: where the run ends, with which exit code, and that it goes on the same."""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from groupwise.checkpoint.manifest import Position
from groupwise.checkpoint.save import saved_checkpoints
from tests.end_to_end.interrupted import ROWS, differing, left_behind, tree
from tests.nursery import nursery

REWARD = '''
import os, time

def restless(completions, trainer_state, **columns):
    """Tells where the run is, and takes its time where it is asked to."""
    with open("scored.txt", "a") as file:
        file.write(f"{trainer_state.global_step}\\n")
    slow = os.environ.get("SLOW_STEP")
    if slow is not None and trainer_state.global_step == int(slow) and not os.path.exists("slept.txt"):
        open("slept.txt", "w").close()
        time.sleep(60)
    return [sum(c.isdigit() for c in text) / max(len(text), 1) for text in completions]
'''
BETWEEN_STEPS: dict[str, Any] = {"checkpoint": {"every_steps": 100, "every_minutes": None}}


def command(folder: str, words: list[str], environment: dict[str, str], said: str) -> None:
    """In a process of its own: the command, in that folder."""
    os.chdir(folder)
    os.environ.update(environment)
    sys.stdout = sys.stderr = open(said, "a", buffering=1)  # noqa: SIM115  (until the process ends)
    os.dup2(sys.stderr.fileno(), 2)
    from groupwise.cli.main import run

    sys.exit(run(words))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    config = tree(
        tmp_path / "run", **BETWEEN_STEPS, prompts={"train": "train.jsonl"}, rewards=["reward.py:restless"]
    )
    config["evaluate"] = {}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "reward.py").write_text(REWARD)
    (tmp_path / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    return tmp_path


def begin(project: Path, *words: str, **environment: str) -> Any:
    (project / "scored.txt").unlink(missing_ok=True)
    said = str(project / "said.txt")
    process = nursery().Process(target=command, args=(str(project), list(words), environment, said))
    process.start()
    return process


def wait_for(path: Path, lines: int = 1) -> None:
    deadline = time.monotonic() + 120
    while not (path.exists() and len(path.read_text().splitlines()) >= lines):
        assert time.monotonic() < deadline, f"{path} did not come"
        time.sleep(0.01)


def positions(project: Path) -> list[Position]:
    return [position for position, _ in saved_checkpoints(project / "run" / "checkpoints")]


def goes_on_the_same(project: Path) -> None:
    process = begin(project, "train", "--resume", "run")
    process.join()
    assert process.exitcode == 0
    stopped = left_behind(project / "run")
    (project / "run").rename(project / "was_stopped")
    process = begin(project, "train", "config.yaml")
    process.join()
    assert process.exitcode == 0
    assert differing(stopped, left_behind(project / "run")) == []


def test_ctrl_c_once_finishes_the_step(project: Path) -> None:
    process = begin(project, "train", "config.yaml", SLOW_STEP="1")
    wait_for(project / "slept.txt", lines=0)
    os.kill(process.pid, signal.SIGINT)
    time.sleep(0.2)
    assert process.exitcode is None  # the reward goes on with its work
    process.kill()
    process.join()
    # The same with a reward that ends soon.
    (project / "slept.txt").write_text("")
    process = begin(project, "train", "config.yaml", "run.overwrite=true")
    wait_for(project / "scored.txt", lines=2)
    os.kill(process.pid, signal.SIGINT)
    process.join()
    assert process.exitcode == 130
    position = positions(project)[-1]
    assert position.update == 0
    assert 1 <= position.step < 5
    said = (project / "said.txt").read_text()
    assert "this step is being finished, then a checkpoint written; Ctrl-C again stops at once" in said
    assert f"stopped: the run is saved at step {position.step}; `" in said
    assert "train --resume run` goes on from there" in said
    goes_on_the_same(project)


def test_ctrl_c_twice_stops_at_once(project: Path) -> None:
    process = begin(project, "train", "config.yaml", SLOW_STEP="1")
    wait_for(project / "slept.txt", lines=0)
    os.kill(process.pid, signal.SIGINT)
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGINT)
    process.join(30)
    assert process.exitcode == 130
    assert positions(project) == [Position(0)]  # the start; nothing was written in a hurry
    assert "every step finished until now is in run; `" in (project / "said.txt").read_text()


@pytest.mark.long
def test_sigterm_gives_up_sampling_and_saves_what_was_finished(project: Path) -> None:
    process = begin(project, "train", "config.yaml", SLOW_STEP="2")
    wait_for(project / "slept.txt", lines=0)
    os.kill(process.pid, signal.SIGTERM)
    started = time.monotonic()
    process.join(60)
    assert process.exitcode == 130
    assert time.monotonic() - started < 30  # and not the minute that the reward would have taken
    assert positions(project)[-1] == Position(2)
    assert "asked to end: a checkpoint is written, within 30 seconds" in (project / "said.txt").read_text()
    goes_on_the_same(project)


@pytest.mark.long
def test_sigterm_ends_the_process_when_its_time_is_over(project: Path) -> None:
    # A reward that holds on to its worker and catches everything cannot be broken into.
    reward = REWARD.replace("time.sleep(60)", "_deaf(60)") + (
        "\ndef _deaf(seconds):\n"
        "    end = time.monotonic() + seconds\n"
        "    while time.monotonic() < end:\n"
        "        try:\n"
        "            time.sleep(1)\n"
        "        except BaseException:\n"
        "            pass\n"
    )
    (project / "reward.py").write_text(reward)
    process = begin(project, "train", "config.yaml", "checkpoint.grace_seconds=2", SLOW_STEP="1")
    wait_for(project / "slept.txt", lines=0)
    time.sleep(0.5)  # the file is written a moment before the reward turns deaf
    os.kill(process.pid, signal.SIGTERM)
    process.join(30)
    assert process.exitcode == 130
    assert (
        "no checkpoint could be written in the time given; the one before is whole"
        in (project / "said.txt").read_text()
    )
    assert positions(project) == [Position(0)]
    goes_on_the_same(project)
