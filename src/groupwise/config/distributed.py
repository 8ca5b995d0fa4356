"""Several processes: how they share the work of one run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from groupwise.config.base import PositiveFloat, Section


class DistributedConfig(Section):
    """How the processes of a run work together. With one process nothing of it has an effect; docs/scaling.md."""

    strategy: Literal["ddp", "fsdp2", "zero3"] = Field(
        default="ddp",
        description="`ddp`: every process holds the whole model; `fsdp2`: weights, gradients and optimiser are divided "
        "among them; `zero3`: the same by DeepSpeed, the extra `deepspeed`.",
    )
    timeout_seconds: PositiveFloat = Field(
        default=1800.0,
        description="How long a process waits for the others before it gives the run up; longer than scoring a batch "
        "or writing a checkpoint takes.",
    )
