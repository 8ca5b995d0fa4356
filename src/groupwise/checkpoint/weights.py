"""The trained weights in a checkpoint: all of them as safetensors, or with LoRA the adapter in PEFT's layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file

from groupwise.errors import CheckpointError, TrainingError
from groupwise.model.reading import quiet
from groupwise.model.sharding import divided, live_state, put, shape_of, whole_on_first

if TYPE_CHECKING:
    from torch import Tensor

    from groupwise.model.load import Policy

WEIGHTS = "weights.safetensors"
"""Every weight of a model that is trained in full, under the names of its `state_dict`; tied ones once."""
ADAPTER = "adapter"
"""Folder with a LoRA adapter as PEFT saves it. The base is never in a checkpoint."""


def trained_weights(policy: Policy) -> dict[str, Tensor]:
    """What a checkpoint holds of the model: names to live tensors, each storage once."""
    if policy.lora:
        import peft

        from groupwise.model.lora import POLICY  # both take seconds to import

        return dict(peft.get_peft_model_state_dict(policy.model, adapter_name=POLICY))
    if divided(policy.model):  # what a process holds of a tensor may be empty, and says nothing
        return live_state(policy.model)
    return dict(_once(policy.model.state_dict()))


def whole_weights(policy: Policy) -> dict[str, Tensor]:
    """The trained weights put together, where they are divided among processes, at the first of these.

    All of them call this; the others get empty tensors. Weights that are not divided are the live ones.
    """
    return {name: whole_on_first(tensor) for name, tensor in trained_weights(policy).items()}


def write_weights(policy: Policy, folder: Path, weights: Mapping[str, Tensor] | None = None) -> None:
    """Write the trained weights into the folder of a checkpoint.

    Args:
        policy: whose weights they are.
        folder: of the checkpoint.
        weights: as `whole_weights` gives them, which is what they are by default.

    Raises:
        TrainingError: they hold numbers that are not finite; names the first tensor.
        OSError, SafetensorError: they cannot be written.
    """
    weights = whole_weights(policy) if weights is None else weights
    refuse_not_finite(weights)
    if policy.lora:
        write_adapter(policy, folder / ADAPTER, weights)
    else:
        save_file({name: each.contiguous() for name, each in weights.items()}, folder / WEIGHTS)


def write_adapter(policy: Policy, folder: Path, weights: Mapping[str, Tensor]) -> None:
    """Write a LoRA adapter as PEFT does; the arguments are those of `write_weights`, `folder` the adapter's own."""
    from groupwise.model.lora import POLICY  # PEFT takes seconds to import

    model: Any = policy.model
    in_model = {}
    for name, tensor in weights.items():
        # PEFT leaves `weight` out of the saved name of DoRA's magnitudes, and saves nothing that it cannot find.
        layer, _, kind = (
            f"{name}.weight".rpartition(".") if name.endswith("_vector") else name.rpartition(".")
        )
        in_model[f"{layer}.{POLICY}.{kind}"] = tensor
    with quiet():
        # PEFT would look the base up on the hub to decide whether to save embeddings.
        model.save_pretrained(
            folder, selected_adapters=[POLICY], save_embedding_layers=False, state_dict=in_model
        )
    (folder / "README.md").unlink(missing_ok=True)  # an empty form


def read_weights(policy: Policy, folder: Path) -> None:
    """Put the weights of a checkpoint into the model, in place.

    Raises:
        CheckpointError: they are of another model, or of a run with other layers adapted.
    """
    place = folder / ADAPTER / "adapter_model.safetensors" if policy.lora else folder / WEIGHTS
    if not place.is_file():
        held = "all weights" if policy.lora else "an adapter"
        raise CheckpointError(
            f"the checkpoint {folder} holds {held}, but this run trains "
            f"{'an adapter' if policy.lora else 'all weights'}; it is of another run"
        )
    saved = load_file(place)
    own = trained_weights(policy)
    _refuse_other(saved, own, folder, policy.name)
    for name, tensor in own.items():
        put(tensor, saved[name])


@torch.no_grad()
def refuse_not_finite(weights: Mapping[str, Tensor]) -> None:
    """Raise a TrainingError that names the first tensor with NaN or infinity."""
    for name, tensor in weights.items():
        # One pass without a mask of the same size; NaN and infinity both survive a sum of absolute values.
        if tensor.is_floating_point() and not bool(
            torch.linalg.vector_norm(tensor, ord=float("inf")).isfinite()
        ):
            raise TrainingError(
                f"the weights {name} hold NaN or infinity, so they are not saved; go back to the checkpoint before, "
                "with a lower training.learning_rate"
            )


def _once(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    seen: set[tuple[Any, ...]] = set()
    for name, tensor in weights.items():
        key = (tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.shape, tensor.stride())
        if key not in seen or not tensor.numel():
            seen.add(key)
            yield name, tensor


def _refuse_other(saved: Mapping[str, Tensor], own: Mapping[str, Tensor], folder: Path, name: str) -> None:
    for key in (*own, *saved):
        if key not in saved or key not in own:
            where = f"the model {name}" if key not in own else "the checkpoint"
            raise CheckpointError(
                f"the checkpoint {folder} is of another model: {where} has no weights {key}; resume with the model "
                "that the run was started with"
            )
        if saved[key].shape != shape_of(own[key]) or saved[key].dtype != own[key].dtype:
            theirs, ours = (f"{list(shape_of(each[key]))} in {each[key].dtype}" for each in (saved, own))
            raise CheckpointError(
                f"the checkpoint {folder} is of another model: its {key} is {theirs}, that of {name} {ours}; resume "
                "with the model that the run was started with"
            )
