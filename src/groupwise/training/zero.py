"""The optimiser of weights that DeepSpeed has divided: each process changes its part of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from groupwise.errors import CheckpointError, TrainingError
from groupwise.model.zero import ZeroShards, own_part
from groupwise.training.weights import Optimizer

_MOMENTS = ("exp_avg", "exp_avg_sq")


class ZeroOptimizer(Optimizer):
    """See `weights.Optimizer`; every process calls each method at the same time."""

    def __init__(self, before: Optimizer, shards: ZeroShards) -> None:
        """Take over.

        Args:
            before: as it was made over the whole weights, whose AdamW now changes parts of them.
            shards: the weights.
        """
        self.names, self.parameters, self.adamw = before.names, before.parameters, before.adamw
        self._shards, self._ordered = shards, before.ordered
        self._utils: Any = importlib.import_module("deepspeed.utils")

    def zero_grad(self) -> None:
        """Forget the gradients."""
        self._shards.engine.optimizer.zero_grad(set_to_none=True)
        self._shards.pending = 0

    @property
    def has_gradient(self) -> list[bool]:
        """For each weight whether there is a gradient: for all or none, since each pass computes with all weights."""
        return [self._shards.pending > 0] * len(self.parameters)

    def gradient_norm(self) -> float:
        """Euclidean norm of the whole gradient; 0 when there is none."""
        return self._norm(self._gradients()) if self._shards.pending else 0.0

    def add_up(self, over: Callable[[Sequence[torch.Tensor]], None], wanted: Sequence[bool]) -> None:
        """Nothing: DeepSpeed has added them up."""

    def scale_gradient(self, factor: float) -> None:
        """Multiply the whole gradient."""
        for gradient in self._gradients():
            gradient.mul_(factor)

    def step(self) -> None:
        """Change the weights."""
        self._shards.engine.step()

    def not_finite_gradients(self) -> list[str]:
        """Names of the weights whose gradient holds NaN or infinity."""
        if not self._shards.pending:
            return []
        bad = torch.tensor([float(not gradient.isfinite().all()) for gradient in self._gradients()])
        dist.all_reduce(bad)
        return [name for name, some in zip(self.names, bad.tolist(), strict=True) if some]

    @torch.no_grad()
    def refuse_not_finite(self) -> None:
        """See `weights.Optimizer.refuse_not_finite`."""
        own = [self._utils.safe_get_local_fp32_param(p) for p in self.parameters]
        bad = torch.tensor([float(not part.isfinite().all()) for part in own])
        dist.all_reduce(bad)
        name = next((name for name, some in zip(self.names, bad.tolist(), strict=True) if some), None)
        if name is not None:
            raise TrainingError(
                f"the update left NaN or infinity in the weights {name}, though its gradient was finite; resume from "
                "the last checkpoint with a lower training.learning_rate"
            )

    def state(self) -> dict[str, Any]:
        """As that of `weights.Optimizer`, put together at the first process, so that either takes up the other's."""
        moments: dict[int, dict[str, torch.Tensor]] = {}
        if self.adamw.state:
            step = next(iter(self.adamw.state.values()))["step"]
            for number, p in enumerate(self._ordered):
                full = {key: self._utils.safe_get_full_optimizer_state(p, key) for key in _MOMENTS}
                first = dist.get_rank() == 0
                moments[number] = {"step": step.clone()} | {
                    key: value.cpu() if first else value.new_empty(0) for key, value in full.items()
                }
        return {"moments": moments, "shapes": self._shapes}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `weights.Optimizer.restore`."""
        if [list(each) for each in state["shapes"]] != self._shapes:
            raise CheckpointError(
                "the checkpoint's optimiser is of other weights than this run trains; resume with the model and the "
                "lora section that the run was started with"
            )
        self.adamw.state.clear()
        if not state["moments"]:
            return
        for part in self._shards.engine.optimizer.fp32_partitioned_groups_flat:
            self.adamw.state[part] = {
                "step": state["moments"][0]["step"].clone(),
                **{key: torch.zeros_like(part) for key in _MOMENTS},
            }
        for number, p in enumerate(self._ordered):
            for key in _MOMENTS:
                full = state["moments"][number][key]
                self._utils.safe_set_local_optimizer_state(p, own_part(p, full), key)

    def _gradients(self) -> list[torch.Tensor]:
        """This process's part of each weight's gradient: what `step` will use, not copies."""
        return [self._utils.safe_get_local_grad(p) for p in self.parameters]

    def _norm(self, own: Sequence[torch.Tensor]) -> float:
        square = sum(float(part.double().square().sum()) for part in own)
        total = torch.tensor(square, dtype=torch.float64)
        dist.all_reduce(total)
        return float(total.sqrt())

    @property
    def _shapes(self) -> list[list[int]]:
        return [list(p.ds_shape) for p in self.parameters]  # type: ignore[attr-defined]
