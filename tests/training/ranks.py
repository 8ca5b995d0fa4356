"""Several processes that train together, forked from one that has imported everything, and what they end with."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.nursery import nursery

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


STEPS = 3
"""Of each run: the third ends an epoch, with the one prompt that is left."""


def tree(folder: Path, **sections: Any) -> dict[str, Any]:
    """Three groups of ragged responses a step, in micro-batches of three rollouts and two updates."""
    base: dict[str, Any] = {
        "model": {"name": "tiny"},
        "rollout": {
            "prompts_per_step": 3,
            "group_size": 4,
            "max_new_tokens": 7,
            "stop_tokens": ["e", "a", "t"],
        },
        "objective": {"kl": {"beta": 0.05}},
        "training": {
            "steps": STEPS,
            "learning_rate": 1e-3,
            "mini_batches": 2,
            "micro_batch_rollouts": 3,
            "reuse_sampling": False,
        },
        "checkpoint": {"every_steps": None, "every_minutes": None},
        "run": {"dir": str(folder), "sinks": [], "seed": 5},
        "distributed": {"timeout_seconds": 60},
    }
    for name, values in sections.items():
        base[name] = {**base.get(name, {}), **values} if isinstance(values, dict) else values
    return base


def share_of_vowels(completions: list[str], **columns: Any) -> list[float]:
    return [sum(c in "aeiou" for c in text) / max(len(text), 1) for text in completions]


def train_here(config: dict[str, Any], trouble: str = "") -> None:
    """What one rank does: train, and write down the gradient of every update that it saw.

    Args:
        config: of the run, or with `resume` the folder and with `overrides` what changes.
        trouble: a name in TROUBLES, to be met in this process.
    """
    import torch

    import groupwise
    from groupwise.model.sharding import whole
    from groupwise.training import setup, weights

    load = setup.load_policy

    def in_float64(*given: Any, **options: Any) -> Any:
        """So that rounding hides little; the model still computes its norms in float32."""
        policy = load(*given, **options)
        policy.model.double()
        return policy

    setup.load_policy = in_float64
    seen: list[torch.Tensor] = []
    apply = weights.GuardedStep.apply

    def noting(self: Any, *given: Any) -> Any:
        grads = [whole(p.grad).double().reshape(-1) for p in self.optimizer.parameters if p.grad is not None]
        seen.append(torch.cat(grads or [torch.zeros(1, dtype=torch.float64)]))
        return apply(self, *given)

    weights.GuardedStep.apply = noting  # type: ignore[method-assign]
    reward = share_of_vowels
    if trouble in TROUBLES:
        reward = TROUBLES[trouble]() or reward
    given: dict[str, Any] = {"rewards": [reward], "train": ROWS}
    if "resume" in config:
        result = groupwise.train(resume=config["resume"], overrides=config.get("overrides", ()), **given)
    else:
        result = groupwise.train(config, **given)
    torch.save(seen, result.folder / f"gradients-{os.environ.get('RANK', '0')}.pt")


def _second() -> bool:
    return os.environ.get("RANK") == "1"


def _at_third_update(act: Callable[[], None]) -> None:
    """Have the second rank do something in the middle of the second step."""
    from groupwise.training.step import Updater

    update, made = Updater.update, [0]

    def acting(self: Any, *given: Any, **options: Any) -> Any:
        made[0] += 1
        if made[0] == 3 and _second():
            act()
        return update(self, *given, **options)

    Updater.update = acting  # type: ignore[method-assign]


def _killed() -> None:
    _at_third_update(lambda: os.kill(os.getpid(), signal.SIGKILL))


def _asked_to_end() -> None:
    _at_third_update(lambda: os.kill(os.getpid(), signal.SIGTERM))


def _has_a_bug() -> None:
    def fail() -> None:
        raise ZeroDivisionError("a bug of the second rank")

    _at_third_update(fail)


def _no_longer_scores() -> Any:
    calls = [0]

    def refusing(completions: list[str], **columns: Any) -> list[float]:
        calls[0] += 1
        if calls[0] == 2:
            raise ValueError("the judge is out")
        return share_of_vowels(completions)

    return refusing


def _other_data() -> None:
    if _second():
        ROWS[0] = {"prompt": "Another one."}


def _all_alike() -> Any:
    return lambda completions, **columns: [1.0] * len(completions)


def _right_or_wrong() -> Any:
    """Whole groups are alike at times, and an odd number of characters is wrong."""
    return lambda completions, **columns: [float(len(text) % 2 == 0) for text in completions]


TROUBLES: dict[str, Callable[[], Any]] = {
    "killed": _killed,
    "asked to end": _asked_to_end,
    "bug": _has_a_bug,
    "reward fails": _no_longer_scores,
    "other data": _other_data,
    "all alike": _all_alike,
    "right or wrong": _right_or_wrong,
}
"""What may befall a run, by name; a reward in place of the usual one, or None."""


def _live(
    number: int, count: int, port: int, said: str, act: Callable[..., None], given: tuple[Any, ...]
) -> None:
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
        told = getattr(error, "told", False)
        said_by = {"kind": type(error).__name__, "sentence": str(error), "told": told}
        said_by["trace"] = traceback.format_exc()
        Path(said, f"error-{number}.json").write_text(json.dumps(said_by))
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


def errors(place: Path) -> dict[int, dict[str, Any]]:
    """By rank, what it ended with: kind, sentence and trace, and whether another one has told it."""
    return {
        int(path.stem.removeprefix("error-")): json.loads(path.read_text())
        for path in place.glob("error-*.json")
    }
