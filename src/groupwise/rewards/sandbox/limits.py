"""What a program may use while it is graded."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most that one program, with all its tests and all it starts, may use."""

    seconds: float = 10.0
    """Wall time for loading it and all of its tests."""
    cpu_seconds: float | None = None
    """Processor time of each process; None for a second more than `seconds`."""
    memory_mb: int = 512
    """Memory in MiB: address space of each process, and resident memory of all together."""
    processes: int = 64
    """Processes and threads together."""
    output_kb: int = 1024
    """What a script may write to each of its two streams per case, in KiB."""
    disk_mb: int = 64
    """Files of the working folder in MiB; a tenth of a thousand files per MiB."""

    def told(self) -> dict[str, int]:
        """The limits in the kernel's units, as the inside reads them."""
        return {
            "cpu_seconds": math.ceil(self.seconds + 1 if self.cpu_seconds is None else self.cpu_seconds),
            "memory_bytes": self.memory_mb << 20,
            "processes": self.processes,
            "disk_bytes": self.disk_mb << 20,
        }

    @property
    def files(self) -> int:
        """Files that may be made."""
        return 100 * self.disk_mb
