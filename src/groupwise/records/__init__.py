"""The nouns, and the files that hold them. Imports nothing of ours and no torch."""

from groupwise.records.nouns import (
    Baseline,
    Group,
    Prompt,
    Rollout,
    StepRecord,
    StopReason,
    TrainingGroup,
    Verdict,
)

__all__ = ["Baseline", "Group", "Prompt", "Rollout", "StepRecord", "StopReason", "TrainingGroup", "Verdict"]
