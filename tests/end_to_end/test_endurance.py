"""Five hundred steps take no more memory and no more open files than fifty."""

import gc
import os
from pathlib import Path
from typing import Any

import pytest

import groupwise
from tests.end_to_end.interrupted import HELD_OUT, ROWS, tree

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads Linux's /proc")

STEPS = 500
SETTLED = 150
"""Steps after which caches, allocators and buffers have what they need."""
LEAK_BYTES_PER_STEP = 10_000
"""A list of metrics grows by about 6 kB a step, which is what a run returns. One kept batch would be 30 kB and more."""


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_memory_and_open_files_are_flat(tmp_path: Path) -> None:
    memory: dict[int, int] = {}
    files: dict[int, int] = {}

    def reward(completions: list[str], trainer_state: Any, **columns: Any) -> list[float]:
        step = trainer_state.global_step
        if step in (SETTLED, STEPS - 1):
            memory[step], files[step] = resident_bytes(), open_files()
        return [float(len(text)) for text in completions]

    config = tree(
        tmp_path / "run",
        training={"steps": STEPS, "updates_per_batch": 1, "mini_batches": 1, "learning_rate": 1e-4},
        evaluate={"every_steps": 50},
        checkpoint={"every_steps": 20, "every_minutes": None},
        run={"sinks": ["tensorboard"]},
    )
    groupwise.train(config, rewards=[reward], train=ROWS, held_out=HELD_OUT)
    assert files[STEPS - 1] == files[SETTLED]
    grown = memory[STEPS - 1] - memory[SETTLED]
    assert grown < LEAK_BYTES_PER_STEP * (STEPS - 1 - SETTLED), (
        f"{grown / 2**20:.1f} MB in {STEPS - 1 - SETTLED} steps"
    )
    print(f"{grown / (STEPS - 1 - SETTLED):.0f} bytes a step")
