"""The nouns, and the files that hold them. Imports nothing of ours and no torch."""

from groupwise.records.nouns import Group, Prompt, Rollout, StepRecord, StopReason, TrainingGroup, Verdict

__all__ = ["Group", "Prompt", "Rollout", "StepRecord", "StopReason", "TrainingGroup", "Verdict"]
