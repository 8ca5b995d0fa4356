"""`groupwise plan` as it is typed, and ten wrong inputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Said


def test_a_plan_of_a_published_card(project: Path, groupwise: Callable[..., Said]) -> None:
    (project / "config.yaml").write_text("model: Qwen/Qwen2.5-0.5B-Instruct\n")
    said = groupwise("plan", "config.yaml", "--gpu", "h200", "--gpus", "8", "--nodes", "4")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("model       Qwen/Qwen2.5-0.5B-Instruct: 0.494 billion weights")
    assert "it fits" in said.out


def test_what_does_not_fit_ends_with_1(project: Path, groupwise: Callable[..., Said]) -> None:
    (project / "config.yaml").write_text("model: Qwen/Qwen2.5-72B\n")
    said = groupwise("plan", "config.yaml", "--gpu", "l4")
    assert (said.code, said.err) == (1, "")
    assert "it does not fit" in said.out


def test_this_machine_needs_no_card(project: Path, groupwise: Callable[..., Said]) -> None:
    said = groupwise("plan", "config.yaml", "--gpu", "cpu", "--prompt-tokens", "20")
    assert (said.code, said.err) == (0, "")
    assert "this machine's processor" in said.out
    assert "prompts of 20 tokens, responses of 4" in said.out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--gpu", "h1000"), "no card is called 'h1000'; did you mean h100?"),
        (("--gpus", "0"), "'--gpus': Input should be greater than or equal to 1"),
        (("--nodes", "-1"), "'--nodes': Input should be greater than or equal to 1"),
        (("--gpus", "two"), "'--gpus'"),
        (("--prompt-tokens", "0"), "'--prompt-tokens': Input should be greater than or equal to 1"),
        (
            ("--gpu", "cpu", "--prompt-tokens", "600"),
            "prompts of 600 tokens with responses of 4 exceed the context of tiny",
        ),
        (("--new-tokens", "5"), "--new-tokens is 5, more than rollout.max_new_tokens, 4"),
        (("--reward-seconds", "-1"), "'--reward-seconds': Input should be greater than or equal to 0"),
        (("--gpu", "cpu", "method=dpo"), "method"),
        (("--gpu", "cpu", "model.name=./gone"), "there is no"),
        (("--gpu", "cpu", "memory.quantise=nf4"), "4-bit weights take no gradient; add lora"),
        (("--gpu", "cpu", "lora.target_modules=[nowhere]"), "no layer of tiny is called so"),
        (("--cards", "h100"), "no option --cards"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    words: tuple[str, ...], why: str, project: Path, groupwise: Callable[..., Said]
) -> None:
    said = groupwise("plan", "config.yaml", *words)
    assert said.code == 2
    assert why in said.err
    assert said.err.count("\n") == 1
