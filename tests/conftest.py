"""What every test stands on: no network, few threads, and a tiny policy of real parts."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"
# Set before torch is loaded. On tiny tensors threads only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from groupwise.model.load import Policy
    from tests.report.browser import Tab


# Workers of pytest-xdist ignore Ctrl-C, and so would every process that a test starts to press it in.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest.register_assert_rewrite("tests.rollouts.engine_contract")


def _build_policy(seed: int = 0, *, stop_token_ids: tuple[int, ...] | None = None, **shape: Any) -> Policy:
    import torch

    from groupwise.model.load import Policy
    from groupwise.model.tiny import build_tiny

    model, tokenizer = build_tiny(seed, **{"weight_scale": 0.2, **shape})
    return Policy(
        model=model,
        tokenizer=tokenizer,
        name="tiny",
        stop_token_ids=stop_token_ids or (tokenizer.eos_token_id,),
        pad_token_id=tokenizer.pad_token_id,
        context_tokens=shape.get("context_tokens", 512),
        device=torch.device("cpu"),
        lora=False,
    )


@pytest.fixture(autouse=True)
def _path_of_its_own() -> Iterator[None]:
    """What a test's configuration puts on the path for the process is gone after the test."""
    before = list(sys.path)
    yield
    sys.path[:] = before


@pytest.fixture(scope="session")
def build_policy() -> Callable[..., Policy]:
    """Builds a policy of random weights: `build_policy(seed, stop_token_ids=(5, 7), **build_tiny's settings)`.

    Its weights are larger than `build_tiny`'s own, so that some tokens are much likelier than others.
    """
    return _build_policy


@pytest.fixture
def policy() -> Policy:
    """A policy of random weights, of this test alone."""
    return _build_policy()


@pytest.fixture(scope="session")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """A tab of headless Chromium."""
    from tests.report.browser import browser, find_browser

    if find_browser() is None:
        pytest.skip("no Chromium here: install the package chromium, or name one in GROUPWISE_CHROMIUM")
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Makes a file system of so many bytes; skipped where mounting is not allowed."""
    mounted: list[Path] = []

    def mount(size: int) -> Path:
        place = tmp_path / f"disk{len(mounted)}"
        place.mkdir()
        if os.geteuid() != 0 or shutil.which("mount") is None:
            pytest.skip("only root may mount")
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], capture_output=True
        )
        if done.returncode:
            pytest.skip(f"mounting is not allowed here: {done.stderr.decode().strip()}")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", "-l", place], check=False)
