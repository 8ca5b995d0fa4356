"""Several processes that train together, forked from one that has imported everything, and what they end with."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import sys
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tests.end_to_end.interrupted import restless

_PRELOADED = [
    "groupwise.training.start",
    "groupwise.model.lora",
    "peft",
    "transformers.models.llama.modeling_llama",
    "torch.optim",
    "torch.distributed.fsdp",
    "tests.end_to_end.interrupted",
]
ROWS = [
    {"prompt": text}
    for text in (
        "Say yes.",
        "Give one word, and only that word, to whoever asks you for it.",
        "What is two plus two?",
        "Hello",
        "Count from one to ten, slowly and in the way that children do.",
        "How?",
        "Answer briefly.",
    )
]


@cache
def nursery() -> Any:
    """Where processes are forked from."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def tree(folder: Path, **sections: Any) -> dict[str, Any]:
    """Three groups of ragged responses a step, in micro-batches of three rollouts and two updates."""
    base: dict[str, Any] = {
        "model": {"name": "tiny"},
        "rollout": {"prompts_per_step": 3, "group_size": 4, "max_new_tokens": 7, "stop_tokens": ["e", "a", "t"]},
        "objective": {"kl": {"beta": 0.05}},
        "training": {"steps": 5, "learning_rate": 1e-3, "mini_batches": 2, "micro_batch_rollouts": 3},
        "checkpoint": {"every_steps": None, "every_minutes": None},
        "run": {"dir": str(folder), "sinks": [], "seed": 5},
        "distributed": {"timeout_seconds": 60},
    }
    for name, values in sections.items():
        base[name] = {**base.get(name, {}), **values} if isinstance(values, dict) else values
    return base


def share_of_vowels(completions: list[str], **columns: Any) -> list[float]:
    return [sum(c in "aeiou" for c in text) / max(len(text), 1) for text in completions]


def train_here(config: dict[str, Any], exact: bool, resume: str | None) -> None:
    """What one rank does: train, and write down the gradient of every update that it saw."""
    import torch

    import groupwise
    from groupwise.model.sharding import whole
    from groupwise.training import setup, weights

    if exact:  # on weights in float64, so that rounding hides nothing
        load = setup.load_policy

        def in_float64(*given: Any, **options: Any) -> Any:
            policy = load(*given, **options)
            policy.model.double()
            return policy

        setup.load_policy = in_float64  # type: ignore[assignment]
    seen: list[torch.Tensor] = []
    apply = weights.GuardedStep.apply

    def noting(self: Any, *given: Any) -> Any:
        grads = [p.grad for p in self.optimizer.parameters]
        seen.append(torch.cat([whole(g).double().reshape(-1) for g in grads if g is not None] or [torch.zeros(1)]))
        return apply(self, *given)

    weights.GuardedStep.apply = noting  # type: ignore[method-assign]
    reward = restless if os.environ.get("RANKS_REWARD") == "restless" else share_of_vowels
    if resume is None:
        result = groupwise.train(config, rewards=[reward], train=ROWS)
    else:
        result = groupwise.train(resume=resume, overrides=config["overrides"], rewards=[reward], train=ROWS)
    number = os.environ.get("RANK", "0")
    torch.save(seen, result.folder / f"gradients-{number}.pt")


def _live(number: int, count: int, port: int, said: str, act: Callable[..., None], given: tuple[Any, ...]) -> None:
    from groupwise.training.distributed import leave

    if count > 1:
        os.environ |= {
            "RANK": str(number),
            "LOCAL_RANK": str(number),
            "WORLD_SIZE": str(count),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
    code = 0
    try:
        act(*given)
    except BaseException as error:
        code = 2
        Path(said, f"error-{number}.json").write_text(
            json.dumps([type(error).__name__, str(error), traceback.format_exc()])
        )
        traceback.print_exc()
    leave(code)
    sys.exit(code)


def together(
    count: int, act: Callable[..., None], *given: Any, place: Path, seconds: float = 120
) -> list[int | None]:
    """Run `act` in so many ranks; their exit codes, None for one that had to be killed."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    processes = [
        nursery().Process(target=_live, args=(number, count, port, str(place), act, given))
        for number in range(count)
    ]
    for process in processes:
        process.start()
    codes = []
    for process in processes:
        process.join(seconds)
        codes.append(process.exitcode)
        if process.exitcode is None:
            process.kill()
            process.join()
    return codes


def errors(place: Path) -> dict[int, tuple[str, str]]:
    """By rank, the kind and the sentence of what it ended with."""
    found = {}
    for path in place.glob("error-*.json"):
        kind, sentence, _ = json.loads(path.read_text())
        found[int(path.stem.removeprefix("error-"))] = (kind, sentence)
    return found
