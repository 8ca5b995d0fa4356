"""Builds wheel and sdist into dist/, installs the wheel into a new environment outside the tree, and tries it there.

    python .ci/wheel.py             # with all dependencies from the index: minutes and 1.5 GB, removed again
    python .ci/wheel.py --borrow    # with the dependencies of this interpreter: seconds

Tried are the command's version, the types, the demo's `groupwise check` and two steps of it on a tiny model, with the
demo's files as the sdist has them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TINY = "model=tiny training.steps=2 rollout.prompts_per_step=2 rollout.group_size=2 evaluate.prompts=2 run.dir=run"


def main() -> None:
    """Build, install, try."""
    parser = argparse.ArgumentParser(description="Build the wheel and try it.")
    parser.add_argument("--borrow", action="store_true", help="use this interpreter's dependencies")
    parser.add_argument("--outdir", type=Path, default=ROOT / "dist", help="where wheel and sdist go")
    options = parser.parse_args()
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(options.outdir), str(ROOT)],
        check=True,
    )
    wheel = max(options.outdir.glob("groupwise-*.whl"), key=lambda path: path.stat().st_mtime)
    sdist = max(options.outdir.glob("groupwise-*.tar.gz"), key=lambda path: path.stat().st_mtime)
    with tempfile.TemporaryDirectory(prefix="groupwise-wheel-") as name:
        place = Path(name)
        install(wheel, place / "venv", borrow=options.borrow)
        with tarfile.open(sdist) as archive:
            archive.extractall(place / "sdist", filter="data")
        [tree] = (place / "sdist").iterdir()
        tried(place, place / "venv" / "bin", tree / "examples" / "first_run")
    print(f"{wheel.name} and {sdist.name} are fine")


def install(wheel: Path, folder: Path, *, borrow: bool) -> None:
    """A new environment with the wheel in it."""
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    if borrow:
        [site] = folder.glob("lib/python*/site-packages")
        # Folders named in a .pth are put on the path, but .pth files in them, such as this tree's, are not read.
        (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
        subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)
    else:
        subprocess.run([*pip, "--constraint", str(ROOT / "constraints.txt"), str(wheel)], check=True)


def tried(place: Path, bin_: Path, demo: Path) -> None:
    """Runs what a user runs first, from a folder outside the tree.

    Raises:
        SystemExit: the package that was imported is not the wheel's, or lacks its types.
        CalledProcessError: a command failed.
    """
    own = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    own |= {"HF_HUB_OFFLINE": "1", "PATH": f"{bin_}:{own['PATH']}"}

    def ran(*words: str) -> str:
        done = subprocess.run(words, cwd=place, env=own, check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout

    program = "import groupwise, pathlib; print(pathlib.Path(groupwise.__file__).parent)"
    package = Path(ran(str(bin_ / "python"), "-c", program).strip())
    if not package.is_relative_to(place) or not (package / "py.typed").is_file():
        raise SystemExit(f"{package} is not the wheel's, or has no py.typed")
    print(ran("groupwise", "--version").strip())
    print(ran("groupwise", "health", "--about", "dead_groups"))
    print(ran("groupwise", "check", str(demo / "config.yaml"), "model=tiny"))
    print(ran("groupwise", "train", str(demo / "config.yaml"), *TINY.split()))


if __name__ == "__main__":
    main()
