"""Several processes watched over: how they end together. What they do here is a line of Python each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from groupwise.training import launch as launching
from groupwise.training.launch import launch

SLEEPS = "import time; time.sleep(60)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The processes, each of which runs one of the words as Python."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(words: Sequence[str], rank: int, *others: Any) -> subprocess.Popen[bytes]:
        processes.append(subprocess.Popen([sys.executable, "-c", words[rank]], start_new_session=True))
        return processes[-1]

    monkeypatch.setattr(launching, "_start", start)
    monkeypatch.setattr(launching, "SECONDS_TO_NOTICE", 0.2)
    return processes


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["pass", "pass"], 0),
        (["raise SystemExit(2)", SLEEPS], 2),
        ([STUBBORN, "raise SystemExit(3)", "pass"], 3),
        (["pass", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", SLEEPS], 137),
    ],
)
def test_all_end_with_the_code_of_the_one_that_failed(
    words: list[str], code: int, started: list[subprocess.Popen[bytes]], capfd: pytest.CaptureFixture[str]
) -> None:
    before = time.monotonic()
    assert launch(words, len(words), grace_seconds=0.5) == code
    assert time.monotonic() - before < 10
    assert all(process.poll() is not None for process in started)
    said = capfd.readouterr().err
    assert ("a process was ended by SIGKILL" in said) == (code == 137)


def test_a_signal_reaches_each_of_them_once(started: list[subprocess.Popen[bytes]]) -> None:
    counting = (
        "import signal, sys, time\n"
        "heard = []\n"
        "signal.signal(signal.SIGINT, lambda *_: heard.append(1))\n"
        "end = time.monotonic() + 30\n"
        "while not heard and time.monotonic() < end: time.sleep(0.01)\n"
        "time.sleep(0.3)\n"
        "sys.exit(10 + len(heard))\n"
    )

    def press() -> None:
        while len(started) < 2:
            time.sleep(0.01)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    threading.Thread(target=press).start()
    assert launch([counting, counting], 2, grace_seconds=5) == 11
    assert [process.returncode for process in started] == [11, 11]
    assert signal.getsignal(signal.SIGINT) is before


def test_each_is_told_who_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[list[str], dict[str, str]]] = []

    class Done:
        def __init__(self, words: list[str], *, env: dict[str, str], start_new_session: bool) -> None:
            asked.append((words, env))
            assert start_new_session

        def poll(self) -> int:
            return 0

    monkeypatch.setattr(launching.subprocess, "Popen", Done)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert launch(["train", "c.yaml"], 3, grace_seconds=1) == 0
    assert [words for words, _ in asked] == [[sys.executable, "-m", "groupwise", "train", "c.yaml"]] * 3
    assert [env["RANK"] for _, env in asked] == [env["LOCAL_RANK"] for _, env in asked] == ["0", "1", "2"]
    assert {env["WORLD_SIZE"] for _, env in asked} == {"3"}
    assert len({(env["MASTER_ADDR"], env["MASTER_PORT"]) for _, env in asked}) == 1
    assert all(int(env["OMP_NUM_THREADS"]) >= 1 for _, env in asked)
