"""Ctrl-C in the middle of a run."""

from __future__ import annotations


class Stopped(Exception):  # noqa: N818  (nothing went wrong)
    """The user ended a run; the message says what is left of it.

    Attributes:
        told: another process of the run says so.
    """

    def __init__(self, sentence: str = "", *, told: bool = False) -> None:
        super().__init__(sentence)
        self.told = told
