"""Operations and bytes by hand, on devices whose rates make seconds of them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import load
from groupwise.workbench.planning.devices import Device, Layout
from groupwise.workbench.planning.duration import REACHED, generate_seconds, stages_of, train_seconds
from groupwise.workbench.planning.settings import Setting, setting_of
from groupwise.workbench.planning.shapes import shape_of

ONE = Layout(gpus=1, nodes=1)
ENDLESS = 1e30
COUNTING = Device(  # a second for each operation; everything else takes no time
    name="counts",
    kind="cpu",
    memory=ENDLESS,
    bfloat16_flops=None,
    float32_flops=1 / REACHED["cpu"].products,
    bandwidth=ENDLESS,
    link=ENDLESS,
)
MOVING = replace(COUNTING, float32_flops=ENDLESS, bandwidth=1 / REACHED["cpu"].reading)
# The tiny model: B = 2 layers x (2 x 64 x 64 + 2 x 64 x 32 + 3 x 64 x 128) = 73,728; V D = 366 x 64 = 23,424.
# 2 prompts of 10 and 8 responses of 5 are one pass of S = 52 tokens and M = 40 predictions. Pairs of tokens:
# 2 x 10 x 10 / 2 + 8 x 4 x (10 + 4 / 2) = 100 + 384 = 484.
FORWARD = 2 * 52 * 73_728 + 4 * 484 * 64 * 2
HEAD = 2 * 40 * 23_424


def made(tree: dict[str, Any] | None = None, device: Device = COUNTING, layout: Layout = ONE) -> Setting:
    config = load(
        {
            "model": "tiny",
            "rollout": {"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 5},
            "objective": {"kl": {"beta": 0}},
            **(tree or {}),
        }
    ).config
    return setting_of(config, shape_of(config.model, Path.cwd()), device, layout, prompt_tokens=10)


@pytest.mark.parametrize(
    ("tree", "operations"),
    [
        ({}, 3 * FORWARD + 4 * HEAD),
        ({"lora": {"rank": 4}}, 2 * FORWARD + 3 * HEAD),
        ({"training": {"gradient_checkpointing": True}}, 4 * FORWARD + 4 * HEAD),
        ({"objective": {"kl": {"beta": 0.1}}}, 4 * FORWARD + 5 * HEAD),
        ({"training": {"updates_per_batch": 3}}, 9 * FORWARD + 12 * HEAD),
        # Old log-probs by the trainer, before the first of two updates.
        (
            {"training": {"updates_per_batch": 2}, "objective": {"kl": {"beta": 0}, "old_source": "trainer"}},
            7 * FORWARD + 9 * HEAD,
        ),
    ],
)
def test_operations_of_training(tree: dict[str, Any], operations: int) -> None:
    assert train_seconds(made(tree), COUNTING, ONE) == pytest.approx(operations)


def test_the_optimiser_moves_28_bytes_a_weight() -> None:
    assert train_seconds(made(), MOVING, ONE) == pytest.approx(28 * 97_472)


def test_each_new_token_takes_the_longest_of_three() -> None:
    # Products alone: the prompts' 2 x 20 x 73,728 + 2 x 64 x 2 x 2 x 100; then five times 8 rows through layers and
    # head, 2 x 8 x 97,152, and keys 4 x 64 x 2 x (8 rows reach (20 + 8 x 2.5) / 8 = 5 tokens each).
    prompts = 2 * 20 * 73_728 + 2 * 64 * 2 * 2 * 100
    each = 2 * 8 * (73_728 + 23_424) + 4 * 64 * 2 * 8 * 5
    assert generate_seconds(made(), COUNTING) == pytest.approx(prompts + 5 * each)
    # Bytes alone: weights in float32, and keys and values of 40 tokens, 2 x 32 x 2 x 4 each.
    moved = 4 * (73_728 + 23_424) + 512 * 40
    assert generate_seconds(made(), MOVING) == pytest.approx(5 * moved)
    # Starting kernels alone.
    fast = replace(COUNTING, float32_flops=ENDLESS)
    assert generate_seconds(made(), fast) == pytest.approx(5 * 2 * REACHED["cpu"].layer_seconds)


def test_twice_the_samplers_halve_the_products() -> None:
    setting = made()
    assert generate_seconds(setting, COUNTING, 2) == pytest.approx(generate_seconds(setting, COUNTING) / 2)


def test_what_processes_exchange() -> None:
    linked = replace(COUNTING, float32_flops=ENDLESS, link=1.0)
    two = Layout(gpus=2, nodes=1)
    # A ring of two: 2 x 1/2 x 4 bytes of each weight.
    assert train_seconds(made(layout=two), linked, two) == pytest.approx(4 * 97_472)
    # Divided: in the one pass 1/2 x (2 x 4 + 4) bytes.
    tree = {"distributed": {"strategy": "fsdp2"}}
    assert train_seconds(made(tree, layout=two), linked, two) == pytest.approx(6 * 97_472)


def test_stages() -> None:
    stages = stages_of(made(), COUNTING, ONE, reward_seconds=7.0)
    assert stages.reward == 7.0
    assert stages.push == 0.0
    linked = replace(COUNTING, link=1.0)
    assert stages_of(made(), linked, ONE, apart=True).push == 2 * 97_472
