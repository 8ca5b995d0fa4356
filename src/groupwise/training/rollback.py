"""Going back to a healthy checkpoint within a run: what was learned goes back, what counts and draws goes on."""

from __future__ import annotations

from groupwise.checkpoint.manifest import Position
from groupwise.checkpoint.restore import find_checkpoint, read_parts
from groupwise.checkpoint.weights import read_weights
from groupwise.training.setup import Run

LEARNED = ("optimizer", "critic", "rewards", "kl")
"""The parts of a run that go back with its weights: the optimiser's moments, the critic, what rewards remember, and
what the KL controller was steered by. The step, the order of prompts, every random stream, the version of the weights,
findings and records go on, so that no batch is drawn a second time."""


def go_back(run: Run) -> None:
    """Put back what the run had learned by a healthy step, if its watch asks for that after the step just finished.

    Raises:
        CheckpointError: the checkpoint has been damaged since it was chosen.
    """
    step = run.recorder.watch.back
    if step is None:
        return
    root = run.folder.checkpoints_dir
    name = Position(step).folder
    checkpoint = run.ranks.from_first(lambda: find_checkpoint(root, name, say=lambda sentence: None))
    states = read_parts(checkpoint)
    run.ahead.drop()  # drawn by the weights that are given up
    read_weights(run.policy, checkpoint.folder)
    for name in LEARNED:
        if name in run.parts:
            run.parts[name].restore(states[name])
    run.updater.guard.bad_in_a_row = 0
    run.engine.load_weights(run.updater.updates, run.policy.model)
