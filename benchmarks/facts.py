"""What a measurement was made on. Standard library only, so that every environment can use it."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
BFLOAT16 = {"avx512_bf16", "amx_bf16"}
"""Instructions that multiply bfloat16."""


def machine() -> dict[str, Any]:
    """Processor, what it can multiply fast, cores that this process may use, memory."""
    info = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    fields = dict(reversed([line.split(":", 1) for line in info if ":" in line]))
    values = {key.strip(): value.strip() for key, value in fields.items()}
    flags = set(values.get("flags", "").split())
    return {
        "processor": values.get("model name", platform.processor() or platform.machine()),
        "vectors": [flag for flag in _FLAGS if flag in flags],
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
    }


def in_words(machine: dict[str, Any]) -> str:
    """A machine for a page: `Some CPU (avx2), 2 cores, 24 GB`."""
    vectors = ", ".join(machine["vectors"]) or "no AVX"
    return f"{machine['processor']} ({vectors}), {machine['cores']} cores, {machine['memory_gb']:g} GB"


def has_bfloat16() -> bool:
    """True when the processor multiplies bfloat16 in hardware."""
    return bool(BFLOAT16 & set(machine()["vectors"]))


def versions(*packages: str) -> dict[str, str]:
    """Python's version and those of the installed packages among the named ones."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def moment() -> dict[str, Any]:
    """When, and how busy the machine was: load averages over 1 and 5 minutes, free memory."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "load": [round(x, 2) for x in os.getloadavg()[:2]],
        "available_gb": available_gb(),
    }


def available_gb() -> float | None:
    """Memory that can still be had, in GiB; None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    kb = next((int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None)
    return None if kb is None else round(kb / 2**20, 1)


def peak_memory_mb() -> float:
    """Largest resident memory of this process since it was started, in MiB.

    From /proc where there is one: what `getrusage` tells of a process holds its parent's peak as well.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if platform.system() == "Darwin" else 2**10)


def rest() -> None:
    """Hand memory that was freed back to the system, as far as the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def source() -> str:
    """The version of src/ that is measured: git's name of the tree, with a mark when files differ from it."""
    try:
        tree = _git("rev-parse", "--short", "HEAD:src")
        return tree + ("+changed" if _git("status", "--porcelain", "--", "src") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def environment(threads: int | None = None) -> dict[str, str]:
    """What every side is started with: the same threads, which wait as those of `groupwise` do."""
    env = dict(os.environ)
    env |= {
        "OMP_WAIT_POLICY": "PASSIVE",
        "GOMP_SPINCOUNT": "30000",  # as on a machine that nothing else uses
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": str(threads or machine()["cores"]),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }
    return env


def gemm_rate(dtype: str = "float32", *, size: int = 2048, seconds: float = 1.0) -> dict[str, float]:
    """GFLOP/s of square matrix products through torch: the median and the best of those in about so many seconds."""
    import torch

    kind = getattr(torch, dtype)
    a, b = (torch.randn(size, size).to(kind) for _ in range(2))
    torch.mm(a, b)
    rates: list[float] = []
    began = time.perf_counter()
    while len(rates) < 3 or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        torch.mm(a, b)
        rates.append(2 * size**3 / (time.perf_counter() - start) / 1e9)
    return {"median": median(rates), "best": max(rates), "count": len(rates)}


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
