"""A real run goes back to when it was healthy: what returns, what goes on, what is written, and that it repeats."""

from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from groupwise import registry
from groupwise.checkpoint.save import saved_checkpoints
from groupwise.config import load
from groupwise.config.health import CHECKS
from groupwise.records.health_file import read_actions, read_findings
from groupwise.records.metrics_file import read_metrics
from groupwise.records.rollout_file import read_rollouts
from groupwise.training.inputs import read_inputs
from groupwise.training.loop import train
from groupwise.training.resume import open_run
from groupwise.training.setup import Run, assemble
from groupwise.workbench.health import diagnose
from tests.end_to_end.interrupted import differing, left_behind
from tests.training.conftest import PROMPTS, share_of_vowels

AT = """
from groupwise.records import Finding, Severity

def at(history, facts, *, step=5):
    "Critical at one step of the run."
    if history.step != step:
        return []
    return [Finding(check="at", kind="there", severity=Severity.CRITICAL, first_step=step, last_step=step,
                    summary="it is that step", evidence={}, causes=(), remedies=())]
"""


def sections(place: Path, step: int = 5, **rule: Any) -> dict[str, Any]:
    (place / "ill.py").write_text(AT)
    name = f"{place / 'ill.py'}:at"
    action = {"do": "rollback", "learning_rate": 0.5, "beta": 2.0, **rule}
    return {
        "training": {"steps": 8, "learning_rate": 1e-3},
        "objective": {"kl": {"beta": 0.1}},
        "checkpoint": {"every_steps": 2, "every_minutes": None},
        # Alone: a tiny model that knows nothing is cut off all the time, and no checkpoint of it would be healthy.
        "health": {
            "off": registry.names(CHECKS),
            "add": [name],
            "thresholds": {name: {"step": step}},
            "actions": {name: action},
        },
    }


def made(folder: Path, tree: dict[str, Any]) -> Run:
    base = {
        "model": {"name": "tiny"},
        "rollout": {"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 8},
        "run": {"dir": str(folder), "sinks": [], "save_model": True},
    }
    inputs = read_inputs(
        load({**base, **tree}), rewards=[share_of_vowels], train=[{"prompt": p} for p in PROMPTS]
    )
    return assemble(inputs, console=Console(quiet=True))


def resumed(folder: Path, name: str) -> Run:
    loaded, again = open_run(folder, checkpoint=name)
    inputs = read_inputs(loaded, rewards=[share_of_vowels], train=[{"prompt": p} for p in PROMPTS])
    return assemble(inputs, console=Console(quiet=True), resumed=again)


def test_weights_and_moments_go_back_and_the_rest_goes_on(tmp_path: Path) -> None:
    run = made(tmp_path / "run", sections(tmp_path))
    seen: dict[int, dict[str, Any]] = {}
    plain = run.temperature.begin

    def begin(step: int, **given: Any) -> float:
        seen[step] = {
            "weights": [p.detach().clone() for p in run.optimizer.parameters],
            "moments": {k: v["exp_avg"].clone() for k, v in run.optimizer.state()["moments"].items()},
            "order": run.order.state(),
        }
        return plain(step, **given)

    run.temperature.begin = begin  # type: ignore[method-assign]
    train(run)
    # Step 5 is found ill, and the last healthy checkpoint is of step 4: step 6 begins as step 5 began.
    for before, after in zip(seen[4]["weights"], seen[5]["weights"], strict=True):
        assert torch.equal(before, after)
    assert seen[4]["moments"].keys() == seen[5]["moments"].keys()
    assert all(torch.equal(seen[4]["moments"][k], seen[5]["moments"][k]) for k in seen[4]["moments"])
    # The data goes on: step 6 has the prompts after those of step 5.
    assert seen[5]["order"] != seen[4]["order"]
    lines = {int(line["step"]): line for line in read_metrics(run.folder.metrics_file)}
    assert sorted(lines) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert lines[5]["health/rolled_back_to"] == 4
    assert [lines[s]["health/actions_count"] for s in sorted(lines)] == [0, 0, 0, 0, 1, 0, 0, 0]
    assert [lines[s]["training/learning_rate"] for s in (5, 6, 8)] == [1e-3, 5e-4, 5e-4]
    assert [lines[s]["kl/beta"] for s in (5, 6, 8)] == [0.1, 0.2, 0.2]
    [taken] = read_actions(run.folder.health_file)
    assert (taken.step, taken.to_step, dict(taken.factors)) == (5, 4, {"learning_rate": 0.5, "beta": 2.0})
    # The two batches are of other prompts or other random numbers, so that nothing is sampled twice.
    texts = [
        [r.text for g in read_rollouts(run.folder.rollout_file(s)) for r in g.group.rollouts_G]
        for s in (5, 6)
    ]
    assert texts[0] != texts[1]
    shown = "\n".join(diagnose(run.folder.path).lines())
    assert "rollback after step 5" in shown
    assert diagnose(run.folder.path).events == tuple(read_findings(run.folder.health_file))


def test_it_is_exact_from_every_kind_of_checkpoint_it_may_be_gone_on_with_from(tmp_path: Path) -> None:
    rule = {"checkpoint": {"every_steps": 2, "every_minutes": None, "keep_last": 20}}
    whole = made(tmp_path / "whole", sections(tmp_path) | rule)
    train(whole)
    expected = left_behind(whole.folder.path)
    places = [path.name for _, path in saved_checkpoints(whole.folder.checkpoints_dir)]
    # One is written right behind the rollback, at step 5.
    assert places == [
        "step-000000",
        "step-000002",
        "step-000004",
        "step-000005",
        "step-000006",
        "step-000008",
    ]
    # The last, the one behind the rollback, the one that was gone back to, and the first.
    for name in (places[5], places[3], places[2], places[0]):
        run = resumed(whole.folder.path, name)
        train(run)
        assert differing(left_behind(whole.folder.path), expected) == [], name


def test_what_it_goes_back_to_does_not_depend_on_checkpoints_by_the_clock(tmp_path: Path) -> None:
    seldom = made(tmp_path / "a", sections(tmp_path))
    often = made(
        tmp_path / "b",
        sections(tmp_path) | {"checkpoint": {"every_steps": 2, "every_minutes": 1e-9, "keep_last": 1}},
    )
    train(seldom)
    train(often)
    assert differing(left_behind(seldom.folder.path), left_behind(often.folder.path)) == []


def test_at_the_last_step_the_model_that_is_saved_is_the_healthy_one(tmp_path: Path) -> None:
    back = made(tmp_path / "back", sections(tmp_path, step=8))
    train(back)
    short = sections(tmp_path, step=100)
    short["training"]["steps"] = 6
    plain = made(tmp_path / "short", short)
    train(plain)
    file = "model/model.safetensors"
    assert (back.folder.path / file).read_bytes() == (plain.folder.path / file).read_bytes()


def test_the_start_is_healthy_too(tmp_path: Path) -> None:
    run = made(tmp_path / "run", sections(tmp_path, step=1))
    first = [p.detach().clone() for p in run.optimizer.parameters]
    kept: list[list[torch.Tensor]] = []
    plain = run.temperature.begin

    def begin(step: int, **given: Any) -> float:
        kept.append([p.detach().clone() for p in run.optimizer.parameters])
        return plain(step, **given)

    run.temperature.begin = begin  # type: ignore[method-assign]
    train(run)
    assert all(torch.equal(a, b) for a, b in zip(first, kept[1], strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, kept[2], strict=True))


def test_with_an_adapter_and_a_critic(tmp_path: Path) -> None:
    tree = sections(tmp_path)
    tree |= {
        "lora": {"rank": 4},
        "objective": {"preset": "ppo", "kl": {"beta": 0.1}},
        "critic": {"learning_rate": 1e-3},
    }
    run = made(tmp_path / "run", tree)
    assert run.critic is not None
    seen: list[Any] = []
    plain = run.temperature.begin

    def begin(step: int, **given: Any) -> float:
        assert run.critic is not None
        seen.append({k: v.clone() for k, v in run.critic.state()["weights"].items()})
        return plain(step, **given)

    run.temperature.begin = begin  # type: ignore[method-assign]
    train(run)
    assert all(torch.equal(seen[4][k], seen[5][k]) for k in seen[4])
    assert not all(torch.equal(seen[5][k], seen[6][k]) for k in seen[5])


def test_a_damaged_checkpoint_is_not_gone_back_to(tmp_path: Path) -> None:
    run = made(tmp_path / "run", sections(tmp_path))
    plain = run.temperature.begin

    def begin(step: int, **given: Any) -> float:
        if step == 4:
            (run.folder.checkpoints_dir / "step-000004" / "weights.safetensors").write_bytes(b"")
        return plain(step, **given)

    run.temperature.begin = begin  # type: ignore[method-assign]
    train(run)
    assert read_actions(run.folder.health_file)[0].to_step == 2
