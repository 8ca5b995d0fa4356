"""A module around a model, for weights that are divided among processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")


class Root(torch.nn.Module):
    """Inside its forward pass the weights outside the layers, such as embedding and head, are together."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, compute: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Whatever `compute` gives."""
        return compute(*args, **kwargs)
