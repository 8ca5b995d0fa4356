"""What is printed, and that the switches are what they say."""

from typing import Any

import pytest

from groupwise.config import load
from groupwise.workbench.planning.answer import Answer, Request, candidates, plan
from groupwise.workbench.planning.devices import Layout, card


def ask(tree: dict[str, Any], gpu: str, gpus: int = 1, nodes: int = 1, **given: Any) -> Answer:
    return plan(
        Request(
            loaded=load(tree),
            device=card(gpu),
            layout=Layout(gpus=gpus, nodes=nodes),
            prompt_tokens=given.get("prompt_tokens", 256),
            new_tokens=given.get("new_tokens"),
            reward_seconds=given.get("reward_seconds", 0.0),
        )
    )


SEVEN = {"model": "Qwen/Qwen2.5-7B-Instruct"}


def test_seven_billion_with_lora_on_24_gb_fits_with_checkpointing_and_bfloat16() -> None:
    answer = ask(SEVEN | {"lora": {"rank": 16}}, "rtx4090")
    assert not answer.fits
    assert [switch.name for switch in answer.switches if switch.saves] == [
        "training.gradient_checkpointing=true",
        "model.dtype=bfloat16",
    ]
    changed = load(load(SEVEN | {"lora": {"rank": 16}}), [w for s in answer.switches for w in s.words])
    again = ask(changed.config.model_dump(mode="json"), "rtx4090")
    assert again.fits
    assert again.peak == pytest.approx(answer.switches[-1].peak)
    assert again.switches == ()


def test_seven_billion_in_full_on_two_cards_of_80_gb_does_not_fit_even_divided() -> None:
    answer = ask(SEVEN | {"distributed": {"strategy": "fsdp2"}}, "a100", gpus=2)
    assert not answer.fits
    # Divided by two, weights, gradients, optimiser and reference are (4 + 4 + 8 + 4) x 7.6e9 / 2 = 70.9 GiB, and
    # sampling puts 28.4 GiB of weights together: no activations are needed to be above 80.
    assert answer.peak > 99 * 2**30
    assert answer.switches[-1].words[0] == "lora.rank=16"
    assert answer.switches[-1].peak < 80 * 2**30
    # On four: (4 + 4 + 8 + 4) x 7.6e9 / 4 = 35.5 GiB, and 28.4 put together.
    assert any("4 such devices hold it" in line for line in answer.lines)


def test_small_models_fit_and_nothing_is_tried() -> None:
    answer = ask({"model": "smollm2-135m"}, "h200", gpus=8, nodes=4)
    assert answer.fits
    assert answer.switches == ()
    text = "\n".join(answer.lines)
    assert "it fits, with" in text
    assert "8 x H200, 140.4 GiB on each of 4 nodes" in text


def test_what_is_too_large_for_any_switch_is_told() -> None:
    answer = ask({"model": "meta-llama/Llama-3.1-70B"}, "t4")
    assert not answer.fits
    assert any("none of them is enough" in line for line in answer.lines)
    for before, after in zip(answer.switches, answer.switches[1:], strict=False):
        assert after.peak <= before.peak
    assert any("no number of such devices up to 64" in line for line in answer.lines)
    shared = next(switch for switch in answer.switches if switch.name == "memory.reference=cpu")
    assert shared.saves is None
    assert "adapter off and takes no memory" in shared.why_not


def test_candidates_are_in_the_order_that_costs_least_first() -> None:
    names = [words[0].split("=")[0] for words in candidates(load({}), Layout(gpus=2, nodes=1))]
    assert list(dict.fromkeys(names)) == [
        "training.gradient_checkpointing",
        "distributed.strategy",
        "lora.rank",
        "model.dtype",
        "memory.quantise",
        "memory.reference",
        "training.micro_batch_tokens",
        "rollout.cache_megabytes",
        "rollout.group_size",
    ]
    used = {"training": {"gradient_checkpointing": True, "micro_batch_tokens": 256}, "lora": {}}
    left = [words[0].split("=")[0] for words in candidates(load(used), Layout(gpus=1, nodes=1))]
    assert not {"training.gradient_checkpointing", "lora.rank", "training.micro_batch_tokens"} & set(left)


def test_seconds_and_pipeline_are_in_the_text() -> None:
    text = "\n".join(ask(SEVEN, "h200", gpus=8, reward_seconds=2.0, new_tokens=100).lines)
    assert "rewards 2 s" in text
    assert "with responses of 100 tokens" in text
    assert "against 8 devices that sample and train in turn" in text


def test_a_table_row_for_every_part_that_is_there() -> None:
    lines = ask(SEVEN | {"memory": {"reference": "cpu"}}, "h200").lines
    table = [line.split("  ")[0] for line in lines[lines.index("") + 1 :]]
    for part in ("weights", "optimiser", "gradients", "reference", "activations", "keys and values"):
        assert part in table
    assert "critic" not in table


def test_a_server_samples_on_devices_of_its_own() -> None:
    """No keys and values here; a step is longer by handing over, and with overlap as long as its longer half."""
    own = ask(SEVEN, "h200")
    turns = ask(SEVEN | {"rollout": {"engine": "vllm"}}, "h200")
    ahead = ask(SEVEN | {"rollout": {"engine": "vllm", "overlap": 1}}, "h200")
    keys = [line for line in own.lines if line.startswith("keys and values")]
    assert len(keys) == 1
    assert not any(line.startswith("keys and values") for line in turns.lines)
    text = "\n".join(ahead.lines)
    assert "with a vLLM server on 1 more such device, 1 ahead; its memory is not counted above" in text
    assert turns.stages.push == pytest.approx(2 * 7_615_616_512 / card("h200").link)
    said = {name: _step(answer) for name, answer in {"turns": turns, "ahead": ahead}.items()}
    stages = ahead.stages
    assert said["turns"] == pytest.approx(stages.total, rel=0.01)
    assert said["ahead"] == pytest.approx(max(stages.generate, stages.train) + stages.push, rel=0.01)


def _step(answer: Answer) -> float:
    line = next(line for line in answer.lines if line.startswith("a step"))
    return float(line.split()[2])
