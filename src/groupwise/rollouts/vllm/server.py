"""A vLLM server that is there, and one that a run starts, watches and ends."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import httpx

from groupwise.config.serving import VllmConfig
from groupwise.errors import EngineError

_log = logging.getLogger(__name__)

INSIDE = Path(__file__).parent / "inside"
"""What has to be on PYTHONPATH of a vLLM server."""
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What --max-lora-rank may be."""
_LAUNCHED = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
)
_LOOK_SECONDS, _END_SECONDS, _LEFT_SECONDS = 0.25, 20.0, 5.0
_PR_SET_PDEATHSIG = 1


class Given:
    """A server that somebody else starts and ends."""

    gone: str | None = None
    """It may always come back."""

    def __init__(self, config: VllmConfig) -> None:
        """Take the address."""
        assert config.base_url is not None
        self._url, self._config = config.base_url, config

    def open(self) -> str:
        """See `engine.Server`; waits `start_seconds` for it."""
        until = time.monotonic() + self._config.start_seconds
        while not answers(self._url):
            if time.monotonic() > until:
                raise EngineError(
                    f"no server answers at {self._url} (rollout.vllm.base_url) within rollout.vllm.start_seconds="
                    f"{self._config.start_seconds:g}; start it (docs/serving.md has the command), or correct it"
                )
            time.sleep(_LOOK_SECONDS)
        return self._url

    def close(self) -> None:
        """It stays."""


class Started:
    """A server of the run's own on this machine, started when it is first needed, and again when it ends."""

    def __init__(self, config: VllmConfig, command: Callable[[int], Sequence[str]], log: Path) -> None:
        """Nothing is started yet.

        Args:
            config: where vLLM is, and how patiently.
            command: the words that start a server at a port; asked anew for each start.
            log: what the server prints.
        """
        self._config, self._command, self._log = config, command, log
        self._process: subprocess.Popen[bytes] | None = None
        self._port = config.port or free_port()
        self._left = config.restarts
        self._closing = threading.Event()
        self._ready = threading.Event()
        self.gone: str | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._port}"

    def open(self) -> str:
        """See `engine.Server`."""
        if self._process is None:
            self._start()
            threading.Thread(target=self._watch, name="groupwise-vllm", daemon=True).start()
        until = time.monotonic() + self._config.start_seconds
        while not answers(self.url):
            if self.gone is not None:
                raise EngineError(self.gone)
            if time.monotonic() > until:
                self.close()
                raise EngineError(
                    f"the vLLM server does not answer within rollout.vllm.start_seconds="
                    f"{self._config.start_seconds:g}{self._said()}"
                )
            time.sleep(_LOOK_SECONDS)
        self._ready.set()
        return self.url

    def close(self) -> None:
        """End the server, kindly at first."""
        self._closing.set()
        process = self._process
        if process is None:
            return
        process.terminate()  # nothing, where it has ended already
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
        self._clear()
        process.wait()
        if self.gone is None and self._ready.is_set():  # else it has something to tell
            self._log.unlink(missing_ok=True)

    def _clear(self) -> None:
        """End what is left of the server's processes, which may outlive the first of them.

        They are given some time, since what they share in memory is removed by the last of them.
        """
        assert self._process is not None
        until = time.monotonic() + _LEFT_SECONDS
        with suppress(ProcessLookupError, PermissionError):
            while time.monotonic() < until:
                os.killpg(self._process.pid, 0)
                time.sleep(_LOOK_SECONDS)
            os.killpg(self._process.pid, signal.SIGKILL)

    def _start(self) -> None:
        command = self._command(self._port)
        try:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    command,
                    env=environment(os.environ),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C is for the run, which then ends the server
                    preexec_fn=_ends_with_parent(),
                )
        except OSError as error:
            raise EngineError(
                f"the vLLM server cannot be started by {command[0]}: {error.strerror or error}; set "
                "rollout.vllm.python to the interpreter of the environment with vLLM"
            ) from error

    def _watch(self) -> None:
        while True:
            assert self._process is not None
            code = self._process.wait()
            if self._closing.is_set():
                return
            self._clear()
            if not self._ready.is_set() or self._left == 0:
                self.gone = f"the vLLM server ended by itself (exit status {code}){self._said()}"
                return
            self._left -= 1
            _log.warning(
                "the vLLM server ended (exit status %d) and is started again; %d more times at most",
                code,
                self._left,
            )
            try:
                self._start()
            except EngineError as error:
                self.gone = str(error)
                return

    def _said(self) -> str:
        """The last line of the log that speaks of an error, and where the log is."""
        lines: list[str] = []
        with suppress(OSError):
            lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        told = [line.strip() for line in lines if "Error" in line or "error:" in line or "No module" in line]
        words = f": {told[-1][-300:]}" if told else ""
        return f"{words} (its log is {self._log})"


def server_command(
    python: str,
    model: Path,
    *,
    port: int,
    dtype: str,
    context_tokens: int,
    lora_rank: int | None,
    eager: bool,
    more: Sequence[str],
) -> list[str]:
    """The words that start a server which can be given weights.

    Args:
        python: interpreter of the environment with vLLM.
        model: folder of weights and tokenizer.
        port: where it listens, on this machine alone.
        dtype: of its weights.
        context_tokens: longest prompt and response together.
        lora_rank: of the adapters that it will be given; None for all weights.
        eager: neither compile nor capture graphs.
        more: further words.
    """
    words = [
        *(python, "-P", "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(model), "--served-model-name", "base"),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", dtype, "--max-model-len", str(context_tokens)),
        *("--logprobs-mode", "processed_logprobs", "--enable-scale-out"),
        *(
            "--generation-config",
            "vllm",
        ),  # the run's own sampling settings alone, not those of the model's folder
        *("--worker-extension-cls", "groupwise_vllm.Extension"),
        *("--weight-transfer-config", json.dumps({"backend": "groupwise"})),
    ]
    if lora_rank is not None:
        rank = next((rank for rank in LORA_RANKS if rank >= lora_rank), lora_rank)
        words += ["--enable-lora", "--max-loras", "1", "--max-lora-rank", str(rank)]
    if eager:
        words.append("--enforce-eager")
    return [*words, *more]


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """Of a server: without what a launcher sets for the trainer, and with the paths that training asks for."""
    kept = {
        name: value
        for name, value in given.items()
        if name not in _LAUNCHED and not name.startswith("TORCHELASTIC")
    }
    return {
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        **kept,
        "PYTHONPATH": str(INSIDE),
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
    }


def answers(url: str) -> bool:
    """True when a server is ready there."""
    try:
        return httpx.get(f"{url}/health", timeout=5.0, trust_env=False).is_success
    except httpx.HTTPError:
        return False


def free_port() -> int:
    """A port of this machine that nothing listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _ends_with_parent() -> Callable[[], None] | None:
    """Before the server's program starts: the kernel is to end it when the run is killed. Linux only."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return ask
