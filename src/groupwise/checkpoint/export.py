"""Saving the trained model as a plain Hugging Face folder that anything can load."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from groupwise.checkpoint.weights import ADAPTER, whole_weights, write_adapter
from groupwise.errors import CheckpointError
from groupwise.model.folder import replace_folder
from groupwise.model.reading import quiet
from groupwise.model.sharding import divided, whole_state

if TYPE_CHECKING:
    from torch import Tensor

    from groupwise.model.load import Policy

# What a saved model may consist of. A folder with anything else in it is not replaced.
_OURS = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.py", "merges.txt", "vocab.txt", ADAPTER)


def _here(write: Callable[[], None]) -> None:
    """By this process, which is the only one."""
    write()


def save_model(policy: Policy, folder: Path, *, by: Callable[[Callable[[], None]], None] = _here) -> None:
    """Write weights, configuration, tokenizer and chat template into `folder`, all or nothing.

    `AutoModelForCausalLM.from_pretrained(folder)` and `AutoTokenizer.from_pretrained(folder)` load it. The weights have
    the dtype they were trained in. With LoRA they are the merged ones, and the adapter alone is in `folder/adapter`,
    for PEFT and for `lora.adapter` of a further run on the same base; the base in memory is not touched. A model saved
    there before is replaced once the new one is on disk.

    Args:
        policy: the model and its tokenizer.
        folder: made, with its parents, or replaced when it holds nothing but a saved model.
        by: has the writing done, by one of several processes that all call this, after they have put together what is
            divided among them.

    Raises:
        CheckpointError: the folder holds something else or cannot be written, or the adapter has numbers that are not
            finite.
    """
    folder = Path(folder).resolve()
    put_together = _whole(policy) if divided(policy.model) else None

    def written() -> None:
        _refuse_foreign(folder)
        weights, adapter = put_together or _whole(policy)
        try:
            replace_folder(folder, lambda beside: _write(policy, beside, weights, adapter))
        except (OSError, SafetensorError) as error:
            reason = getattr(error, "strerror", None) or error
            raise CheckpointError(
                f"the model cannot be saved in {folder}: {reason}; free some space or name another folder"
            ) from error

    by(written)


def _whole(policy: Policy) -> tuple[dict[str, Tensor], dict[str, Tensor] | None]:
    """All weights under the names of the plain model, and the adapter's own; None without one."""
    if policy.lora:
        from groupwise.model.lora import merged_weights

        return merged_weights(policy.model), whole_weights(policy)
    return whole_state(policy.model), None


def _write(
    policy: Policy, folder: Path, weights: dict[str, Tensor], adapter: dict[str, Tensor] | None
) -> None:
    model: Any = policy.model
    with quiet():
        if adapter is None:
            model.save_pretrained(folder, state_dict=weights)
        else:
            model.get_base_model().save_pretrained(folder, state_dict=weights)
            write_adapter(policy, folder / ADAPTER, adapter)
        policy.tokenizer.save_pretrained(folder)


def _refuse_foreign(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"the model cannot be saved in {folder}, which is a file; name a folder")
    if folder.is_dir():
        strange = sorted(p.name for p in folder.iterdir() if not any(fnmatch(p.name, each) for each in _OURS))
        if strange:
            raise CheckpointError(
                f"the model is not saved in {folder}, since that would remove {strange[0]}; name another folder"
            )
