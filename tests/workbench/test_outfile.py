from __future__ import annotations

from pathlib import Path

import pytest

from groupwise.errors import DataError
from groupwise.workbench.outfile import replacing


def test_all_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with replacing(path) as file:
        file.write("first")
        assert not path.exists()
    assert path.read_text() == "first"
    with pytest.raises(ZeroDivisionError), replacing(path) as file:
        file.write(f"second {1 / 0}")
    assert path.read_text() == "first"
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("name", ["", "no/out", "x" * 300])
def test_places_that_cannot_be_written_are_named_at_once(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--output"), replacing(tmp_path / name):
        pytest.fail("the work began")
