"""Several ranks train what one trains: the same rollouts, gradients and metrics; and they end together."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from groupwise.errors import ConfigError, RankError
from groupwise.records.metrics_file import comparable, read_metrics
from groupwise.records.rollout_file import read_rollouts
from groupwise.training.distributed import ALONE, Ranks, launched, refuse_several
from tests.training.ranks import STEPS, errors, together, train_here, tree

GRADIENT = 1e-10
"""Norm of the difference over the norm, in float64, as long as the weights are the same."""
ROUNDED = 1e-6
"""The same where the order of summation has moved a last bit of the norms, which the model computes in float32."""
LATER = 1e-5
"""The same after updates: Adam divides by the size of a gradient, which lets last bits of a tiny one grow."""
METRIC, LAST_BITS = 1e-5, 1e-6
"""Relative and absolute; log-probs are kept in float32, where the last bit of 5 nats is 5e-7."""
SECONDS = 20.0
"""Within which the other ranks end when one has failed."""


def trained(place: Path, count: int, trouble: str = "", **sections: Any) -> Path:
    """The folder of a run of so many ranks."""
    place.mkdir(exist_ok=True)
    folder = place / f"run-{count}-{len(list(place.iterdir()))}"
    codes = together(count, train_here, tree(folder, **sections), trouble, place=place)
    assert codes == [0] * count, "\n".join(error["trace"] for error in errors(place).values())
    return folder


def compare(several: Path, one: Path, count: int, *, tolerance: float = GRADIENT) -> float:
    """Fail unless two runs are the same; the largest difference of a gradient before the first update, relative."""
    expected = torch.load(one / "gradients-0.pt", weights_only=True)
    worst = 0.0
    for number in range(count):
        found = torch.load(several / f"gradients-{number}.pt", weights_only=True)
        assert len(found) == len(expected) > 0
        for i, (mine, right) in enumerate(zip(found, expected, strict=True)):
            assert mine.shape == right.shape
            gap = float((mine - right).norm() / right.norm().clamp_min(1e-30))
            assert gap <= (tolerance if i == 0 else LATER), (i, gap)
            worst = gap if i == 0 else worst
    same_metrics(several, one)
    steps = sorted(path.name for path in (one / "rollouts").iterdir())
    assert steps == sorted(path.name for path in (several / "rollouts").iterdir())
    for step in steps:
        groups = [list(read_rollouts(folder / "rollouts" / step)) for folder in (several, one)]
        ids = [[r.token_ids_T.tolist() for g in of_run for r in g.group.rollouts_G] for of_run in groups]
        assert ids[0] == ids[1]
    return worst


def same_metrics(several: Path, one: Path) -> None:
    lines, rights = (read_metrics(folder / "metrics.jsonl") for folder in (several, one))
    assert len(lines) == len(rights) >= STEPS
    for line, right in zip(map(comparable, lines), map(comparable, rights), strict=True):
        for either in (line, right):  # how much is reused is each rank's own matter
            either.pop("tokens/reused", None)
        assert line.keys() == right.keys()
        for name, value in right.items():
            assert math.isclose(line[name], value, rel_tol=METRIC, abs_tol=LAST_BITS), (
                name,
                line[name],
                value,
            )


def same_model(several: Path, one: Path) -> None:
    saved, right = (load_file(folder / "model" / "model.safetensors") for folder in (several, one))
    assert saved.keys() == right.keys()
    for name in right:
        # Adam moves a weight by up to 1e-3 in each step whatever the size of its gradient, so where that is next to
        # nothing its rounding, which follows the shapes of each rank's products, moves the weight too.
        apart = (saved[name] - right[name]).abs()
        assert float(apart.max()) <= 2e-5, name
        assert float(apart.mean()) <= 1e-7, name


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The run of one process of a configuration, made once."""
    made: dict[str, Path] = {}

    def run(**sections: Any) -> Path:
        key = repr(sections)
        if key not in made:
            made[key] = trained(tmp_path_factory.mktemp("alone"), 1, **sections)
        return made[key]

    return run


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_two_ranks_train_as_one(strategy: str, alone: Callable[..., Path], tmp_path: Path) -> None:
    # Case j03.
    one = alone()
    several = trained(tmp_path, 2, distributed={"strategy": strategy})
    assert compare(several, one, 2) <= GRADIENT
    same_model(several, one)


VARIANTS: dict[str, dict[str, Any]] = {
    "ragged": {"rollout": {"prompts_per_step": 5}},
    "fewer groups than ranks": {"rollout": {"prompts_per_step": 1}, "training": {"mini_batches": 1}},
    "lora": {"lora": {"rank": 4}},
    "old from the trainer": {"objective": {"old_source": "trainer"}, "training": {"updates_per_batch": 2}},
    "checkpointed layers": {"training": {"gradient_checkpointing": True}},
    "batch statistics": {"objective": {"advantage": "batch_zscore", "aggregation": "token_mean"}},
    "kl in the reward": {"objective": {"preset": "rloo", "kl": {"beta": 0.05}}},
    "greedy": {"objective": {"preset": "remax", "kl": {"beta": 0.05}}},
    "a rollout at a time": {"rollout": {"group_size": 2}, "training": {"micro_batch_tokens": 16}},
}
RUNS = [
    ("ragged", "ddp"),
    ("ragged", "fsdp2"),
    ("fewer groups than ranks", "ddp"),
    ("fewer groups than ranks", "fsdp2"),
    ("lora", "fsdp2"),
    ("old from the trainer", "ddp"),
    ("checkpointed layers", "fsdp2"),
    ("batch statistics", "ddp"),
    ("kl in the reward", "fsdp2"),
    ("greedy", "ddp"),
    ("a rollout at a time", "fsdp2"),
]


@pytest.mark.long
@pytest.mark.parametrize(("variant", "strategy"), RUNS)
def test_four_ranks_train_as_one(
    variant: str, strategy: str, alone: Callable[..., Path], tmp_path: Path
) -> None:
    # Case j04: ranks with unequal numbers of values of unequal length, and with none, have the metrics of one process.
    one = alone(**VARIANTS[variant])
    several = trained(tmp_path, 4, **VARIANTS[variant], distributed={"strategy": strategy})
    compare(several, one, 4, tolerance=ROUNDED)
    same_model(several, one)


KL = {"beta": 0.05}
RECIPES: dict[str, dict[str, Any]] = {
    "dynamic sampling": {"rollout": {"group_size": 2, "max_redraws": 3}},
    "curriculum": {
        "prompts": {"curriculum": {"difficulty": [0.5, 1.0], "steps": 4, "mastered": 0.7, "again_after": 2}}
    },
    "filter": {"objective": {"filter": {"max_tokens": 5, "pattern": "[a-z]"}, "kl": KL}},
    "teaching": {"objective": {"teaching": {"text": " No.", "place": "end"}, "kl": KL}},
    "teaching in front": {
        "objective": {"teaching": {"text": " No.", "place": "start", "answer": "mask"}, "kl": KL}
    },
    "reference dropout": {"objective": {"kl": {**KL, "reference_dropout": 0.3}}},
    "reference dropout through an adapter": {
        "objective": {"kl": {**KL, "reference_dropout": 0.3}},
        "lora": {"rank": 4},
    },
    "confidence": {"rollout": {"confidence": {"threshold": 0.02, "redraws": 2}}},
    "overlong mask": {"objective": {"truncated": "mask", "kl": KL}},
    "overlong penalty": {"objective": {"truncated": "penalise", "overlong_buffer": 4, "kl": KL}},
    "length buckets": {
        "objective": {"advantage": {"name": "length_buckets", "of": "group_zscore", "factor": 1.5}, "kl": KL}
    },
}
TOGETHER: dict[str, Any] = {
    "rollout": {"group_size": 3, "max_redraws": 2, "confidence": {"threshold": 0.02, "redraws": 1}},
    "prompts": RECIPES["curriculum"]["prompts"],
    "objective": {
        "filter": {"max_tokens": 6},
        "teaching": {"text": " No.", "answer": "mask"},
        "truncated": "penalise",
        "overlong_buffer": 3,
        "kl": {**KL, "reference_dropout": 0.3},
    },
}
SAID_BY = {
    "dynamic sampling": "sampler/redraws",
    "curriculum": "curriculum/threshold",
    "filter": "filter/left_out_fraction",
    "teaching": "teaching/rollouts",
    "teaching in front": "teaching/rollouts",
    "together": "sampler/redraws",
}
"""A metric that is above 0 in some step where the recipe did something."""


@pytest.mark.parametrize(
    ("recipe", "strategy"),
    [
        pytest.param("together", "ddp"),
        pytest.param("together", "fsdp2", marks=pytest.mark.long),
        *(pytest.param(name, "fsdp2", marks=pytest.mark.long) for name in RECIPES),
        pytest.param("dynamic sampling", "ddp", marks=pytest.mark.long),
        pytest.param("teaching", "ddp", marks=pytest.mark.long),
    ],
)
def test_each_recipe_does_with_two_ranks_what_it_does_with_one(
    recipe: str, strategy: str, alone: Callable[..., Path], tmp_path: Path
) -> None:
    sections = {**RECIPES, "together": TOGETHER}[recipe]
    one = alone(trouble="right or wrong", **sections)
    several = trained(tmp_path, 2, "right or wrong", **sections, distributed={"strategy": strategy})
    compare(several, one, 2, tolerance=ROUNDED)
    same_model(several, one)
    if recipe in SAID_BY:
        assert max(line.get(SAID_BY[recipe], 0.0) for line in read_metrics(one / "metrics.jsonl")) > 0


@pytest.mark.long
def test_a_critic_is_shared_as_well(alone: Callable[..., Path], tmp_path: Path) -> None:
    sections = {"objective": {"preset": "ppo", "kl": {"beta": 0.05}}, "critic": {"learning_rate": 1e-3}}
    compare(trained(tmp_path, 2, **sections), alone(**sections), 2)


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_a_step_with_nothing_to_learn(strategy: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    config = tree(folder, distributed={"strategy": strategy}, objective={"kl": {"beta": 0.0}})
    assert together(2, train_here, config, "all alike", place=tmp_path) == [0, 0], errors(tmp_path)
    assert [line["grad/norm"] for line in read_metrics(folder / "metrics.jsonl")] == [0.0] * STEPS


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param((2, "fsdp2"), (1, "ddp"), marks=pytest.mark.long),
        pytest.param((1, "ddp"), (3, "fsdp2"), marks=pytest.mark.long),
        pytest.param((3, "fsdp2"), (2, "ddp"), marks=pytest.mark.long),
    ],
)
def test_a_run_goes_on_with_another_number_of_ranks(
    before: tuple[int, str], after: tuple[int, str], alone: Callable[..., Path], tmp_path: Path
) -> None:
    one = alone()
    folder = trained(
        tmp_path,
        before[0],
        distributed={"strategy": before[1]},
        training={"steps": 2},
        run={"save_model": False},
    )
    words = [f"training.steps={STEPS}", f"distributed.strategy={after[1]}", "run.save_model=true"]
    codes = together(after[0], train_here, {"resume": str(folder), "overrides": words}, place=tmp_path)
    assert codes == [0] * after[0], errors(tmp_path)
    same_metrics(folder, one)
    same_model(folder, one)


@pytest.mark.parametrize(
    ("trouble", "kinds"),
    [
        ("killed", {0: "RankError"}),
        pytest.param("bug", {0: "RankError", 1: "ZeroDivisionError"}, marks=pytest.mark.long),
        pytest.param("reward fails", {0: "RewardError", 1: "RewardError"}, marks=pytest.mark.long),
        pytest.param("other data", {0: "ConfigError", 1: "ConfigError"}, marks=pytest.mark.long),
    ],
)
def test_one_that_fails_ends_all(trouble: str, kinds: dict[int, str], tmp_path: Path) -> None:
    started = time.monotonic()
    codes = together(2, train_here, tree(tmp_path / "run"), trouble, place=tmp_path)
    assert time.monotonic() - started < SECONDS + 10  # of which the processes' own start takes a few
    assert None not in codes
    assert 0 not in codes
    found = errors(tmp_path)
    assert {number: error["kind"] for number, error in found.items()} == kinds
    told = [number for number, error in found.items() if not error["told"]]
    if trouble == "killed":
        assert "rank 0 of 2 ends, since it lost the others" in found[0]["sentence"]
        assert "--resume" in found[0]["sentence"]
    elif trouble in ("reward fails", "other data"):
        assert told == [0]
        assert found[0]["sentence"] == found[1]["sentence"]


@pytest.mark.long
def test_a_signal_to_one_ends_all_at_the_same_place(alone: Callable[..., Path], tmp_path: Path) -> None:
    one = alone()
    folder = tmp_path / "run"
    codes = together(2, train_here, tree(folder), "asked to end", place=tmp_path)
    assert codes == [2, 2]
    assert {error["kind"] for error in errors(tmp_path).values()} == {"Interrupted"}
    assert (folder / "checkpoints" / "step-000001-update-0001").is_dir()
    codes = together(2, train_here, {"resume": str(folder)}, place=tmp_path)
    assert codes == [0, 0], errors(tmp_path)
    same_metrics(folder, one)
    same_model(folder, one)


def test_one_process_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert launched() == 1
    assert ALONE.alone
    assert ALONE.first
    assert ALONE.gather(3) == [3]
    assert ALONE.from_first(lambda: 4) == 4
    gradient = torch.ones(2)
    ALONE.add_up([gradient])
    assert gradient.tolist() == [1.0, 1.0]
    assert not Ranks(0, 1, "fsdp2").sharded
    with pytest.raises(RuntimeError, match="gloo"), ALONE.contact():
        raise RuntimeError("gloo: alone, nobody can be lost")


def test_a_launcher_that_says_half_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "many")
    with pytest.raises(ConfigError, match="'many', which is not a number"):
        launched()
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="RANK is not set; start the processes with torchrun"):
        launched()
    for name, value in {"RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="method dpo trains in one process, and 2 were started"):
        refuse_several("method dpo")


def test_what_torch_says_is_told_without_its_places() -> None:
    theirs = RuntimeError(
        "[/x/gloo/pair.cc:5] Connection closed by peer [127.0.0.1]:3. This is typically ... GLHF!"
    )
    with (
        pytest.raises(
            RankError, match=r"lost the others \(Connection closed by peer \[127\.0\.0\.1\]:3\); the one"
        ),
        Ranks(1, 2, seconds=60).contact(),
    ):
        raise theirs
    with pytest.raises(RuntimeError, match="a bug"), Ranks(1, 2).contact():
        raise RuntimeError("a bug in a layer")
