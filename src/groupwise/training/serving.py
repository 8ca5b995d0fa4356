"""The engine of a run: the policy itself, a vLLM server that is given its weights, or the user's own."""

from __future__ import annotations

import atexit
import functools
import os
import re
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.checkpoint.weights import whole_weights, write_adapter
from groupwise.config import RunConfig
from groupwise.config.serving import VllmConfig
from groupwise.errors import ConfigError
from groupwise.model.logprobs import TokenLogprobs
from groupwise.model.reading import quiet
from groupwise.model.sharding import whole_state
from groupwise.rollouts.engine import Engine
from groupwise.rollouts.in_process import InProcessEngine
from groupwise.rollouts.own import OwnEngine
from groupwise.rollouts.vllm.engine import Server, VllmEngine
from groupwise.rollouts.vllm.handover import Handover
from groupwise.rollouts.vllm.server import Given, Started, server_command
from groupwise.training.distributed import Ranks
from groupwise.training.room import refuse_without_room
from groupwise.training.sharing import SharedEngine
from groupwise.training.transfer import Transfer, sending_of

if TYPE_CHECKING:
    from torch import Tensor

    from groupwise.model.load import Policy

_MEMORY = Path("/dev/shm")
_BASE = "base"


def engine_of(
    config: RunConfig,
    policy: Policy,
    scorer: TokenLogprobs,
    ranks: Ranks,
    *,
    base: Path,
    transfer: Transfer = "folder",
) -> Engine:
    """What samples, each rank its own prompts.

    Args:
        config: of the run.
        policy: whose weights sample.
        scorer: of the policy.
        ranks: who train together.
        base: folder that paths are relative to.
        transfer: how a server is given all weights.

    Raises:
        ConfigError: the interpreter or the folder for weights is not there, or a server that the run starts leaves
            training no room on its GPU.
        EngineError: an engine of the user's could not be made.
    """
    own: Engine
    if config.rollout.overlap and not ranks.alone:
        raise ConfigError(
            f"rollout.overlap is 1, which one process can do, but {ranks.count} were started; set it to 0, or start one"
        )
    if config.rollout.engine == "vllm":
        own = vllm_engine(config, policy, ranks, base=base, transfer=transfer)
    elif ":" in config.rollout.engine:
        own = OwnEngine(config.rollout.engine, policy, base=base)
    else:
        own = InProcessEngine(
            policy,
            scorer,
            cache_megabytes=config.rollout.cache_megabytes,
            pack_weights=config.rollout.pack_weights,
        )
    return SharedEngine(own, ranks)


def vllm_engine(
    config: RunConfig, policy: Policy, ranks: Ranks, *, base: Path, transfer: Transfer
) -> VllmEngine:
    """The engine of `rollout.vllm`. Nothing is started, written or asked before it is first needed.

    The arguments and errors are those of `engine_of`.
    """
    settings = config.rollout.vllm or VllmConfig()
    _refuse_missing(settings, base)
    if settings.base_url is None:
        refuse_without_room(settings.arguments, policy.model, processes=ranks.count)
    root, name = ranks.from_first(lambda: (_exchange(settings, base), secrets.token_hex(4)))
    write = write_lora if policy.lora else write_whole
    handover = Handover(
        root,
        f"groupwise-{name}",
        functools.partial(write, policy, by=ranks.from_first),
        adapter=policy.lora,
        share=ranks.from_first,
        sending=sending_of(policy, ranks, transfer, settings),
    )
    start = root / _BASE if policy.lora or transfer != "folder" else None
    server: Server = (
        Given(settings) if settings.base_url else _started(config, settings, policy, handover, base, start)
    )
    if start is not None and settings.base_url is None:  # now, since all ranks take part in it
        write_start = write_base if policy.lora else write_whole
        write_start(policy, start, by=ranks.from_first)
    return VllmEngine(policy, _Together(server, ranks, root), handover, settings)


class _Together:
    """One server for all ranks, which the first of them starts and ends."""

    def __init__(self, server: Server, ranks: Ranks, root: Path) -> None:
        self.server, self.ranks, self.root = server, ranks, root

    @property
    def gone(self) -> str | None:
        """See `rollouts.vllm.engine.Server`."""
        return self.server.gone

    def open(self) -> str:
        """See `rollouts.vllm.engine.Server`."""
        return self.ranks.from_first(self.server.open)

    def close(self) -> None:
        """End the server, and remove the folder where it leaves nothing of others."""
        if self.ranks.first:
            self.server.close()
            shutil.rmtree(self.root, ignore_errors=True)


def write_whole(policy: Policy, folder: Path, *, by: Callable[[Callable[[], None]], None]) -> None:
    """Write all weights, with configuration and tokenizer, so that a server can be started from the folder.

    Args:
        policy: whose weights they are.
        folder: is made.
        by: has the writing done by the first of several processes that all call this.
    """
    weights = whole_state(policy.model)
    by(lambda: _saved(policy, policy.model, folder, weights))


def write_base(policy: Policy, folder: Path, *, by: Callable[[Callable[[], None]], None]) -> None:
    """As `write_whole`, the weights that an adapter is on, without it."""
    from groupwise.model.lora import base_weights  # PEFT takes seconds to import

    weights = base_weights(policy.model)
    by(lambda: _saved(policy, policy.model.get_base_model(), folder, weights))


def write_lora(policy: Policy, folder: Path, *, by: Callable[[Callable[[], None]], None]) -> None:
    """Write the adapter in PEFT's layout; the arguments are those of `write_whole`."""
    weights = whole_weights(policy)

    def written() -> None:
        beside = folder.with_name(f"{folder.name}.part")
        beside.mkdir(parents=True)
        write_adapter(policy, beside, weights)
        beside.rename(folder)

    by(written)


def _saved(policy: Policy, model: Any, folder: Path, weights: dict[str, Tensor]) -> None:
    """All or nothing: the folder has its name once everything is in it."""
    beside = folder.with_name(f"{folder.name}.part")
    with quiet():
        model.save_pretrained(beside, state_dict=weights)
        policy.tokenizer.save_pretrained(beside)
    beside.rename(folder)


def _started(
    config: RunConfig,
    settings: VllmConfig,
    policy: Policy,
    handover: Handover,
    base: Path,
    start: Path | None,
) -> Started:
    """A server that begins with the weights in `start`, or where that is None with the last ones."""
    dtype = str(policy.precision or next(policy.model.parameters()).dtype).removeprefix("torch.")
    rank: int | None = None
    if policy.lora:
        from groupwise.model.lora import POLICY

        peft_config: Any = policy.model.peft_config[POLICY]
        rank = int(peft_config.r)

    def command(port: int) -> list[str]:
        assert handover.last is not None
        return server_command(
            _interpreter(settings, base),
            start or handover.last.folder,
            port=port,
            dtype=dtype,
            context_tokens=policy.context_tokens,
            lora_rank=rank,
            eager=policy.device.type == "cpu",
            more=[*settings.arguments, *(["--trust-remote-code"] if config.model.trust_remote_code else [])],
        )

    handle, log = tempfile.mkstemp(prefix="groupwise-vllm-", suffix=".log")
    with open(handle, "ab"):
        pass
    return Started(settings, command, Path(log))


def _refuse_missing(settings: VllmConfig, base: Path) -> None:
    python = Path(_interpreter(settings, base))
    if settings.base_url is None and not python.is_file():
        raise ConfigError(
            f"rollout.vllm.python is {python}, which is not there; name the interpreter of the environment with vLLM"
        )


def _interpreter(settings: VllmConfig, base: Path) -> str:
    return sys.executable if settings.python is None else str(base / settings.python)


def _exchange(settings: VllmConfig, base: Path) -> Path:
    """A new folder for weights, in memory where that can be."""
    place = _MEMORY if _MEMORY.is_dir() else None
    if settings.weights_dir is not None:
        place = (base / settings.weights_dir).resolve()
    try:
        if place is not None:
            place.mkdir(parents=True, exist_ok=True)
        if place is not None:
            _remove_left_behind(place)
        root = Path(tempfile.mkdtemp(prefix=f"groupwise-{socket.gethostname()}-{os.getpid()}-", dir=place))
    except OSError as error:
        raise ConfigError(
            f"rollout.vllm.weights_dir: nothing can be written to {place}: {error.strerror or error}; name another "
            "folder"
        ) from error
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return root


def _remove_left_behind(place: Path) -> None:
    """Remove the weights of runs on this machine that were killed: a folder's name holds its process's number."""
    for folder in place.glob(f"groupwise-{socket.gethostname()}-*"):
        found = re.fullmatch(r".*-(\d+)-[^-]+", folder.name)
        if found is None:
            continue
        try:
            os.kill(int(found[1]), 0)
        except ProcessLookupError:
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # it is there, and somebody else's
            continue
