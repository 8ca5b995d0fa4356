"""The frozen model that the KL is measured against: the policy as it was when the run began."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from groupwise.config.memory import MemoryConfig
from groupwise.config.model import LoraConfig, ReferenceConfig
from groupwise.errors import ConfigError
from groupwise.model.load import resolve_device

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

    from groupwise.model.load import Policy

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The reference's model and how to reach its weights: `with reference.weights(): reference.model(...)`."""

    model: PreTrainedModel | PeftModel
    """What to run. With LoRA it is the policy's own model, so it is the reference only inside `weights()`."""
    device: torch.device
    """Where its weights are."""
    shared: bool
    """True when the model is the policy's own (LoRA)."""
    rests: bool = False
    """True when its weights are in the processor's memory, and on `device` inside `weights()` alone."""

    def weights(self) -> AbstractContextManager[None]:
        """Inside, `model` is the reference; afterwards, and after an exception, the policy is as it was."""
        if self.rests:
            return brought(self.model, self.device)
        if not self.shared:
            return nullcontext()
        from groupwise.model.lora import reference_weights

        return reference_weights(self.model)


@contextmanager
def brought(model: torch.nn.Module, device: torch.device) -> Iterator[None]:
    """A context in which a frozen model's weights are on a device; afterwards they are where they were.

    Nothing is copied back, since nothing changes them. Nested, the inner context leaves them on the device.

    Args:
        model: whose weights take no gradient.
        device: to bring them to.
    """
    resting = [(parameter, parameter.data) for parameter in model.parameters()]
    try:
        for parameter, data in resting:
            parameter.data = data.to(device, non_blocking=True)
        yield
    finally:
        for parameter, data in resting:
            parameter.data = data


@contextmanager
def dropped_out(
    weights: Callable[[], AbstractContextManager[None]],
    backbone: torch.nn.Module,
    share: float,
    seed: Sequence[int],
) -> Iterator[None]:
    """A context with the reference's weights, in which some of its last hidden features are 0 and the others scaled.

    One mask for all tokens (variational dropout, Gal and Ghahramani 2016, arXiv 1512.05287): so what a token gets does
    not depend on how tokens are batched. A feature is kept with probability 1 - share and divided by it, which leaves
    the mean of the hidden states as it is.

    Args:
        weights: context with the reference's weights.
        backbone: gives the hidden states, the head aside.
        share: probability that a feature is dropped, in [0, 1).
        seed: whole numbers that decide the mask.
    """

    def drop(module: torch.nn.Module, arguments: Any, output: Any) -> Any:
        hidden = output.last_hidden_state
        bits = np.random.Philox(np.random.SeedSequence([int(s) for s in seed]))
        kept_D = np.random.Generator(bits).random(hidden.shape[-1]) >= share
        factor_D = torch.from_numpy(kept_D / (1 - share)).to(device=hidden.device, dtype=hidden.dtype)
        output.last_hidden_state = hidden * factor_D
        return output

    with weights():
        handle = backbone.register_forward_hook(drop)
        try:
            yield
        finally:
            handle.remove()


def build_reference(
    policy: Policy,
    *,
    reference: ReferenceConfig | None,
    lora: LoraConfig | None,
    memory: MemoryConfig | None = None,
) -> Reference:
    """The policy's present weights, frozen. Call it before a checkpoint is restored into the policy.

    Trained in full: a copy in evaluation mode, without gradient, in the dtype and on the device asked for (the
    policy's by default); buffers such as the rotary frequencies keep their precision. Trained through LoRA: the same
    weights with a fresh adapter off, or with the frozen copy of the adapter that the run started from on; no memory
    but that copy's.

    Args:
        policy: as loaded.
        reference: the section `reference`; None for the policy's dtype and device.
        lora: the section `lora` that the policy was loaded with.
        memory: the section `memory`; with `reference: cpu` the copy rests in the processor's memory.

    Raises:
        ConfigError: a `reference` section with LoRA, where it would change nothing, or a device that is not there.
    """
    assert (lora is not None) == policy.lora, "the policy was loaded with another lora section"
    if lora is not None:
        if reference is not None:
            raise ConfigError(
                "reference: with lora the reference is the policy's own weights, so it has no dtype or device of its "
                "own; remove the reference section"
            )
        return Reference(model=policy.model, device=policy.device, shared=True)
    wanted = reference or ReferenceConfig()
    device = policy.device if wanted.device is None else resolve_device(wanted.device, "reference.device")
    rests = memory is not None and memory.reference == "cpu"
    # A copy that is to rest is made where it rests, since the device may not hold two.
    copies = (
        {
            id(p): torch.nn.Parameter(p.detach().to("cpu", copy=True), requires_grad=False)
            for p in policy.model.parameters()
        }
        if rests
        else {}
    )
    model = copy.deepcopy(policy.model, copies)
    model.requires_grad_(False)
    model.eval()
    if wanted.dtype is not None:
        for parameter in model.parameters():
            parameter.data = parameter.data.to(_DTYPES[wanted.dtype])
    if rests and device.type == "cuda":
        for parameter in model.parameters():
            parameter.data = parameter.data.pin_memory()
    return Reference(model=model if rests else model.to(device), device=device, shared=False, rests=rests)
