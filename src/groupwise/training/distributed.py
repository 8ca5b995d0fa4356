"""The processes of a run: how they meet, tell each other what they know, and end together.

A launcher (`torchrun`, `accelerate launch`, `groupwise train --processes`) starts the same command several times and
sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, by which torch.distributed finds the others. Each process is called
a rank. What is sampled and scored by several ranks is gathered, so that every rank knows the whole batch and computes
the same advantages, divisors and metrics from it; gradients are added up. The first rank alone asks the rewards and
writes the run folder.
"""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from groupwise import errors
from groupwise.config.distributed import DistributedConfig
from groupwise.errors import ConfigError, GroupwiseError, RankError, raised

T = TypeVar("T")

BUCKET_ELEMENTS = 1 << 25
"""Gradients are added up in pieces of about this many numbers, 128 MB in float32."""

_LOST = ("gloo", "nccl", "connection ", "timed out", "timeout", "socket", "broken pipe", "tcpstore")
_LOOK_SECONDS = 1.0


class Ranks:
    """All processes of a run, seen from one of them."""

    def __init__(
        self,
        number: int = 0,
        count: int = 1,
        strategy: Literal["ddp", "fsdp2", "zero3"] = "ddp",
        *,
        seconds: float = 0.0,
    ) -> None:
        """Without arguments: one process alone, for which everything here costs nothing.

        Args:
            number: of this process, from 0.
            count: of all.
            strategy: how the model is held.
            seconds: how long one waits for the others.
        """
        self.number, self.count = number, count
        self.strategy = strategy
        self.sharded = strategy != "ddp" and count > 1
        self._seconds = seconds

    @property
    def alone(self) -> bool:
        """True when there is one process."""
        return self.count == 1

    @property
    def first(self) -> bool:
        """True in the process that asks the rewards and writes the run folder."""
        return self.number == 0

    def mesh(self, device: torch.device) -> DeviceMesh:
        """All ranks in one dimension, for `fully_shard`."""
        return init_device_mesh(device.type, (self.count,))

    @contextmanager
    def contact(self) -> Iterator[None]:
        """Inside, what torch raises when other ranks are gone becomes a RankError."""
        try:
            yield
        except RuntimeError as error:
            if self.alone or not any(word in str(error).lower() for word in _LOST):
                raise
            raise RankError(
                f"rank {self.number} of {self.count} ends, since it lost the others ({_said(error)}); the "
                "one that failed first says why; if none does, its machine or the network is gone, or it was busy for "
                f"longer than distributed.timeout_seconds={self._seconds:g}. Mend that and go on with --resume"
            ) from error

    def gather(self, value: T) -> list[T]:
        """What each rank gives, in the order of their numbers, at every rank."""
        if self.alone:
            return [value]
        found: list[Any] = [None] * self.count
        with self.contact():
            dist.all_gather_object(found, value)
        return found

    def from_first(self, make: Callable[[], T]) -> T:
        """What the first rank makes, at every rank; the others wait. An error there is raised at every rank."""
        if self.alone:
            return make()
        sent: list[Any] = [None, None, None]
        error: Exception | None = None
        if self.first:
            try:
                sent[0] = make()
            except Exception as caught:
                error = caught
                sentence = str(caught) if isinstance(caught, GroupwiseError) else raised(caught)
                sent[1:] = type(caught).__name__, sentence
        with self.contact():
            dist.broadcast_object_list(sent, src=0)
        if error is not None:
            raise error
        if sent[1] is not None:
            raise _as_told(*sent[1:])
        return sent[0]  # type: ignore[no-any-return]

    def only_first(self, make: Callable[[], T]) -> T | None:
        """As `from_first`, for what cannot be sent: the others get None."""
        made: list[T] = []
        self.from_first(lambda: made.append(make()))
        return made[0] if made else None

    def same(self, what: str, value: Any) -> None:
        """Make sure that all ranks hold the same.

        Raises:
            ConfigError: they do not; says who differs.
        """
        values = self.gather(value)
        other = next((number for number, each in enumerate(values) if each != values[0]), None)
        if other is not None:
            error = ConfigError(
                f"rank {other} of {self.count} has other {what} than rank 0; start all of them with the same files, "
                "settings and versions"
            )
            error.told = not self.first
            raise error

    def add_up(self, gradients: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all ranks, which hold tensors of the same shapes."""
        if self.alone:
            return
        bucket: list[Tensor] = []
        for i, gradient in enumerate(gradients):
            bucket.append(gradient)
            last = i + 1 == len(gradients)
            if last or sum(g.numel() for g in bucket) + gradients[i + 1].numel() > BUCKET_ELEMENTS:
                self._add_up(bucket)
                bucket = []

    def _add_up(self, bucket: Sequence[Tensor]) -> None:
        flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
        with self.contact():
            dist.all_reduce(flat)
        parts = torch.split(flat, [gradient.numel() for gradient in bucket])
        for gradient, part in zip(bucket, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def introduced(self, device: torch.device) -> list[str]:
        """The processes in a sentence, for whoever watches; none for one alone."""
        if self.alone:
            return []
        how = "ddp: the whole model in each, gradients added up after the last micro-batch"
        if self.sharded:
            how = f"{self.strategy}: weights, gradients and optimiser divided among them"
        by = "nccl" if device.type == "cuda" else "gloo"
        return [f"{self.count} processes ({by} on {device.type}), {how}"]


ALONE = Ranks()
"""One process."""


def launched() -> int:
    """How many processes the launcher has started, by what it sets; 1 without one.

    Raises:
        ConfigError: it has set something that is not a number, or not all of it.
    """
    try:
        count = int(os.environ.get("WORLD_SIZE") or 1)
    except ValueError:
        raise ConfigError(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']!r}, which is not a number; unset it"
        ) from None
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if count > 1 and missing:
        raise ConfigError(
            f"WORLD_SIZE is {count}, but {missing[0]} is not set; start the processes with torchrun, accelerate launch "
            "or groupwise train --processes, or unset WORLD_SIZE"
        )
    return count


def refuse_several(what: str) -> None:
    """Refuse what trains in one process where a launcher has started several.

    Raises:
        ConfigError: it has; told by the first one.
    """
    if launched() > 1:
        error = ConfigError(
            f"{what} trains in one process, and {launched()} were started; start it without a launcher"
        )
        error.told = os.environ["RANK"] != "0"
        raise error


def join(config: DistributedConfig) -> Ranks:
    """Meet the other processes, once; later calls give the same. One process that nobody launched is alone.

    Raises:
        ConfigError: the launcher's variables are wrong, or DeepSpeed is asked for and not installed.
        RankError: the others do not come within `distributed.timeout_seconds`.
    """
    count = launched()
    if config.strategy == "zero3" and importlib.util.find_spec("deepspeed") is None:
        raise ConfigError(
            "distributed.strategy is zero3, but deepspeed is not installed; pip install 'groupwise[deepspeed]', or set "
            "it to fsdp2, which divides the same by torch's own means"
        )
    if count == 1:
        return ALONE
    if not dist.is_initialized():
        _meet(config, count)
    return Ranks(dist.get_rank(), count, config.strategy, seconds=config.timeout_seconds)


def _meet(config: DistributedConfig, count: int) -> None:
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        backend = "cpu:gloo,cuda:nccl"
    number = os.environ["RANK"]
    try:
        dist.init_process_group(backend, timeout=timedelta(seconds=config.timeout_seconds))
    except (RuntimeError, ValueError) as error:  # torch's own are RuntimeErrors
        raise RankError(
            f"rank {number} of {count} does not reach the others at {os.environ['MASTER_ADDR']}:"
            f"{os.environ['MASTER_PORT']} ({_said(error)}); are all of them started, and may these "
            "machines talk to each other?"
        ) from error
    if dist.get_rank() > 0:  # the first says it for all
        logging.getLogger("groupwise").setLevel(logging.ERROR)
    threading.Thread(target=_end_with, args=(os.getppid(),), name="groupwise-launcher", daemon=True).start()


def _said(error: Exception) -> str:
    """What torch says without the places in its source, and without advice."""
    return re.sub(r"\[/[^]]*\] *", "", str(error)).split(". ")[0].strip()[:120]


def _end_with(parent: int) -> None:
    """End this process when the one that launched it is gone, however that ended."""
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)


def _as_told(kind: str, sentence: str) -> GroupwiseError:
    """An error of the first rank, at another; marked, so that it is not told twice."""
    named = getattr(errors, kind, None)
    error: GroupwiseError
    if isinstance(named, type) and issubclass(named, GroupwiseError):
        error = named(sentence)
    else:
        error = RankError(f"rank 0 failed: {sentence}")
    error.told = True
    return error


def leave(code: int) -> None:
    """End this process with an exit code, where it is one of several; else do nothing.

    torch 2.13 aborts at random when Python takes a process group apart at its end, so it is not left to it.
    """
    if not dist.is_available() or not dist.is_initialized():
        return
    if code == 0:
        try:
            dist.barrier()
            dist.destroy_process_group()
        except RuntimeError:
            code = 1  # another one failed at the very end, and says so
    with suppress(Exception):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
