"""What the kernel does not count for us: memory of all processes together, their number, and the files they make."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from groupwise.rewards.sandbox.cell import Cell
from groupwise.rewards.sandbox.limits import Limits

INTERVAL = 0.025
"""Seconds between two looks."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Watch:
    """A thread that looks at running cells and ends those that use more than they may."""

    def __init__(self) -> None:
        self._watched: dict[Cell, Limits] = {}
        self._change = threading.Condition()
        self._open = True
        self._thread = threading.Thread(target=self._run, name="groupwise-sandbox-watch", daemon=True)
        self._thread.start()

    def add(self, cell: Cell, limits: Limits) -> None:
        """Watch a cell from now on."""
        with self._change:
            self._watched[cell] = limits
            self._change.notify()

    def remove(self, cell: Cell) -> None:
        """Watch it no longer."""
        with self._change:
            self._watched.pop(cell, None)

    def close(self) -> None:
        """End the thread."""
        with self._change:
            self._open = False
            self._change.notify()

    def _run(self) -> None:
        while True:
            with self._change:
                while self._open and not self._watched:
                    self._change.wait()
                if not self._open:
                    return
                watched = list(self._watched.items())
            for cell, limits in watched:
                over = excess(cell, limits)
                if over is not None:
                    cell.kill(over)
                    self.remove(cell)
            time.sleep(INTERVAL)


def excess(cell: Cell, limits: Limits) -> str | None:
    """What a cell uses too much of, as a clause; None while it keeps within its limits."""
    pids = cell.processes()
    if len(pids) > limits.processes + 3:  # bubblewrap's two and the one that waits for scripts
        return f"it started more than {limits.processes} processes"
    most = limits.memory_mb << 20
    if sum(map(_resident, pids)) > most and sum(map(_proportional, pids)) > most:
        return f"its processes together took more than {limits.memory_mb} MiB"
    if cell.own_files is not None:
        count, size = _content(cell.own_files, limits.files)
        if size > limits.disk_mb << 20:
            return f"it wrote more than {limits.disk_mb} MiB of files"
    else:
        count = _inodes(cell.folder(pids[-1]))
    return f"it made more than {limits.files} files" if count > limits.files else None


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


def _proportional(pid: int) -> int:
    """Resident memory in which a page that is shared counts for each as its part; all of it where that is not told."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) << 10
    except (OSError, IndexError, ValueError):
        pass
    return _resident(pid)


def _inodes(folder: str) -> int:
    try:
        counted = os.statvfs(folder)
    except OSError:
        return 0
    return counted.f_files - counted.f_ffree


def _content(folder: Path, most: int) -> tuple[int, int]:
    """Number and bytes of the files in a folder; stops counting beyond `most`."""
    count = size = 0
    waiting = [str(folder)]
    while waiting and count <= most:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    count += 1
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    if count > most:
                        break
        except OSError:
            continue
    return count, size
