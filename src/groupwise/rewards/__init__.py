"""What scores a rollout: functions of lists, the built-in scorers, and how their values become one reward."""

from groupwise.rewards.reward import Rewards, TrainerState, build

__all__ = ["Rewards", "TrainerState", "build"]
