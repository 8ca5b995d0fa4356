"""A model whose weights are divided among processes, by torch's own `fully_shard` (FSDP2).

Zhao et al. 2023 (arXiv:2304.11277) describe the method, which is the third stage of ZeRO (Rajbhandari et al. 2020,
arXiv:1910.02054). While a loss is differentiated, each layer's weights are brought together just before it computes,
and its gradients are added up over the processes and divided again. Sampling and scoring compute thousands of short
passes, whose number differs from process to process, so for these the whole model is brought together once.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeGuard, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from groupwise.model.root import Root

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

P = ParamSpec("P")
T = TypeVar("T")


class Shards:
    """Holds a model's weights divided among the processes of a mesh.

    Attributes:
        layers: how many layers are brought together one at a time.
        tensors: how many of the model's parameters are divided: all of them.
    """

    def __init__(self, model: torch.nn.Module, backbone: torch.nn.Module, mesh: DeviceMesh) -> None:
        """Divide the weights, in place. All processes of the mesh do so at the same time, with equal weights.

        Gradients are added up, not averaged, since the weight of each token in the loss already is its share of the
        whole batch.

        Args:
            model: with its head; afterwards each parameter is a `DTensor` of which this process holds a part.
            backbone: the part of it that holds the layers.
            mesh: the processes, in one dimension.

        Raises:
            RuntimeError: a parameter was left out.
        """
        from torch.distributed.fsdp import FSDPModule, fully_shard  # a second to import

        layers = _layers(backbone)
        for layer in layers:
            fully_shard(layer, mesh=mesh)
        self._root = Root(model)
        fully_shard(self._root, mesh=mesh)
        self._modules: list[Any] = [m for m in self._root.modules() if isinstance(m, FSDPModule)]
        for module in self._modules:
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
        ordered: list[Any] = [self._root, *layers]
        for before, module in zip([self._root, *ordered], ordered, strict=False):
            # Stated, since torch otherwise goes by the passes it has seen, sampling's among them, and these differ
            # between processes.
            module.set_modules_to_backward_prefetch([before if module is not self._root else ordered[-1]])
        self.layers = len(layers)
        parameters = list(model.parameters())
        self.tensors = sum(is_dtensor(p) for p in parameters)
        if self.tensors != len(parameters):
            raise RuntimeError(
                f"{len(parameters) - self.tensors} of {len(parameters)} parameters are not divided"
            )
        self._root(lambda: None)  # what runs first is the root to torch
        self._divide()

    def __call__(self, compute: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`compute` with gradient; every process of the mesh calls this equally often."""
        result: T = self._root(compute, *args, **kwargs)
        return result

    def backward(self, loss: Tensor) -> None:
        """Add up the gradient of the sum over all processes of their losses; every process calls this equally often."""
        torch.autograd.backward(loss)

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Inside, every process holds all weights, and computes without gradient as often as it likes."""
        for module in self._modules:
            module.set_reshard_after_forward(False, recurse=False)
            module.unshard()
        try:
            yield
        finally:
            self._divide()

    def _divide(self) -> None:
        for module in self._modules:
            module.reshard()
            module.set_reshard_after_forward(module is not self._root, recurse=False)


def _layers(backbone: torch.nn.Module) -> list[torch.nn.Module]:
    """The longest list of modules: what repeats. Where nothing does, all weights come together at once."""
    lists = [list(module) for module in backbone.modules() if isinstance(module, torch.nn.ModuleList)]
    return max(lists, key=len, default=[])


def is_zero(tensor: Tensor) -> bool:
    """True for a parameter that DeepSpeed has divided, see `model/zero.py`."""
    return hasattr(tensor, "ds_id")


def is_dtensor(tensor: Tensor) -> TypeGuard[DTensor]:
    """True for a tensor of torch's that is divided. Its module takes a second to import, and where nobody has imported
    it there is no such tensor."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def is_divided(tensor: Tensor) -> bool:
    """True for a tensor of which this process holds a part."""
    return is_dtensor(tensor) or is_zero(tensor)


def shape_of(tensor: Tensor) -> torch.Size:
    """The shape of a tensor, or of one that is divided when it is whole."""
    return torch.Size(getattr(tensor, "ds_shape", tensor.shape))


def whole(tensor: Tensor) -> Tensor:
    """A tensor as it is, or one that is divided put together again; every process that has a part of it calls this."""
    if is_zero(tensor):
        from groupwise.model.zero import whole_zero

        return whole_zero(tensor)
    return tensor.full_tensor() if is_dtensor(tensor) else tensor


def whole_on_first(tensor: Tensor) -> Tensor:
    """As `whole`, but a divided tensor goes to the memory of the first process alone; the others get an empty one."""
    if not is_divided(tensor):
        return tensor
    full = whole(tensor).detach()
    return full.cpu() if dist.get_rank() == 0 else full.new_empty(0, device="cpu")


def divided(model: torch.nn.Module) -> bool:
    """True when a model's weights are divided among processes."""
    return any(is_divided(p) for p in model.parameters())


def whole_state(model: torch.nn.Module) -> dict[str, Tensor]:
    """A model's `state_dict` as it is, or one that is divided put together at the first process, tied weights once.

    Every process of the mesh calls this.
    """
    if not divided(model):
        return dict(model.state_dict())
    return {name: whole_on_first(tensor) for name, tensor in live_state(model).items()}


def live_state(model: torch.nn.Module) -> dict[str, Tensor]:
    """The tensors of a model's `state_dict` themselves, tied ones once."""
    once = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    state = model.state_dict(keep_vars=True)
    return {name: tensor for name, tensor in state.items() if name in once}


def whole_copy(module: torch.nn.Module) -> Any:
    """A copy of a module, of which every process holds all weights; all that have a part of them call this."""
    # Divided weights are put in place of their copies, since torch cannot copy the gradients that hang on them.
    together = {
        id(p): torch.nn.Parameter(whole(p.detach()), requires_grad=False)
        for p in module.parameters()
        if is_dtensor(p)
    }
    return copy.deepcopy(module, together)


@torch.no_grad()
def put(tensor: Tensor, full: Tensor) -> None:
    """Give a tensor new values; one that is divided keeps this process's part of them."""
    if is_zero(tensor):
        from groupwise.model.zero import put_zero

        put_zero(tensor, full)
    else:
        tensor.copy_(divided_as(tensor, full))


def divided_as(like: Tensor, full: Tensor) -> Tensor:
    """A whole tensor divided in the way of another of its shape; as it is when that is not divided.

    What the first process holds is what counts.
    """
    if not is_dtensor(like):
        return full
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(full.to(like.device), like.device_mesh, like.placements)
