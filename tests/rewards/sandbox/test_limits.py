"""Programs that take all they can get."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from groupwise.rewards.sandbox import Limits, grade
from groupwise.rewards.sandbox.cell import tree
from groupwise.rewards.sandbox.pool import close_pools
from tests.rewards.sandbox.conftest import ways

AFTER = "\ndef sq(n):\n    return n * n\n"
BOMBS = {
    "memory of many": "import os, time\nfor i in range(8):\n    if os.fork() == 0:\n        x = bytearray(100 << 20)\n"
    "        for j in range(0, len(x), 4096): x[j] = 1\n        time.sleep(100)\ntime.sleep(100)",
    "threads": "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(100,)).start()",
    "one large file": "f = open('big', 'wb')\nwhile True: f.write(bytes(1 << 20))",
    "many files": "i = 0\nwhile True:\n    open('b%d' % i, 'wb').write(bytes(1 << 20)); i += 1",
    "empty files": "i = 0\nwhile True:\n    open('b%d' % i, 'wb').close(); i += 1",
    "shared memory": "i = 0\nwhile True:\n    open('/dev/shm/b%d' % i, 'wb').write(bytes(1 << 20)); i += 1",
    "nameless files": "import os\nfd = os.memfd_create('x')\nwhile True: os.write(fd, bytes(1 << 20))",
    "pipes": "import os\na = []\nwhile True:\n    r, w = os.pipe(); os.set_blocking(w, False); a.append((r, w))\n"
    "    try:\n        while True: os.write(w, bytes(65536))\n    except BlockingIOError: pass",
    "deep folders": "import os\nwhile True:\n    os.mkdir('d'); os.chdir('d')",
    "sparse file": "f = open('s', 'wb')\nf.truncate(1 << 40)",
    "processes": "import subprocess\nwhile True: subprocess.Popen(['sleep', '100'])",
    "zombies": "import os\nwhile True:\n    try:\n        if os.fork() == 0: os._exit(0)\n    except OSError: pass",
    "ignores signals": "import signal\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n"
    "    except Exception: pass\nwhile True: pass",
}


@pytest.mark.parametrize("isolation", ways(weaker=False), indirect=True)
@pytest.mark.parametrize("form", ["asserts", pytest.param("script", marks=pytest.mark.long)])
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_contained(name: str, form: str, isolation: Any) -> None:
    limits = Limits(seconds=1.0, memory_mb=256, disk_mb=16)
    tests: Any = "assert sq(3) == 9" if form == "asserts" else [{"stdin": "", "stdout": ""}]
    given = grade(BOMBS[name] + AFTER, tests, isolation=isolation, limits=limits)
    assert given.outcome in ("error", "timeout")
    assert grade(AFTER, "assert sq(3) == 9", isolation=isolation).outcome == "pass"


@pytest.mark.parametrize("isolation", ways(), indirect=True)
def test_what_a_program_leaves_running_is_ended(isolation: Any) -> None:
    daemon = (
        "import os, time\n"
        "try:\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        if os.fork() == 0: time.sleep(1000)\n"
        "        os._exit(0)\n"
        "except OSError: pass\n"
    )
    close_pools()
    before = set(tree(os.getpid()))
    assert grade(daemon + AFTER, "assert sq(3) == 9", isolation=isolation).outcome == "pass"
    waiting = set(tree(os.getpid())) - before
    # Two keepers wait for more, each inside bubblewrap's two processes where that is what isolates.
    assert len(waiting) == (6 if isolation == "bubblewrap" else 2)
    close_pools()
    assert set(tree(os.getpid())) == before


@pytest.mark.parametrize("isolation", ways(), indirect=True)
def test_nothing_of_one_program_is_there_for_the_next(isolation: Any) -> None:
    leaves = "import os\nopen('note', 'w').write('x')\nos.makedirs('a/b')\nos.symlink('/', 'root')\n"
    looks = "import os\ndef seen(): return sorted(set(os.listdir('.')) - {'solution.py'})\n"
    for _ in range(3):
        assert grade(leaves + AFTER, "assert sq(1) == 1", isolation=isolation).outcome == "pass"
        assert grade(looks, "assert seen() == []", isolation=isolation).outcome == "pass"


@pytest.mark.parametrize("isolation", ways(), indirect=True)
def test_folders_that_cannot_be_emptied_end_the_sandbox(isolation: Any) -> None:
    stuck = "import os\nos.makedirs('a/b')\ntry:\n    os.chmod('a', 0)\nexcept OSError: pass\n"
    for _ in range(2):
        assert grade(stuck + AFTER, "assert sq(2) == 4", isolation=isolation).outcome == "pass"


@pytest.mark.parametrize("isolation", ways(), indirect=True)
def test_a_program_that_sleeps_is_given_up_and_says_so(isolation: Any) -> None:
    begun = time.monotonic()
    given = grade("import time\ntime.sleep(1000)", "f()", isolation=isolation, limits=Limits(seconds=0.5))
    assert given.outcome == "timeout"
    assert given.detail == "it took more than 0.5 s"
    assert time.monotonic() - begun < 200  # not the thousand it asked for


def test_the_weaker_modes_folders_are_removed() -> None:
    before = set(Path("/tmp").glob("groupwise-*"))
    try:
        grade(AFTER, "assert sq(3) == 9", isolation="restricted")
    finally:
        close_pools()
    left = {path for path in Path("/tmp").glob("groupwise-*") if "inside" not in path.name} - before
    assert not left
