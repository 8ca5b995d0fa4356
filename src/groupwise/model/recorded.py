"""What the linear layers and the head gave while sampling, given again in the training forward.

The first update of a batch begins with the very weights that sampled it, so its forward pass would compute each matrix
product of the layers a second time. Their outputs are kept while sampling and stand in for the products; norms,
activations and attention are computed as ever, and the backward pass is the layers' own. Of the head the log-probs,
entropies and normalisers are kept, so that the forward pass makes no logits, and where they are not too many the
exponentials of all logits, so that the backward pass makes none either. It finds log-probs again, some of them or all,
which are held against those kept (`sampler/gap_abs_max`). The gradient is that of the plain computation up to the
rounding in which two products of different shapes differ.

Nothing is taken on trust: tokens are found by what precedes them, weights by torch's count of their changes, and
whatever is not found has the whole pass computed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_ROOT = -1
MASS_ELEMENTS = 1 << 28
"""Exponentials of logits kept at most, of all vocabulary: 268 million, 1 GB in float32."""


@dataclass(slots=True, kw_only=True, eq=False)
class Known:
    """What sampling has computed of some predictions already, shape [M] each."""

    logprobs: Tensor
    """Of the targets."""
    entropy: Tensor
    """At each."""
    normalizer: Tensor
    """Logarithm of the sum of exp(logit / temperature)."""
    masses: Sequence[Tensor] = ()
    """Exponentials of logits that sampling made, shape [R, V] each, in proportion; () where they were not kept."""
    mass_of: Sequence[tuple[int, int]] = ()
    """Which of `masses` and which of its rows belongs to each prediction."""
    again: Tensor | None = None
    """The log-probs as the backward pass finds them; NaN where it did not look or a token has no gradient. None before
    it."""

    def mass(self, index: Tensor, *, into: Tensor) -> Tensor:
        """Exponentials of the logits behind some predictions, written to a tensor of shape [len(index), V]."""
        rows = [self.masses[step][row] for step, row in (self.mass_of[i] for i in index.tolist())]
        return torch.stack(rows, out=into)


class _Given(torch.autograd.Function):
    """A linear layer whose output is known: rows of it, with the gradient of the product."""

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None, known: Tensor, rows_S: Tensor
    ) -> Tensor:
        ctx.save_for_backward(input, weight)
        return known.index_select(0, rows_S).view(*input.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        input, weight = ctx.saved_tensors
        grad_SO = grad.reshape(-1, grad.shape[-1])
        of_input = grad @ weight if ctx.needs_input_grad[0] else None
        of_weight = grad_SO.T @ input.reshape(-1, input.shape[-1]) if ctx.needs_input_grad[1] else None
        of_bias = grad_SO.sum(0) if ctx.needs_input_grad[2] else None
        return of_input, of_weight, of_bias, None, None


class RecordedLayers:
    """Outputs of a backbone's linear layers for each token that it was sampled with."""

    def __init__(
        self, backbone: torch.nn.Module, head: torch.nn.Module, *, tokens: int, masses: bool = True
    ) -> None:
        """Nothing is recorded yet.

        Args:
            backbone: layers without the head; parts of other types are computed as ever.
            head: of the model.
            tokens: kept at most; a batch of more is not kept at all, so that memory does not follow the batch.
            masses: keep exponentials of logits too; of no use where entropies have a gradient.
        """
        self._parameters = [*backbone.parameters(), *head.parameters()]
        self.layers = [part for part in backbone.modules() if type(part) is torch.nn.Linear]
        self.tokens, self.masses = tokens, masses
        self.listening = False
        """True while what the layers compute is being kept."""
        self.reused = 0
        """Tokens of the batch whose layers were not computed again."""
        self.forget()

    def forget(self) -> None:
        """Let go of what was recorded."""
        self._known: dict[torch.nn.Module, Tensor] = {}
        self._filled: dict[torch.nn.Module, int] = {}
        self._children: dict[tuple[int, int], int] = {}
        self._predicted: dict[tuple[int, int], int] = {}
        self._numbers: list[Tensor] = []
        self._predictions = 0
        self._masses: list[Tensor] = []
        self._mass_of: list[tuple[int, int]] = []
        self._mass_elements = 0
        self._temperatures: set[float] = set()
        self._rows = self._capacity = 0
        self._whole = False
        self._weights: list[tuple[int, int]] = []

    @contextmanager
    def record(self) -> Iterator[None]:
        """Forget the last batch; what is sampled within the block is kept."""
        self.forget()
        self.reused = 0
        self.listening = True
        try:
            yield
        finally:
            self.listening = False
            self._weights = self._state()

    @contextmanager
    def hear(self, tokens: int, temperature: float) -> Iterator[None]:
        """Within the block the layers' outputs are kept, for so many tokens at most; the caller names the tokens.

        What the head gives is of logits divided by the temperature.
        """
        self._capacity += tokens
        if self._capacity > self.tokens:
            self.forget()
            self._capacity = self.tokens + 1  # nor are the parts of this batch that are still to come
            yield
            return
        self._whole = True
        self._temperatures.add(temperature)
        with self._instead(lambda layer: functools.partial(self._heard, layer, layer.forward)):
            yield

    def _heard(self, layer: torch.nn.Module, forward: Callable[..., Tensor], input: Tensor) -> Tensor:
        output = forward(input)
        self.keep(layer, output.reshape(-1, output.shape[-1]))
        return output

    def keep(self, layer: torch.nn.Module, rows: Tensor) -> None:
        """Keep what a layer gave, shape [S, features], within `hear`; for whoever computes in its place."""
        known = self._known.get(layer)
        if known is None or len(known) < self._capacity:
            grown = rows.new_empty(self._capacity, rows.shape[1])
            if known is not None:
                grown[: len(known)] = known
            self._known[layer] = known = grown
        filled = self._filled.get(layer, 0)
        if filled + len(rows) > len(known):
            self._whole = False  # a layer that is called more often than once per token
        else:
            known[filled : filled + len(rows)] = rows
        self._filled[layer] = filled + len(rows)

    def prompts(self, token_ids_S: NDArray[np.int64], parent_S: Sequence[int]) -> NDArray[np.int64]:
        """Name the tokens of packed prompts that the layers were just called with; gives each one's place.

        Args:
            token_ids_S: the tokens.
            parent_S: index of the token that precedes each, which comes before it; -1 for a first.
        """
        places: list[int] = []
        for i, (token, parent) in enumerate(zip(token_ids_S.tolist(), parent_S, strict=True)):
            above = _ROOT if parent < 0 else places[parent]
            places.append(self._children.setdefault((above, token), self._rows + i))
        self._rows += len(token_ids_S)
        return np.array(places, dtype=np.int64)

    def rows(self, token_ids_R: NDArray[np.int64], above_R: NDArray[np.int64]) -> NDArray[np.int64]:
        """Name the next token of each row, behind the place of the one before it; gives each one's place."""
        named = zip(token_ids_R.tolist(), above_R.tolist(), strict=True)
        places = [
            self._children.setdefault((above, token), self._rows + i)
            for i, (token, above) in enumerate(named)
        ]
        self._rows += len(token_ids_R)
        return np.array(places, dtype=np.int64)

    def predictions(
        self,
        above_N: NDArray[np.int64],
        token_ids_N: NDArray[np.int64],
        numbers_N3: Tensor,
        mass_RV: Tensor | None,
        row_N: NDArray[np.int64],
    ) -> None:
        """Name tokens drawn behind places.

        Args:
            above_N: the place before each.
            token_ids_N: the tokens.
            numbers_N3: log-prob, entropy and normaliser of each, before any truncation.
            mass_RV: exponentials of the logits, in proportion; kept as they are. None where they are not wanted.
            row_N: the row of them that each token was drawn from.
        """
        named = zip(above_N.tolist(), token_ids_N.tolist(), strict=True)
        for number, prediction in enumerate(named, start=self._predictions):
            self._predicted.setdefault(prediction, number)
        self._numbers.append(numbers_N3)
        self._predictions += len(numbers_N3)
        self._mass_elements += 0 if mass_RV is None else mass_RV.numel()
        if mass_RV is None or not self._whole or self._mass_elements > MASS_ELEMENTS:
            self._masses = []
        else:
            self._mass_of += [(len(self._masses), row) for row in row_N.tolist()]
            self._masses.append(mass_RV)

    def known(
        self, places_U: Tensor, targets_U: Tensor, temperature: float, dtype: torch.dtype
    ) -> Known | None:
        """What the head gave for tokens behind places that `find` gave; None when it is not known of one of them.

        Args:
            places_U: behind which the tokens stand.
            targets_U: the tokens.
            temperature: that divides the logits.
            dtype: of the hidden states.
        """
        if self._temperatures != {temperature}:
            return None
        index = [
            self._predicted.get(named, -1)
            for named in zip(places_U.tolist(), targets_U.tolist(), strict=True)
        ]
        if min(index) < 0:
            return None
        exact = torch.promote_types(dtype, torch.float32)
        numbers = torch.cat(self._numbers)[index].to(places_U.device, exact)
        logprobs, entropy, normalizer = numbers.T.contiguous()
        masses = self._masses
        mass_of = [self._mass_of[number] for number in index] if masses else []
        return Known(
            logprobs=logprobs, entropy=entropy, normalizer=normalizer, masses=masses, mass_of=mass_of
        )

    def find(self, token_ids_S: Sequence[int], parent_S: Sequence[int]) -> Tensor | None:
        """Where the outputs for packed tokens lie, shape [S]; None when one of them was not sampled with.

        Args:
            token_ids_S: the tokens.
            parent_S: index of the token that precedes each in its sequence, which comes before it; -1 for a first.
        """
        complete = all(self._filled.get(layer) == self._rows for layer in self.layers)
        if not (self._whole and self._known and complete and self._weights == self._state()):
            return None
        places: list[int] = []
        for token, parent in zip(token_ids_S, parent_S, strict=True):
            place = self._children.get((_ROOT if parent < 0 else places[parent], token))
            if place is None:
                return None
            places.append(place)
        return torch.tensor(places, device=self.layers[0].weight.device)

    @contextmanager
    def answer(self, rows_S: Tensor) -> Iterator[None]:
        """Within the block, one forward pass, the layers give what was recorded at these places, and it is let go."""
        try:
            with self._instead(lambda layer: functools.partial(self._answer, layer, rows_S)):
                yield
            self.reused = len(rows_S)
        finally:
            self._known.clear()

    @contextmanager
    def _instead(self, forward: Callable[[torch.nn.Linear], Callable[..., Tensor]]) -> Iterator[None]:
        """Within the block the layers compute by these functions; sampling may have given them some already."""
        own = {layer: layer.__dict__.get("forward") for layer in self.layers}
        for layer in self.layers:
            layer.forward = forward(layer)  # type: ignore[method-assign]
        try:
            yield
        finally:
            for layer, before in own.items():
                if before is None:
                    del layer.forward
                else:
                    layer.forward = before  # type: ignore[method-assign]

    def _answer(self, layer: torch.nn.Linear, rows_S: Tensor, input: Tensor) -> Tensor:
        # Let go at once, so that the record makes room for the activations which the backward pass needs.
        known = self._known.pop(layer)
        output: Tensor = _Given.apply(input, layer.weight, layer.bias, known, rows_S)  # type: ignore[no-untyped-call]
        return output

    def _state(self) -> list[tuple[int, int]]:
        """Changes with every change of the weights: an update, a load, another tensor in their place."""
        return [(p.data_ptr(), p._version) for p in self._parameters]
