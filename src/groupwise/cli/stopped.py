"""Ctrl-C in the middle of a run."""

from __future__ import annotations


class Stopped(Exception):  # noqa: N818  (nothing went wrong)
    """The user ended a run; the message says what is left of it."""
