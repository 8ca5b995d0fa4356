"""A benchmark's measurements as a JSON file: written after each one, so that what was interrupted goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


class Record:
    """The file of one benchmark in one setting.

    What is measured is held under `identity` (settings, versions, machine, source). Measurements of another identity
    are not mixed with new ones: the file begins anew.
    """

    def __init__(self, name: str, identity: Mapping[str, Any], *, fresh: bool = False) -> None:
        """Open the file of that name, or begin it."""
        self.path = RESULTS / f"{name}.json"
        self.identity = json.loads(json.dumps(identity))
        self.runs: list[dict[str, Any]] = []
        held = read(self.path) if self.path.exists() else None
        if held is not None and not fresh:
            differing = [k for k in self.identity if held["identity"].get(k) != self.identity[k]]
            if not differing and held["identity"].keys() == self.identity.keys():
                self.runs = held["runs"]
            else:
                print(f"{self.path.name} was measured with other {', '.join(differing)}: beginning anew")

    def add(self, run: Mapping[str, Any]) -> None:
        """Keep one measurement."""
        self.runs.append(dict(run))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps({"identity": self.identity, "runs": self.runs}, indent=1) + "\n")
        os.replace(part, self.path)


def read(path: Path) -> dict[str, Any]:
    """What a file holds."""
    held: dict[str, Any] = json.loads(path.read_text())
    return held


def every(prefix: str, folder: Path | None = None) -> list[dict[str, Any]]:
    """What all files hold whose names begin so, with the name of each."""
    paths = sorted((folder or RESULTS).glob(f"{prefix}*.json"))
    return [{"name": path.stem, **read(path)} for path in paths]
