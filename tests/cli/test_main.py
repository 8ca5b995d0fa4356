from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from groupwise.cli.main import _blame, turns_before_sleep
from tests.cli.conftest import Said

VERBS = (
    "train",
    "smoke",
    "eval",
    "compare",
    "export",
    "rate",
    "score",
    "sample",
    "explain",
    "check",
    "plan",
    "check-reward",
    "init",
)


def test_help_names_every_verb(groupwise: Callable[..., Said]) -> None:
    said = groupwise("--help")
    assert (said.code, said.err) == (0, "")
    assert all(f"  {verb} " in said.out for verb in VERBS)
    assert groupwise().out == said.out
    assert "..." not in said.out.partition("Commands:")[2]  # no summary is cut short


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str, groupwise: Callable[..., Said]) -> None:
    said = groupwise(verb, "--help")
    assert (said.code, said.err) == (0, "")
    assert f"groupwise {verb}" in said.out


def test_version_is_the_installed_one(groupwise: Callable[..., Said]) -> None:
    from importlib.metadata import version

    assert groupwise("--version").out == f"groupwise {version('groupwise')}\n"


def test_help_is_instant_since_nothing_heavy_is_imported() -> None:
    program = (
        "import sys; from groupwise.cli.main import run; code = run(['--help']);"
        "print(code, [m for m in ('torch', 'transformers', 'numpy', 'pydantic', 'rich', 'yaml') if m in sys.modules],"
        " file=sys.stderr)"
    )
    seconds = []
    for _ in range(3):
        before = os.times()
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        after = os.times()
        seconds.append(
            after.children_user + after.children_system - before.children_user - before.children_system
        )
        assert done.stderr == "0 []\n"
    assert min(seconds) < 0.6  # processor time, which other programs on the machine hardly change


def test_python_m_groupwise_and_the_environment_of_torch() -> None:
    environment = {
        k: v
        for k, v in os.environ.items()
        if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "TOKENIZERS_PARALLELISM")
    }
    done = subprocess.run(
        [sys.executable, "-m", "groupwise", "--version"], capture_output=True, text=True, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("groupwise ")
    program = (
        "import os; from groupwise.cli.main import run; run(['--version']);"
        "print(*(os.environ[k] for k in ('OMP_WAIT_POLICY', 'GOMP_SPINCOUNT', 'TOKENIZERS_PARALLELISM')))"
    )
    for chosen, turns in (({}, ("1000", "30000")), ({"GOMP_SPINCOUNT": "7"}, ("7",))):
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, env=environment | chosen)
        assert done.stdout.splitlines()[-1] in [f"PASSIVE {each} false" for each in turns]


@pytest.mark.parametrize(
    ("wanted", "cores", "turns"),
    [(0, 2, "30000"), (1, 2, "1000"), (2, 8, "30000"), (3, 8, "1000"), (0, 1, "30000"), (None, 8, "1000")],
)
def test_threads_wait_longer_where_nothing_else_wants_the_cores(
    wanted: int | None, cores: int, turns: str
) -> None:
    assert turns_before_sleep(wanted, cores) == turns


def test_a_closed_pipe_is_quiet() -> None:
    read, write = os.pipe()
    os.close(read)  # as `head` leaves it
    command = [sys.executable, "-m", "groupwise", "explain", "grpo"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_bug_of_ours_is_called_one(
    project: Path, groupwise: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    from groupwise.workbench import explain

    monkeypatch.setattr(explain, "loss", lambda loaded: {}["no such factor"])
    said = groupwise("explain", "grpo")
    assert said.code == 1
    assert said.err.startswith("error: KeyError: 'no such factor' (")
    assert "--debug" in said.err
    assert len(said.err.splitlines()) == 1
    # The innermost frame is the test's own lambda, so the blame is on code of the user's.
    assert "in your own code" in said.err
    assert "test_main.py line" in said.err


def test_blame_falls_on_the_package_when_its_own_line_raised(
    groupwise: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    from groupwise.objective import ratios

    monkeypatch.delitem(ratios.FORMULAS, "token")
    said = groupwise("explain", "grpo")
    assert said.code == 1
    assert "a bug in groupwise, groupwise/workbench/explain.py line" in said.err


def test_blame_does_not_look_into_folders_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", refused)
    with pytest.raises(ValueError, match="Expecting") as caught:
        json.loads("no")
    assert _blame(caught.value) == "a bug in groupwise"


@pytest.mark.parametrize("position", [0, 1, 3])
def test_debug_shows_the_traceback_wherever_it_stands(position: int, groupwise: Callable[..., Said]) -> None:
    words = ["explain", "gropo", "objective.kl.beta=0"]
    words.insert(position, "--debug")
    said = groupwise(*words)
    assert said.code == 2
    assert "Traceback" in said.err
    assert said.err.splitlines()[-1].startswith("error: 'gropo' is neither")


def test_debug_by_the_environment(groupwise: Callable[..., Said], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUPWISE_DEBUG", "1")
    assert "Traceback" in groupwise("explain", "gropo").err
    monkeypatch.setenv("GROUPWISE_DEBUG", "0")
    assert "Traceback" not in groupwise("explain", "gropo").err


def test_ctrl_c_names_the_run_folder_and_keeps_what_was_written(
    project: Path, groupwise: Callable[..., Said]
) -> None:
    (project / "reward.py").write_text(
        "def letters(completions, trainer_state, **columns):\n"
        "    if trainer_state.global_step == 2:\n"
        "        raise KeyboardInterrupt\n"
        "    return [1.0] * len(completions)\n"
    )
    said = groupwise("train", "config.yaml", "training.steps=5", "evaluate.at_start=false")
    assert said.code == 130
    assert said.err.startswith("stopped: every step finished until now is in run; `")
    assert said.err.endswith("train --resume run` goes on from the start\n")
    steps = [
        json.loads(line)["step"] for line in (project / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    assert steps in ([1], [1, 2])


@pytest.mark.parametrize("at_start", ["true", "false"])
def test_ctrl_c_in_the_first_step(at_start: str, project: Path, groupwise: Callable[..., Said]) -> None:
    (project / "reward.py").write_text(
        "def letters(completions, prompts, **columns):\n"
        "    if prompts[0].startswith('train'):\n"
        "        raise KeyboardInterrupt\n"
        "    return [1.0] * len(completions)\n"
    )
    said = groupwise("train", "config.yaml", f"evaluate.at_start={at_start}")
    assert said.code == 130
    assert said.err.startswith("stopped: no step was finished; run holds only how the run began; `")
    assert said.err.endswith("train --resume run` goes on from the start\n")


def test_ctrl_c_while_the_model_loads(
    project: Path, groupwise: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    from groupwise.training import setup

    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(setup, "assemble", interrupted)
    said = groupwise("train", "config.yaml")
    assert (said.code, said.err) == (130, "stopped: no step was finished\n")


def test_ctrl_c_before_a_run(groupwise: Callable[..., Said], monkeypatch: pytest.MonkeyPatch) -> None:
    from groupwise.workbench import explain

    def interrupted(*given: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(explain, "explain", interrupted)
    said = groupwise("explain", "grpo")
    assert (said.code, said.err) == (130, "stopped before anything was written\n")


def test_out_of_memory_is_for_the_user_to_mend(
    groupwise: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    from groupwise.workbench import explain

    def too_large(*given: object) -> str:
        raise RuntimeError(
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 TB"
        )

    monkeypatch.setattr(explain, "explain", too_large)
    said = groupwise("explain", "grpo")
    assert said.code == 2
    assert "training.micro_batch_tokens" in said.err
