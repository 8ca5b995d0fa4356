"""The nouns, and the files that hold them. Imports nothing of ours and no torch."""

from groupwise.records.nouns import (
    Finding,
    Group,
    Prompt,
    Rollout,
    Severity,
    StepRecord,
    StopReason,
    TrainingGroup,
    Verdict,
)

__all__ = [
    "Finding",
    "Group",
    "Prompt",
    "Rollout",
    "Severity",
    "StepRecord",
    "StopReason",
    "TrainingGroup",
    "Verdict",
]
