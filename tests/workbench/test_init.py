from __future__ import annotations

import json
from pathlib import Path

import pytest

from groupwise.errors import ConfigError
from groupwise.workbench.init import sums, write_starter


def test_the_data_is_right_and_disjoint_in_either_order() -> None:
    train, held_out = sums()
    sides = []
    for rows in (train, held_out):
        pairs = set()
        for row in rows:
            a, plus, b = row["prompt"].removeprefix("What is ").removesuffix("? Answer briefly.").split()
            assert plus == "+"
            assert int(a) + int(b) == int(row["answer"])
            pairs.add(frozenset((int(a), int(b))))
        sides.append(pairs)
    assert not sides[0] & sides[1]
    # 19 numbers make 19 * 20 / 2 = 190 unordered pairs, of which 40 are held out.
    assert (len(sides[0]), len(sides[1]), len(held_out)) == (150, 40, 40)
    assert len({row["prompt"] for row in train}) == len(train)


def test_what_is_there_is_kept_and_nothing_is_written_beside_it(tmp_path: Path) -> None:
    (tmp_path / "reward.py").write_text("mine")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"has a reward\.py already"):
        write_starter(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "reward.py"]
    (tmp_path / "reward.py").unlink()
    names = [path.name for path in write_starter(tmp_path)]
    assert names == ["config.yaml", "reward.py", "train.jsonl", "held_out.jsonl"]
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert json.loads((tmp_path / "train.jsonl").read_text().splitlines()[0])["answer"]


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_starter(tmp_path / "file")
