import time

import pytest

from groupwise.rewards.completions import without_reasoning


@pytest.mark.parametrize(
    ("text", "behind"),
    [
        ("7", "7"),
        ("<think>8</think>7", "7"),
        ("8</think>7", "7"),  # the template wrote the opening mark
        ("<think>8</think>9<think>10</think>7", "7"),
        ("<Think >8</ think>7", "7"),
        ("<seed:think>8</seed:think>7", "7"),
        ("[THINK]8[/THINK]7", "7"),
        ("◁think▷8◁/think▷7", "7"),
        ("<|begin_of_thought|>8<|end_of_thought|>7", "7"),
        ("<|channel|>analysis<|message|>8<|end|><|start|>assistant<|channel|>final<|message|>7", "7"),
        ("<|channel|>final<|message|>7", "7"),
        ("<think><analysis>8</analysis>9</think>7", "7"),
        ("<think><analysis>8</analysis>7", None),  # another mark closes nothing
        ("<think>7", None),
        ("<think >7", None),
        ("[THINK]7", None),
        ("<|channel|>analysis<|message|>7", None),
        ("<think>8</think>7<think>9", None),
        ("f('<think>') is 7", "f('<think>') is 7"),  # only mentioned
        ("<thinker>7", "<thinker>7"),
    ],
)
def test_what_stands_behind_the_reasoning(text: str, behind: str | None) -> None:
    assert without_reasoning(text) == behind


def test_hostile_text_takes_little_time() -> None:
    began = time.process_time()
    for text in ("<think " * 50_000, "<think>" * 50_000, "</think>" * 50_000, "< " * 200_000, "<|" * 200_000):
        without_reasoning(text)
    assert time.process_time() - began < 5
