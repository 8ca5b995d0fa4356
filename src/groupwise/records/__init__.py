"""The nouns, and the files that hold them. Imports nothing of ours and no torch."""

from groupwise.records.nouns import (
    Baseline,
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
    "Baseline",
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
