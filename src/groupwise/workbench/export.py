"""A trained model in another form: a Hugging Face folder, its adapter alone, or one .gguf file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal

from groupwise.checkpoint.export import save_model
from groupwise.checkpoint.gguf import Precision, write_gguf
from groupwise.checkpoint.weights import ADAPTER
from groupwise.errors import CheckpointError
from groupwise.model.load import load_policy
from groupwise.workbench.trial import open_source

Form = Literal["folder", "adapter", "gguf"]


def export(source: str, target: Path, *, adapter: bool = False, precision: Precision = "f16") -> Form:
    """Write a model where it is wanted.

    Args:
        source: a run folder, for the model that it trained; or a model folder, a .gguf file or a hub id.
        target: a file that ends in .gguf, or a folder.
        adapter: the LoRA adapter alone, for PEFT.
        precision: of the matrices of a .gguf file.

    Returns:
        Which form was written.

    Raises:
        GroupwiseError: there is no such model, it has no adapter, or the target cannot be written; names the remedy.
    """
    if adapter:
        _copy_adapter(Path(source), target)
        return "adapter"
    loaded = open_source(source, bare=True)
    policy = load_policy(loaded.config.model, lora=None, stop_tokens=(), base=loaded.base, seed=0)
    if target.suffix.lower() == ".gguf":
        write_gguf(policy, target, precision=precision)
        return "gguf"
    save_model(policy, target)
    return "folder"


def _copy_adapter(source: Path, target: Path) -> None:
    places = [source / "model" / ADAPTER, source / ADAPTER, source]
    found = next((place for place in places if (place / "adapter_config.json").is_file()), None)
    if found is None:
        raise CheckpointError(
            f"{source} has no adapter: it was trained in full, or is no run folder; leave --adapter out"
        )
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CheckpointError(f"{target} is there already and not empty; name a new folder")
    try:
        shutil.copytree(found, target, dirs_exist_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"{target} cannot be written: {error.strerror or error}; name another folder"
        ) from error
