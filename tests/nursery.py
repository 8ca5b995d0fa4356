"""Where tests fork processes from: one that has imported everything, so that each takes a second and not ten."""

from __future__ import annotations

import multiprocessing
from functools import cache
from typing import Any

_PRELOADED = [
    "groupwise.training.start",
    "groupwise.model.lora",
    "peft",
    "transformers.models.llama.modeling_llama",
    "torch.optim",
    "torch.distributed.fsdp",
]


@cache
def nursery() -> Any:
    """The context whose `Process` is forked; the first of each test process waits for the imports."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context
