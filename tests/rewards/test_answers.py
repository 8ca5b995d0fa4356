import threading
from pathlib import Path

import pytest

from groupwise.rewards import answers
from groupwise.rewards.answers import Answers


def test_replies_are_told_apart_by_address_and_every_byte_of_the_question() -> None:
    kept = Answers()
    kept.put("http://a", '{"x": 1}', {"reply": [0.0, None, "ü"]})
    assert kept.get("http://a", '{"x": 1}') == {"reply": [0.0, None, "ü"]}
    assert kept.get("http://a", '{"x": 2}') is None
    assert kept.get("http://b", '{"x": 1}') is None


def test_the_longest_unused_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MOST_IN_MEMORY", 2)
    kept = Answers()
    kept.put("u", "1", 1)
    kept.put("u", "2", 2)
    assert kept.get("u", "1") == 1
    kept.put("u", "3", 3)
    assert [kept.get("u", body) for body in "123"] == [1, None, 3]


def test_a_file_outlives_the_memory_and_is_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MOST_IN_MEMORY", 1)
    file = tmp_path / "a b%20.sqlite"
    first, second = Answers(file), Answers(file)
    threads = [threading.Thread(target=first.put, args=("u", str(i), i)) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [second.get("u", str(i)) for i in range(20)] == list(range(20))
    assert {path.name for path in tmp_path.iterdir()} == {file.name}
