"""Reports of run folders: the texts of tokens, and what is told of a run that is not whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from groupwise.errors import DataError, RunFolderError
from groupwise.model.tiny import tiny_tokenizer
from groupwise.workbench.report import pieces_of, write_report

TOKENIZER = tiny_tokenizer()


def decode(ids: Sequence[int]) -> str:
    text: str = TOKENIZER.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return text


@given(st.text(max_size=40))
def test_pieces_join_to_the_text(text: str) -> None:
    ids = TOKENIZER.encode(text, add_special_tokens=False)
    pieces = pieces_of(ids, decode)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == decode(ids)


def test_a_character_of_several_tokens_stands_at_the_last() -> None:
    ids = TOKENIZER.encode("é日", add_special_tokens=False)  # two bytes and three, a token each
    assert pieces_of(ids, decode) == ["", "é", "", "", "日"]


def test_bytes_that_make_no_character_take_nothing_from_the_one_behind_them() -> None:
    second, first = TOKENIZER.encode("¡", add_special_tokens=False)[::-1]
    ids = [second, second, second, first, second]
    assert decode(ids) == "\ufffd\ufffd\ufffd¡"
    assert pieces_of(ids, decode) == ["", "", "", "\ufffd", "\ufffd\ufffd¡"]


@given(st.lists(st.integers(0, len(TOKENIZER) - 1), max_size=30))
@example([97, 97, 97, 129, 97])
def test_any_ids_give_a_piece_each(ids: list[int]) -> None:
    pieces = pieces_of(ids, decode)
    assert len(pieces) == len(ids)
    # Bytes that make no character have a mark each, and how many of them are merged is the decoder's affair.
    assert "".join(pieces).replace("\ufffd", "") == decode(ids).replace("\ufffd", "")


def test_a_tokenizer_that_drops_the_first_space_keeps_it_in_the_midst() -> None:
    words = ["▁I", "▁am", "here"]

    def spelled(ids: Sequence[int]) -> str:
        return "".join(words[i] for i in ids).replace("▁", " ").removeprefix(" ")

    assert pieces_of([0, 1, 2], spelled) == ["I", " am", "here"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nowhere", "there is no run folder"),
        ("file", "there is no run folder"),
        ("empty", r"has no manifest\.json"),
    ],
)
def test_what_is_no_run_leaves_no_report(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunFolderError, match=why):
        write_report([tmp_path / name], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"groupwise": "1"}')
    with pytest.raises(DataError, match=r"--output .* cannot be written"):
        write_report([tmp_path], tmp_path / "no" / "report.html")
    with pytest.raises(DataError, match="is a folder; name a file in it"):
        write_report([tmp_path], tmp_path)
    with pytest.raises(RunFolderError, match="is named twice"):
        write_report([tmp_path, tmp_path / "." / ""])
