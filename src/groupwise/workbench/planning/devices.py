"""What a plan is made for: a published card, or what this machine has."""

from __future__ import annotations

import functools
import json
import os
import time
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from groupwise.errors import ConfigError
from groupwise.registry import nearest

GIB = 2**30
NETWORK_GB_PER_SECOND = 50.0
"""Between nodes, each device: 400 Gbit/s, one card of the usual network for each GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device and what it can do, by its maker's data sheet or as measured."""

    name: str
    """For people."""
    kind: Literal["cuda", "cpu"]
    """What torch calls it."""
    memory: float
    """Bytes, as the driver or the system tells."""
    bfloat16_flops: float | None
    """Products per second times 2, dense; None where bfloat16 is emulated."""
    float32_flops: float
    """The same in float32."""
    bandwidth: float
    """Bytes read from its memory per second."""
    link: float
    """Bytes per second to another device of its node, one way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How many devices train together."""

    gpus: int
    """Devices on a node, each with a process."""
    nodes: int
    """Nodes."""

    @property
    def processes(self) -> int:
        """All of them."""
        return self.gpus * self.nodes


@functools.cache
def published() -> dict[str, Any]:
    """The table `published.json`: `cards` by name, from NVIDIA's data sheets, and `models`, from their config.json."""
    text = files(__package__).joinpath("published.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


def card(name: str) -> Device:
    """A card of the table.

    Raises:
        ConfigError: none is called so.
    """
    cards = published()["cards"]
    found = cards.get(name.lower().replace(" ", "").replace("_", "-"))
    if found is None:
        near = nearest(name.lower(), list(cards))
        hint = f"did you mean {near}? " if near else ""
        raise ConfigError(
            f"--gpu: no card is called {name!r}; {hint}there are {', '.join(cards)}, and cpu for this machine's "
            "processor"
        )
    half = found["bfloat16_tflops"]
    return Device(
        name=found["label"],
        kind="cuda",
        memory=found["memory_mib"] * 2**20,
        bfloat16_flops=None if half is None else half * 1e12,
        float32_flops=found["float32_tflops"] * 1e12,
        bandwidth=found["memory_gb_per_second"] * 1e9,
        link=found["link_gb_per_second"] * 1e9,
    )


def processor() -> Device:
    """This machine's processor, its rates measured in about half a second."""
    import torch

    from groupwise.model.precision import has_bfloat16

    half = _product_rate(torch.bfloat16) if has_bfloat16(torch.device("cpu")) else None
    large = torch.empty(1 << 24)  # 64 MB, more than caches hold
    large.fill_(1.0)
    return Device(
        name=f"this machine's processor, {torch.get_num_threads()} threads",
        kind="cpu",
        memory=float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        bfloat16_flops=half,
        float32_flops=_product_rate(torch.float32),
        bandwidth=4.0 * len(large) / min(_seconds(large.sum) for _ in range(3)),
        link=1e9,
    )


def _product_rate(dtype: Any) -> float:
    """The best of three products of square matrices, in operations per second."""
    import torch

    a = torch.randn(1024, 1024).to(dtype)
    a @ a
    return 2 * 1024**3 / min(_seconds(lambda: a @ a) for _ in range(3))


def _seconds(call: Any) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def present() -> Device:
    """What training on this machine would use: its GPU where torch sees one, by the table or by what it tells."""
    import torch

    if not torch.cuda.is_available():
        return processor()
    told = torch.cuda.get_device_properties(0)
    label = told.name.lower().replace("nvidia", "").replace(" ", "")
    for name, row in published()["cards"].items():
        if name.replace("-", "") in label.replace("-", "") and abs(
            row["memory_mib"] * 2**20 / told.total_memory - 1
        ) < (0.1):
            return card(name)
    raise ConfigError(
        f"the GPU here, {told.name}, is not in the table; name the card that is most like it by --gpu: "
        f"{', '.join(published()['cards'])}"
    )
