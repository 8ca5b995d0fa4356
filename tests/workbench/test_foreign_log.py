"""`groupwise health` on logs of TRL and verl, in the shapes that these write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.cli.main import run as command
from groupwise.errors import DataError
from groupwise.records.metrics_file import METRICS
from groupwise.workbench.foreign_log import TRL, VERL, diagnose_log, translated

ROOT = Path(__file__).parents[2]


def trl(step: int, **more: Any) -> dict[str, Any]:
    """A line of `log_history`, healthy."""
    return {
        "epoch": step / 100,
        "step": step,
        "loss": 0.01,
        "grad_norm": 0.5,
        "learning_rate": 1e-6,
        "num_tokens": 1000.0 * step,
        "reward": 0.3 + 0.004 * step,
        "reward_std": 0.4,
        "rewards/accuracy/mean": 0.3 + 0.004 * step,
        "rewards/accuracy/std": 0.4,
        "frac_reward_zero_std": 0.1,
        "kl": 0.002 * step,
        "entropy": 1.2,
        "completions/mean_length": 120.0,
        "completions/clipped_ratio": 0.02,
        "clip_ratio/low_mean": 0.001,
        "clip_ratio/high_mean": 0.002,
        **more,
    }


def verl(step: int, **more: Any) -> dict[str, Any]:
    """A line of verl's file logger, healthy."""
    data = {
        "training/global_step": step,
        "critic/score/mean": 0.3 + 0.004 * step,
        "critic/rewards/mean": 0.2,
        "actor/entropy": 1.2,
        "actor/kl_loss": 0.002 * step,
        "actor/grad_norm": 0.5,
        "actor/lr": 1e-6,
        "actor/ppo_kl": 0.0001,
        "response_length/mean": 120.0,
        "response_length/clip_ratio": 0.02,
        **more,
    }
    return {"step": step, "data": data}


def state(place: Path, history: list[dict[str, Any]]) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps({"global_step": len(history), "log_history": history}, indent=1))
    return place


def json_lines(place: Path, lines: list[dict[str, Any]]) -> Path:
    place.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return place


def board(place: Path, lines: list[dict[str, Any]]) -> Path:
    from torch.utils.tensorboard import SummaryWriter

    writer: Any = SummaryWriter(str(place))
    for line in lines:
        for name, value in line.items():
            if name not in ("step", "epoch"):
                writer.add_scalar(
                    name if "/" in name and name.startswith("eval/") else f"train/{name}", value, line["step"]
                )
    writer.close()
    return place


WRITERS: dict[str, Callable[[Path, bool], Path]] = {
    "trainer_state": lambda place, ill: state(
        place / "trainer_state.json", [trl(s, **_ill(s, ill)) for s in range(1, 41)]
    ),
    "json lines": lambda place, ill: json_lines(
        place / "log.jsonl", [trl(s, **_ill(s, ill)) for s in range(1, 41)]
    ),
    "tensorboard": lambda place, ill: board(place / "events", [trl(s, **_ill(s, ill)) for s in range(1, 41)]),
    "verl": lambda place, ill: json_lines(
        place / "verl.jsonl", [verl(s, **({"actor/kl_loss": 0.1 * s} if ill else {})) for s in range(1, 41)]
    ),
}


def _ill(step: int, ill: bool) -> dict[str, Any]:
    return {"kl": 0.1 * step} if ill else {}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_kl_that_runs_away_is_named_in_every_shape(tmp_path: Path, writer: str) -> None:
    found = diagnose_log(WRITERS[writer](tmp_path, True))
    assert found.steps == 40
    first = next(event for event in found.events if event.finding.check == "kl_runaway")
    assert first.finding.evidence["kl/token_mean"] > 0.8
    # 0.1 nats more with each step: 0.8 is passed at step 9 at the earliest.
    assert 8 <= first.step <= 20


@pytest.mark.parametrize("writer", WRITERS)
def test_a_healthy_log_is_left_in_peace(tmp_path: Path, writer: str) -> None:
    found = diagnose_log(WRITERS[writer](tmp_path, False))
    assert [event for event in found.events if event.finding.severity != "info"] == []
    notes = "\n".join(found.notes)
    assert "not judged, since the log lacks what they look at: " in notes
    assert "stale_rollouts (sampler/lag_updates_mean)" in notes
    assert "kl_runaway" not in notes
    unknown = "actor/ppo_kl" if writer == "verl" else "num_tokens"
    assert unknown in notes


def test_names_become_ours() -> None:
    lines, unknown = translated(
        [
            (2, {"reward": 0.5, "rewards/a/b/mean": 1.0, "strange": 3, "text": "x", "flag": True}),
            (1, {"reward": 0.25}),
            (2, {"eval_reward": 0.75, "grad_norm": "NaN"}),
        ]
    )
    assert [line["step"] for line in lines] == [1, 2]
    assert lines[1]["reward/mean"] == 0.5
    assert lines[1]["reward/part/a.b/mean"] == 1.0
    assert lines[1]["eval/reward_mean"] == 0.75
    assert lines[1]["grad/norm"] != lines[1]["grad/norm"]
    assert unknown == ["strange"]


def test_of_two_names_for_the_same_the_first_counts_and_data_sets_are_averaged() -> None:
    logged = {
        "critic/rewards/mean": 0.1,
        "critic/score/mean": 0.5,
        "val-core/gsm8k/acc/mean@8": 0.5,
        "val-core/math/acc/mean@8": 0.25,
    }
    for names in (logged, dict(reversed(logged.items()))):
        lines, _ = translated([(1, names)])
        assert lines == [{"step": 1, "reward/mean": 0.5, "eval/pass@1": pytest.approx(0.375)}]


def test_the_last_checkpoint_of_a_folder(tmp_path: Path) -> None:
    for step in (90, 100):
        state(tmp_path / f"checkpoint-{step}" / "trainer_state.json", [trl(s) for s in range(1, step + 1)])
    assert diagnose_log(tmp_path).steps == 100
    state(
        tmp_path / "trainer_state.json",
        [trl(s) for s in range(1, 111)] + [{"step": 110, "train_runtime": 9.0, "train_loss": 1.0}],
    )
    assert diagnose_log(tmp_path).steps == 110


def test_a_torn_last_line_is_said(tmp_path: Path) -> None:
    path = WRITERS["json lines"](tmp_path, False)
    path.write_text(path.read_text()[:-30])
    found = diagnose_log(path)
    assert found.steps == 39
    assert any("the last line was cut short" in note for note in found.notes)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no metric that is known here (it has no numbers at all)"),
        ("{}", "entry 1: it has no step"),
        ("[1, 2]", "entry 1: it is no object"),
        ('{"step": 1, "what": 2.0}\n', "has no metric that is known here (it has what)"),
        ('{"step": 1, "reward": 1.0}\nnonsense\n{"step": 2}\n', "line 2: not a line of JSON"),
        ('{"reward": 1.0}\n{"reward": 2.0}\n', "entry 1: it has no step"),
        ('{"log_history": [3]}', "entry 1: it is no object"),
        ("\x00\x01", "not a line of JSON"),
    ],
)
def test_what_is_no_log_is_one_sentence(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    if text == "\x00\x01":
        path.write_text(text + "\n")
    with pytest.raises(DataError) as caught:
        diagnose_log(path)
    assert why in str(caught.value)


def test_a_folder_without_a_log(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no trainer_state\.json, no TensorBoard events and no \.jsonl"):
        diagnose_log(tmp_path)
    for name in ("a", "b"):
        json_lines(tmp_path / f"{name}.jsonl", [trl(1)])
    with pytest.raises(DataError, match=r"more than one \.jsonl; name the log itself"):
        diagnose_log(tmp_path)


def test_the_command_ends_with_one_when_it_is_critical(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["health", str(WRITERS["trainer_state"](tmp_path / "ill", True))]) == 1
    assert "kl_runaway" in capsys.readouterr().out
    assert command(["health", str(WRITERS["trainer_state"](tmp_path / "well", False))]) == 0


def test_every_name_stands_for_one_of_ours_and_in_the_page() -> None:
    page = (ROOT / "docs" / "foreign_logs.md").read_text(encoding="utf-8")
    for theirs, ours in (*TRL.items(), *VERL.items()):
        assert ours in METRICS
        assert f"| `{theirs}` | `{ours}` |\n" in page
    assert page.count("\n| `") == len(TRL) + len(VERL)
