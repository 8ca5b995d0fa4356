"""Sampling through vLLM: a server that is there, or one that the run starts."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from groupwise.config.base import PathText, PositiveFloat, PositiveInt, Section, Text


def check_url(value: str) -> str:
    """The same address without a slash at its end.

    Raises:
        ValueError: it is not one, or it holds a user name or password.
    """
    try:
        parts = urlsplit(value)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known or any(letter.isspace() for letter in value) or "?" in value or "#" in value:
        raise ValueError(f"{value!r:.100} is not an address such as http://localhost:8000")
    if "@" in parts.netloc:
        raise ValueError(
            "the address holds a user name or password, which would be written into the run's records; leave it out"
        )
    if parts.path.rstrip("/"):
        raise ValueError(
            f"{value!r:.100} should end after the port, since the server's paths are added to it, such as "
            "http://localhost:8000"
        )
    return value.rstrip("/")


class VllmConfig(Section):
    """A vLLM server (rollout.engine: vllm). docs/serving.md tells how one is started by hand."""

    base_url: Annotated[Text, AfterValidator(check_url)] | None = Field(
        default=None, description="Address of a server that is there; null: the run starts one and ends it."
    )
    python: PathText | None = Field(
        default=None,
        description="Interpreter of the environment with vLLM, for a server that the run starts; null: this one.",
    )
    arguments: tuple[Text, ...] = Field(
        default=(),
        description="Further words of the command that starts the server, such as --tensor-parallel-size=2.",
    )
    port: Annotated[PositiveInt, Field(le=65535)] | None = Field(
        default=None, description="Of a server that the run starts; null: a free one."
    )
    start_seconds: PositiveFloat = Field(
        default=600.0,
        description="How long a server may take until it answers, at the start and after a loss.",
    )
    restarts: Annotated[PositiveInt, Field(le=1000)] = Field(
        default=3, description="How often a server that the run started, and that ended, is started again."
    )
    timeout_seconds: PositiveFloat = Field(
        default=1800.0, description="How long one request may take: the rollouts of a prompt, or new weights."
    )
    retry_seconds: PositiveFloat = Field(
        default=600.0,
        description="How long a server that is lost, or has other weights than it should, is tried again before the "
        "run ends.",
    )
    concurrency: PositiveInt = Field(default=64, description="Prompts asked for at a time.")
    weights_dir: PathText | None = Field(
        default=None,
        description="Folder through which the server is given weights; it has to see it at the same path. null: "
        "in memory (/dev/shm) where that is, for a server of this machine.",
    )

    transfer: Literal["auto", "folder", "nccl", "gloo"] = Field(
        default="auto",
        description="How all weights get to the server: `folder`, written as safetensors and read from there; "
        "`nccl`, sent from the trainer's GPU to the server's; `gloo`, sent from memory to memory. auto: nccl for a "
        "server of base_url that can, from a trainer on a GPU; else folder. An adapter always goes by a folder.",
    )

    @model_validator(mode="after")
    def _a_way(self) -> VllmConfig:
        if self.transfer == "nccl" and self.base_url is None:
            raise ValueError(
                "transfer is nccl, but the server that the run starts is on the trainer's own GPU, and NCCL joins no "
                "two processes on one; start the server on GPUs of its own and give base_url, or set transfer to auto"
            )
        if self.transfer in ("nccl", "gloo") and self.base_url is not None and self.weights_dir is not None:
            raise ValueError(
                f"weights_dir is a folder for weights, but transfer is {self.transfer}, which takes none; remove one "
                "of the two"
            )
        return self

    @model_validator(mode="after")
    def _one_of_two(self) -> VllmConfig:
        if self.base_url is None:
            return self
        for name in ("python", "arguments", "port", "restarts"):
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(
                    f"{name} is of a server that the run starts, but base_url names one that is there; remove one of "
                    "the two"
                )
        return self
