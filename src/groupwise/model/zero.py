"""A model whose weights are divided among processes by DeepSpeed: the third stage of ZeRO.

Rajbhandari et al. 2020 (arXiv:1910.02054). What `model/sharding.py` does by torch's own means is done here by
DeepSpeed's, the extra `deepspeed`: weights are brought together layer by layer through hooks on the modules, gradients
are averaged over the processes and divided, and the optimiser changes the part of the weights that a process holds.
"""

from __future__ import annotations

import importlib
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from groupwise.model.root import Root

P = ParamSpec("P")
T = TypeVar("T")

_CONFIG = {
    # What DeepSpeed calls a batch decides nothing here: an update is made when it is asked for.
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 1,
    "managed_gradient_accumulation": False,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "gradient_clipping": 0.0,
    "steps_per_print": 1 << 30,
}


class ZeroShards:
    """Holds a model's weights divided among all processes, by DeepSpeed. See `sharding.Shards`.

    Attributes:
        engine: DeepSpeed's own.
        tensors: how many of the model's parameters are divided: all of them.
        pending: backward passes since the gradients were last forgotten.
    """

    def __init__(self, model: torch.nn.Module, head: torch.nn.Module, adamw: torch.optim.AdamW) -> None:
        """Divide the weights, in place. All processes do so at the same time, with equal weights.

        Args:
            model: with its head; afterwards each parameter is empty, but where it is needed.
            head: whose weight is read without calling it.
            adamw: over the model's parameters; afterwards over the parts of them that this process holds.

        Raises:
            RuntimeError: a parameter was left out.
        """
        deepspeed = _deepspeed(next(model.parameters()).device)
        self._root = Root(model)
        self.engine, *_ = deepspeed.initialize(
            model=self._root, optimizer=adamw, config=_CONFIG, dist_init_required=False
        )
        deepspeed.zero.register_external_parameter(self._root, head.weight)
        self._gathered = deepspeed.zero.GatheredParameters
        self.parameters = list(model.parameters())
        self.tensors = sum(hasattr(p, "ds_id") and not p.numel() for p in self.parameters)
        if self.tensors != len(self.parameters):
            raise RuntimeError(
                f"{len(self.parameters) - self.tensors} of {len(self.parameters)} parameters are not divided"
            )
        self.pending = 0

    def __call__(self, compute: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`compute` with gradient; every process calls this equally often."""
        result: T = self.engine(compute, *args, **kwargs)
        return result

    def backward(self, loss: Tensor) -> None:
        """Add up the gradient of the sum over all processes of their losses; every process calls this equally often."""
        self.pending += 1
        # DeepSpeed averages over the processes; here each token already has its share of the whole batch as its weight.
        self.engine.backward(loss * dist.get_world_size(), scale_wrt_gas=False)

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Inside, every process holds all weights, and computes without gradient as often as it likes.

        The hooks are off, which would take a layer's weights away again after it was computed.
        """
        offload = self.engine.optimizer.parameter_offload
        with self._gathered(self.parameters):
            for hook in (*offload.forward_hooks, *offload.backward_hooks):
                hook.remove()
            offload.forward_hooks, offload.backward_hooks = [], []
            try:
                yield
            finally:
                offload._register_deepspeed_module(offload.module)


def whole_zero(parameter: Tensor) -> Tensor:
    """A divided parameter put together, as a copy; all processes call this."""
    with importlib.import_module("deepspeed").zero.GatheredParameters([parameter]):
        return parameter.detach().clone()


def put_zero(parameter: Tensor, full: Tensor) -> None:
    """Give a divided parameter new weights, of which this process keeps its part."""
    part = own_part(parameter, full)
    importlib.import_module("deepspeed.utils").safe_set_local_fp32_param(parameter, part)
    divided: Any = parameter
    divided.ds_tensor.data.copy_(part)


def own_part(parameter: Tensor, full: Tensor) -> Tensor:
    """The part of a tensor of a parameter's shape that belongs to this process: flat, filled up with zeros."""
    divided: Any = parameter
    size = divided.partition_numel()
    part = torch.zeros(size, dtype=divided.ds_tensor.dtype, device=divided.ds_tensor.device)
    mine = full.reshape(-1)[dist.get_rank() * size : (dist.get_rank() + 1) * size]
    part[: len(mine)] = mine.to(part)
    return part


def _deepspeed(device: torch.device) -> Any:
    """The package, which only the extra `deepspeed` brings, told what computes, and without its chatter."""
    os.environ.setdefault("DS_ACCELERATOR", device.type)
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    package = importlib.import_module("deepspeed")
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)  # which it has just set itself
    # It calls torch by names that torch has begun to warn of, many times a step.
    warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning)
    package.init_distributed(dist_backend=None, verbose=False)
    return package
