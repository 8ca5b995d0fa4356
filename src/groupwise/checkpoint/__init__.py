"""Saving a run and its model, and taking a run up again."""
