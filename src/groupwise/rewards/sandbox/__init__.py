"""Runs programs that nobody has read, and says whether they do what their tests ask."""

from groupwise.rewards.sandbox.grade import Grade, grade
from groupwise.rewards.sandbox.limits import Limits

__all__ = ["Grade", "Limits", "grade"]
