"""Saving the trained model as a plain Hugging Face folder that anything can load."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from groupwise.errors import CheckpointError
from groupwise.model.folder import replace_folder
from groupwise.model.reading import quiet

if TYPE_CHECKING:
    from groupwise.model.load import Policy

ADAPTER = "adapter"
"""Subfolder of a saved model that holds its LoRA adapter alone."""

# What a saved model may consist of. A folder with anything else in it is not replaced.
_OURS = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.py", "merges.txt", "vocab.txt", ADAPTER)


def save_model(policy: Policy, folder: Path) -> None:
    """Write weights, configuration, tokenizer and chat template into `folder`, all or nothing.

    `AutoModelForCausalLM.from_pretrained(folder)` and `AutoTokenizer.from_pretrained(folder)` load it. The weights have
    the dtype they were trained in. With LoRA they are the merged ones, and the adapter alone is in `folder/adapter`,
    for PEFT and for `lora.adapter` of a further run on the same base; the base in memory is not touched. A model saved
    there before is replaced once the new one is on disk.

    Args:
        policy: the model and its tokenizer.
        folder: made, with its parents, or replaced when it holds nothing but a saved model.

    Raises:
        CheckpointError: the folder holds something else or cannot be written, or the adapter has numbers that are not
            finite.
    """
    folder = Path(folder).resolve()
    _refuse_foreign(folder)
    try:
        replace_folder(folder, lambda beside: _write(policy, beside))
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CheckpointError(
            f"the model cannot be saved in {folder}: {reason}; free some space or name another folder"
        ) from error


def _write(policy: Policy, folder: Path) -> None:
    model: Any = policy.model
    with quiet():
        if policy.lora:
            from groupwise.model.lora import POLICY, merged_weights

            model.get_base_model().save_pretrained(folder, state_dict=merged_weights(model))
            # PEFT would look the base up on the hub to decide whether to save embeddings.
            model.save_pretrained(folder / ADAPTER, selected_adapters=[POLICY], save_embedding_layers=False)
            (folder / ADAPTER / "README.md").unlink(missing_ok=True)  # an empty form
        else:
            model.save_pretrained(folder)
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
