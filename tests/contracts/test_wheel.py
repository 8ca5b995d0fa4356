"""What a user installs: the built wheel, away from this tree."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_the_wheel_works_away_from_the_tree(tmp_path: Path) -> None:
    built, site = tmp_path / "built", tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(built), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    assert {
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    } <= names
    zipfile.ZipFile(wheel).extractall(site)

    # The wheel's own folder comes before this tree on the path; the working folder is neither.
    environment = {**os.environ, "PYTHONPATH": str(site), "HF_HUB_OFFLINE": "1"}

    def ran(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = ran("-c", "import groupwise; print(groupwise.__file__)")
    assert Path(where.strip()).is_relative_to(site)
    assert "dr_grpo" in ran("-c", "from groupwise.config import presets; print(presets.names())")
    assert "train" in ran("-m", "groupwise", "--help")
    assert "PASS" in ran("-m", "groupwise", "smoke")
