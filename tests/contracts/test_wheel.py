"""What a user installs: the built wheel and sdist, away from this tree."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_the_wheel_works_away_from_the_tree(tmp_path: Path) -> None:
    words = [sys.executable, str(ROOT / ".ci" / "wheel.py"), "--borrow", "--outdir", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "config.yaml is fine" in done.stdout
    assert "run folder" in done.stdout
    assert "Half of the groups or more have equal rewards" in done.stdout  # groupwise health --about
    [wheel], [sdist] = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    names = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    assert {
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    } <= names
    with tarfile.open(sdist) as archive:
        shipped = {name.partition("/")[2] for name in archive.getnames()}
    top = (
        "mkdocs.yml",
        "Containerfile",
        "Makefile",
        "constraints.txt",
        "CHANGELOG.md",
        ".ci/run",
        ".ci/wheel.py",
    )
    assert {*top, "docs/first_run.md", "examples/lora/config.yaml", "tests/conftest.py"} <= shipped


@pytest.mark.long
def test_what_the_container_copies_is_enough_to_build_from(tmp_path: Path) -> None:
    """Nothing else of this tree is there when the container's `pip install .` runs."""
    tree = tmp_path / "tree"
    tree.mkdir()
    copied = [
        line.split()[1:]
        for line in (ROOT / "Containerfile").read_text().splitlines()
        if line.startswith("COPY ")
    ]
    for *sources, place in copied:
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, tree / place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                (tree / place).mkdir(exist_ok=True)
                shutil.copy(ROOT / source, tree / place)
    words = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(tree)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = tmp_path.glob("*.whl")
    assert "groupwise/workbench/health.md" in zipfile.ZipFile(wheel).namelist()
