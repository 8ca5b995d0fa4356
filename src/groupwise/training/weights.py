"""The weights that are trained: optimiser and learning-rate schedule."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from groupwise.config.training import TrainingConfig
from groupwise.errors import CheckpointError, ConfigError, TrainingError
from groupwise.health.metric import Mean, Metric, Total
from groupwise.model.sharding import divided_as, whole
from groupwise.records.health_file import Fault


def learning_rate(config: TrainingConfig, step: int, steps: int) -> float:
    """The rate of a step.

    Linear rise over `warmup_steps` (the first step already has 1/warmup of the peak, so it is not wasted), then
    constant, or falling to 0 at `steps` along a line or half a cosine (Loshchilov and Hutter 2017, SGDR, equation 5
    without restarts).

    Args:
        config: peak, schedule and warm-up.
        step: 0-based.
        steps: in the whole run.
    """
    peak, warmup = config.learning_rate, config.warmup_steps
    if step < warmup:
        return peak * (step + 1) / warmup
    if config.schedule == "constant":
        return peak
    done = (step - warmup) / max(steps - warmup, 1)
    return peak * (1 - done) if config.schedule == "linear" else peak * 0.5 * (1 + math.cos(math.pi * done))


class Optimizer:
    """AdamW (Loshchilov and Hutter 2019) over the weights that require a gradient; decay on matrices only."""

    def __init__(self, model: torch.nn.Module, config: TrainingConfig) -> None:
        """Collect the parameters.

        Raises:
            ConfigError: nothing in the model is trainable.
        """
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self.names = [name for name, _ in named]
        self.parameters = [p for _, p in named]
        if not self.parameters:
            raise ConfigError("the model has no trainable weights; check lora.target_modules")
        matrices = [p for p in self.parameters if p.dim() >= 2]
        others = [p for p in self.parameters if p.dim() < 2]
        self.ordered = [*matrices, *others]
        """The parameters in the order of their numbers in AdamW's state."""
        groups = [
            {"params": matrices, "weight_decay": config.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        self.adamw = torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=config.learning_rate,
            betas=config.adam_betas,
            eps=config.adam_eps,
            fused=self.parameters[0].device.type in ("cpu", "cuda"),
        )

    @property
    def rate(self) -> float:
        """The learning rate in force."""
        return float(self.adamw.param_groups[0]["lr"])

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of every group."""
        for group in self.adamw.param_groups:
            group["lr"] = rate

    def zero_grad(self) -> None:
        """Forget the gradients."""
        self.adamw.zero_grad(set_to_none=True)

    def gradient_norm(self) -> float:
        """Euclidean norm of the whole gradient; 0 when there is none."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        return float(whole(torch.nn.utils.get_total_norm(gradients))) if gradients else 0.0

    @property
    def has_gradient(self) -> list[bool]:
        """For each weight whether there is a gradient."""
        return [p.grad is not None for p in self.parameters]

    def add_up(self, over: Callable[[Sequence[torch.Tensor]], None], wanted: Sequence[bool]) -> None:
        """Add the gradients up over several processes.

        Args:
            over: replaces each tensor by its sum over all processes.
            wanted: for each weight whether some process has a gradient; where this one has none it adds 0.
        """
        gradients = []
        for p, some in zip(self.parameters, wanted, strict=True):
            if some:
                if p.grad is None:
                    p.grad = torch.zeros_like(p)
                gradients.append(p.grad)
        over(gradients)

    def scale_gradient(self, factor: float) -> None:
        """Multiply the whole gradient."""
        for p in self.parameters:
            if p.grad is not None:
                p.grad.mul_(factor)

    def step(self) -> None:
        """Change the weights."""
        self.adamw.step()

    def not_finite_gradients(self) -> list[str]:
        """Names of the weights whose gradient holds NaN or infinity."""
        return [
            name
            for name, p in zip(self.names, self.parameters, strict=True)
            if p.grad is not None and not bool(whole(p.grad.isfinite().all()))
        ]

    @torch.no_grad()
    def refuse_not_finite(self) -> None:
        """Find out whether the last step has spoilt the weights, at the price of one pass over them.

        Raises:
            TrainingError: they hold NaN or infinity; names the first.
        """
        # The Euclidean norm takes a ninth of the time that the largest entry takes on a CPU. It also overflows when
        # the weights are finite but huge, so each is looked at before anything is said.
        if bool(whole(torch.nn.utils.get_total_norm(self.parameters)).isfinite()):
            return
        name = next(
            (n for n, p in zip(self.names, self.parameters, strict=True) if not whole(p.isfinite().all())),
            None,
        )
        if name is not None:
            raise TrainingError(
                f"the update left NaN or infinity in the weights {name}, though its gradient was finite; resume from "
                "the last checkpoint with a lower training.learning_rate"
            )

    def state(self) -> dict[str, Any]:
        """AdamW's moments and counts, by the number of the parameter; settings come from the configuration."""
        return {"moments": self.adamw.state_dict()["state"], "shapes": self._shapes}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `checkpoint.state.Stateful`.

        Raises:
            CheckpointError: of other parameters.
        """
        if [list(each) for each in state["shapes"]] != self._shapes:
            raise CheckpointError(
                "the checkpoint's optimiser is of other weights than this run trains; resume with the model and the "
                "lora section that the run was started with"
            )
        own = {
            number: p
            for group, packed in zip(self.adamw.param_groups, self._numbers, strict=True)
            for number, p in zip(packed, group["params"], strict=True)
        }
        moments = {
            number: {
                key: divided_as(own[number], value) if value.shape == own[number].shape else value
                for key, value in of_parameter.items()
            }
            for number, of_parameter in state["moments"].items()
        }
        self.adamw.load_state_dict(
            {"state": moments, "param_groups": self.adamw.state_dict()["param_groups"]}
        )

    @property
    def _numbers(self) -> list[list[int]]:
        """By which AdamW's state knows the parameters of each group."""
        return [group["params"] for group in self.adamw.state_dict()["param_groups"]]

    @property
    def _shapes(self) -> list[list[int]]:
        return [list(p.shape) for p in self.parameters]


class GuardedStep:
    """Scales the gradient and changes the weights, unless the loss or the gradient is not finite."""

    def __init__(
        self,
        optimizer: Optimizer,
        config: TrainingConfig,
        *,
        report: Callable[[Fault], None] | None = None,
        rate: str = "training.learning_rate",
    ) -> None:
        """Take the parts.

        Args:
            optimizer: of the weights.
            config: the limit on the gradient's norm, and the bound on bad steps in a row.
            report: told why each update is skipped.
            rate: the setting that the learning rate comes from, for messages.
        """
        self.optimizer = optimizer
        self.config = config
        self.report = report
        self.rate = rate
        self.bad_in_a_row = 0
        self.updates = 0

    def state(self) -> dict[str, int]:
        """How many updates were made, and how many were skipped in a row."""
        return {"updates": self.updates, "bad_in_a_row": self.bad_in_a_row}

    def restore(self, state: Mapping[str, int]) -> None:
        """See `checkpoint.state.Stateful`."""
        self.updates, self.bad_in_a_row = state["updates"], state["bad_in_a_row"]

    def apply(
        self, loss: float, explain: Callable[[float, float, Sequence[str]], Fault] | None = None
    ) -> dict[str, Metric]:
        """Take one optimiser step with the gradient that is there; without any gradient the weights stay.

        Args:
            loss: the value that the gradient is of.
            explain: loss, norm of the gradient and the names of weights whose gradient is not finite, to why.

        Raises:
            TrainingError: the loss or gradient was not finite `max_bad_steps` times in a row; or the weights are not
                finite after the step.
        """
        norm = self.optimizer.gradient_norm()
        limit = self.config.max_grad_norm
        if not (math.isfinite(loss) and math.isfinite(norm)):
            bad = self.optimizer.not_finite_gradients()
            self.optimizer.zero_grad()
            if explain is not None:
                return self.skip(explain(loss, norm, bad))
            return self.skip(
                Fault(source="gradient", sentence=f"the loss is {loss:g} and the gradient's norm {norm:g}")
            )
        self.bad_in_a_row = 0
        clipped = limit is not None and norm > limit
        if limit is not None and clipped:
            self.optimizer.scale_gradient(limit / (norm + 1e-6))
        if norm > 0:
            self.optimizer.step()
            self.optimizer.refuse_not_finite()
            self.updates += 1
        return {
            "grad/norm": Mean(norm, 1),
            "grad/clipped_fraction": Mean(float(clipped), 1),
            "training/skipped_updates": Total(0),
        }

    def skip(self, fault: Fault) -> dict[str, Metric]:
        """Leave the weights as they are, and say why.

        Raises:
            TrainingError: for the `max_bad_steps`th time in a row.
        """
        if self.report is not None:
            self.report(fault)
        self.bad_in_a_row += 1
        if self.bad_in_a_row >= self.config.max_bad_steps:
            raise TrainingError(
                f"{self.bad_in_a_row} updates in a row were skipped, as training.max_bad_steps allows at most; the "
                f"last: {fault.sentence}. The weights are those before them; lower {self.rate}, or look at "
                "the rollouts named in health.jsonl"
            )
        return {"training/skipped_updates": Total(1)}
