"""What comes with groupwise: its direct dependencies, the packages these need, and their size on disk.

    python benchmarks/sizes.py   # of this environment; writes docs/results/sizes.md

A package's size is that of the files that its installer recorded, compiled Python left out, since that is made later.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "sizes.md"
MB = 1e6


@dataclass(frozen=True, kw_only=True)
class Package:
    """One installed package."""

    name: str
    version: str
    bytes: int
    needs: frozenset[str]
    """Names of what it needs itself, on this platform, with the extras that were asked for."""


def needed(found: Distribution, extras: Iterable[str] = ()) -> list[Requirement]:
    """What a package requires here, with these extras of it."""
    requirements = [Requirement(text) for text in found.requires or []]
    given = [{"extra": ""}, *({"extra": extra} for extra in extras)]
    return [r for r in requirements if r.marker is None or any(r.marker.evaluate(each) for each in given)]


def installed(requirements: Iterable[Requirement]) -> dict[str, Package]:
    """Every package that these lead to, by name; one that is not installed is passed over."""
    packages: dict[str, Package] = {}
    waiting = list(requirements)
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        one = waiting.pop()
        name, extras = canonicalize_name(one.name), frozenset(one.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        below = needed(found, extras)
        waiting += below
        before = packages[name].needs if name in packages else frozenset()
        needs = before | {canonicalize_name(r.name) for r in below}
        packages[name] = Package(name=name, version=found.version, bytes=size(found), needs=needs)
    return packages


def size(found: Distribution) -> int:
    """Bytes of a package's files on disk."""
    paths = [Path(str(file.locate())) for file in found.files or [] if file.suffix != ".pyc"]
    return sum(path.stat().st_size for path in paths if path.is_file())


def table() -> str:
    """The page."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    direct = [Requirement(text) for text in project["dependencies"]]
    packages = installed(direct)
    own = sum(path.stat().st_size for path in (ROOT / "src").rglob("*") if path.suffix != ".pyc")
    total = sum(package.bytes for package in packages.values())
    lines = [
        "# Dependencies and sizes",
        "",
        f"groupwise has {len(direct)} direct dependencies. With what these need, {len(packages)} packages are "
        f"installed, of {total / MB:,.0f} MB together; groupwise itself has {own / MB:.1f} MB. Python "
        f"{sys.version_info.major}.{sys.version_info.minor} on {sys.platform}, torch {packages['torch'].version}: by "
        "`make sizes`. Torch for CUDA is larger by several gigabytes.",
        "",
        "[Why each is there](../decisions/0010-direct-dependencies.md).",
        "",
        "| direct dependency | version | MB | packages that come with it alone | MB with these |",
        "| --- | --- | --- | --- | --- |",
    ]
    for requirement in sorted(direct, key=lambda r: canonicalize_name(r.name)):
        name = canonicalize_name(requirement.name)
        without = installed([r for r in direct if r is not requirement])
        alone = [package for key, package in packages.items() if key not in without and key != name]
        together = packages[name].bytes + sum(package.bytes for package in alone)
        lines.append(
            f"| {name} | {packages[name].version} | {packages[name].bytes / MB:.1f} | {len(alone)} | "
            f"{together / MB:.1f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(table(), encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))
