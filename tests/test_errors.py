from __future__ import annotations

from groupwise.errors import raised


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def test_exceptions_of_others_are_cut_to_fit_a_sentence() -> None:
    assert raised(ValueError("short")) == "ValueError: short"
    assert raised(ValueError()) == "ValueError"
    assert raised(ValueError("two\n  lines")) == "ValueError: two lines"
    assert raised(MuteError()) == "MuteError"
    assert raised(ValueError("a" * 200)) == "ValueError: " + "a" * 200
    assert raised(ValueError("a" * 201)) == "ValueError: " + "a" * 197 + "..."
