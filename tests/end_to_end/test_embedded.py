"""The main job on real weights: the embedded model learns within a few steps, from the example's own files."""

from pathlib import Path

import pytest

import groupwise

CONFIG = Path(__file__).parents[2] / "examples" / "first_run" / "config.yaml"


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_embedded_model_learns_to_add(tmp_path: Path) -> None:
    changes = [
        "training.steps=6",
        "rollout.prompts_per_step=4",
        "rollout.group_size=12",
        "evaluate.prompts=20",
        "run.save_model=false",
        "run.sinks=[]",
        f"run.dir={tmp_path / 'run'}",
    ]
    result = groupwise.train(CONFIG, changes)
    rewards = result.series("reward/mean")
    # Of 6 x 16 rollouts, six steps took the reward from 0.01 to 0.4; a run that learns nothing stays there.
    assert rewards[0] < 0.2
    assert sum(rewards[-2:]) / 2 > rewards[0] + 0.08, rewards
    assert max(result.series("sampler/gap_abs_max")) < 1e-4, "sampler and trainer must agree on real weights"
    assert len(result.series("eval/pass@1")) == 2
