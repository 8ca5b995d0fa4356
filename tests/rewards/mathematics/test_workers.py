import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from groupwise.errors import RewardError
from groupwise.rewards.mathematics import workers
from groupwise.rewards.mathematics.workers import Request, Worker, Workers

EQUAL = Request(r"2\sqrt{2}", r"\sqrt{8}")
DIFFERENT = Request(r"2\sqrt{2}", r"\sqrt{9}")
# Some seconds of gamma functions at 16 points: slow by honest work, not by size.
TERMS = "+".join(f"({i}x)!" for i in range(2, 60))
SLOW = Request(TERMS + "+x", "x+" + TERMS + "+0x")


@pytest.fixture(scope="module")
def pool():
    pool = Workers()
    yield pool
    pool.close()


def test_verdicts(pool: Workers) -> None:
    asked = [EQUAL, DIFFERENT, Request("see", None), Request("5", None), Request("x!", "x!+1")]
    assert pool.judge(asked, seconds=5) == ["same", "different", "same", "same", "different"]
    assert pool.judge([], seconds=5) == []


def test_what_takes_too_long_is_ended_and_the_next_is_answered_by_a_fresh_child(pool: Workers) -> None:
    assert pool.judge([EQUAL], seconds=5) == ["same"]
    idle = list(pool._idle)
    began = time.monotonic()
    assert pool.judge([SLOW], seconds=0.05) == ["time"]
    assert pool.judge([EQUAL, SLOW, DIFFERENT], seconds=0.05)[0] == "same"
    assert time.monotonic() - began < 30
    assert set(idle) <= set(pool._idle)  # the parents live on; only the children were replaced


def test_patience_runs_out_for_a_batch_of_slow_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed: list[float] = []

    class Pretended(Workers):
        def _one(self, request: Request, seconds: float) -> str:
            allowed.append(seconds)
            return "time"

    monkeypatch.setattr(workers, "MOST", 1)
    assert Pretended().judge([EQUAL] * 25, seconds=2.0) == ["time"] * 25
    # 20 at 2 s and 5 at 0.2 s: a thousand take at most 40 + 980 * 0.2 = 236 s, not 2000.
    assert allowed == [2.0] * workers.PATIENCE + [0.2] * 5


def test_a_process_that_is_lost_is_replaced(pool: Workers) -> None:
    assert pool.judge([EQUAL], seconds=5) == ["same"]
    lost = pool._idle[-1]
    os.killpg(lost._process.pid, signal.SIGKILL)
    assert pool.judge([EQUAL, DIFFERENT], seconds=5) == ["same", "different"]
    assert lost not in pool._idle


def test_many_threads_at_once(pool: Workers) -> None:
    results: list[list[str]] = []
    threads = [
        threading.Thread(target=lambda: results.append(pool.judge([EQUAL, DIFFERENT] * 5, seconds=5)))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert results == [["same", "different"] * 5] * 6
    assert len(pool._idle) <= workers.MOST


def test_closing_leaves_no_process(pool: Workers) -> None:
    pool.judge([EQUAL], seconds=5)
    pids = [worker._process.pid for worker in pool._idle]
    pool.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.killpg(pid, 0)
    assert pool.judge([EQUAL], seconds=5) == ["same"]


def test_a_process_that_cannot_be_started_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(RewardError, match="could not start a process to compare expressions in"):
        Worker()


def test_a_process_that_says_nothing_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/true")
    with pytest.raises(RewardError, match="did not answer"):
        Worker()


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited by what /proc says")
def test_memory_is_limited() -> None:
    code = (
        "from groupwise.rewards.mathematics import worker\n"
        "worker._limit_memory()\n"
        "bytearray(worker.MEMORY_BYTES // 2)\n"
        "try:\n    bytearray(2 * worker.MEMORY_BYTES)\nexcept MemoryError:\n    print('refused')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True
    )
    assert done.stdout == "refused\n"
