"""The random generators of the process: Python's, NumPy's old global one, and torch's of every device.

Sampling needs none of them, since a rollout's numbers follow from its seed. Dropout does, and so may a reward.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from groupwise.errors import CheckpointError


class ProcessRandomness:
    """Every global generator, as one part of a run."""

    def seed(self, seed: int) -> None:
        """Start all of them from a run's seed."""
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)

    def state(self) -> Mapping[str, Any]:
        """See `Stateful`."""
        version, words, gauss = random.getstate()
        name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
        devices = {}
        if torch.cuda.is_available():
            devices["cuda"] = [each.clone() for each in torch.cuda.get_rng_state_all()]
        if torch.backends.mps.is_available():
            devices["mps"] = [torch.mps.get_rng_state().clone()]
        return {
            "python": [version, np.array(words, dtype=np.uint64), gauss],
            "numpy": [str(name), np.array(keys), int(position), int(has_gauss), float(cached)],
            "torch": torch.get_rng_state().clone(),
            "devices": devices,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `Stateful`. Generators of devices that this machine lacks are left out."""
        try:
            version, words, gauss = state["python"]
            random.setstate((version, tuple(int(word) for word in words), gauss))
            np.random.set_state(tuple(state["numpy"]))
            torch.set_rng_state(state["torch"])
            for i, each in enumerate(state["devices"].get("cuda", ())):
                if torch.cuda.is_available() and i < torch.cuda.device_count():
                    torch.cuda.set_rng_state(each, i)
            for each in state["devices"].get("mps", ()):
                if torch.backends.mps.is_available():
                    torch.mps.set_rng_state(each)
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(
                f"the state of the random generators does not fit ({error}); was it written by other versions of "
                "Python, NumPy or torch?"
            ) from None
