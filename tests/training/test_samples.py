"""Samples for people: what they hold, that no text breaks out of them, and that resuming gives the same files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from groupwise.records import Group, Verdict
from groupwise.training.samples import code, due, fenced, page
from tests.records.examples import two_groups

PARSER = MarkdownIt("commonmark")
HOSTILE = (
    "```\n# out\n```",
    "````\n`````\n<script>alert(1)</script>",
    "~~~\nx",
    "    indented\n\n# heading",
    "<img src=x onerror=alert(1)>",
    "[link](javascript:alert(1))",
    "\r# carriage\r\n```\r",
    "> quote\n- list\n---",
    "`" * 40,
    "",
)


def blocks(text: str) -> list[tuple[str, str]]:
    return [
        (token.type, token.content) for token in PARSER.parse(text) if token.content or token.type == "fence"
    ]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_fence_holds_whatever_stands_in_it(text: str) -> None:
    parsed = blocks(f"# Before\n\n{fenced(text)}\n\n# After\n")
    assert [kind for kind, _ in parsed] == ["inline", "fence", "inline"]
    # CommonMark reads each of \r\n, \r and \n as a line ending.
    assert parsed[1][1] == f"{text}\n".replace("\r\n", "\n").replace("\r", "\n")


@given(st.text(alphabet="`~#<>[]()\n\r ax|", max_size=60))
def test_no_text_breaks_out(text: str) -> None:
    assert [kind for kind, _ in blocks(f"a\n\n{fenced(text)}\n\nb")] == ["inline", "fence", "inline"]
    parsed = PARSER.parse(f"## {code(text)}, mean")
    assert [token.type for token in parsed] == ["heading_open", "inline", "heading_close"]
    inner = parsed[1].children or []
    assert [child.type for child in inner] == ["code_inline", "text"]
    assert inner[0].content.split() == text.split()


def group(rewards: list[float | None], text: str = "yes") -> Group:
    first = two_groups()[0].group
    rollout = first.rollouts_G[0]
    import dataclasses

    return Group(
        prompt=dataclasses.replace(first.prompt, id="a:1", text="Say yes."),
        rollouts_G=tuple(
            dataclasses.replace(rollout, group_index=i, text=f"{text} {i}") for i in range(len(rewards))
        ),
        verdicts_G=tuple(Verdict(reward=r, parts={"one": r}) for r in rewards),
    )


def test_best_middle_and_worst_of_each_group() -> None:
    text = page("Step 3, training batch", [group([0.5, None, 1.0, 0.0, 0.25])] * 6)
    tokens = len(two_groups()[0].group.rollouts_G[0].token_ids_T)
    # Sorted: 1.0, 0.5, 0.25, 0.0, none; the middle one of five is the third.
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert heads[:5] == [
        "# Step 3, training batch",
        "## ` a:1 `, mean reward 0.4375",
        f"### Rollout 2: reward 1, {tokens} tokens, cut off by the limit",
        f"### Rollout 4: reward 0.25, {tokens} tokens, cut off by the limit",
        f"### Rollout 1: no reward, {tokens} tokens, cut off by the limit",
    ]
    assert len(heads) == 1 + 4 * 4
    assert text.endswith("2 more are not in this file.\n")
    assert "```text\nSay yes.\n```" in text


def test_when_samples_are_due() -> None:
    assert [step for step in range(1, 24) if due(step, 10)] == [1, 10, 20]
    assert not any(due(step, None) for step in range(1, 24))


def test_a_run_writes_them_and_a_resumed_one_the_same(tmp_path: Path) -> None:
    import groupwise

    rows = [{"prompt": f"Say `{i}`.", "n": i} for i in range(4)]

    def letters(completions: list[str], **columns: Any) -> list[float]:
        return [sum(c.isalpha() for c in text) / max(len(text), 1) for text in completions]

    def tree(name: str) -> dict[str, Any]:
        return {
            "model": "tiny",
            "rollout": {"prompts_per_step": 2, "group_size": 3, "max_new_tokens": 4},
            "training": {"steps": 5, "learning_rate": 0.01},
            "evaluate": {"every_steps": 2, "pass_reward": 0.5},
            "checkpoint": {"every_steps": 2, "keep_last": 9},
            "run": {"dir": str(tmp_path / name), "sinks": [], "samples_every_steps": 2, "save_model": False},
        }

    def written(name: str) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted((tmp_path / name / "samples").iterdir())}

    given = {"rewards": [letters], "train": rows, "held_out": rows[:2]}
    groupwise.train(tree("whole"), **given)
    whole = written("whole")
    steps = [1, 2, 4]
    assert sorted(whole) == sorted(
        [f"step-{s:06d}.md" for s in steps] + [f"step-{s:06d}-held-out.md" for s in (0, 2, 4, 5)]
    )
    assert whole["step-000002-held-out.md"].startswith(b"# Step 2, held-out evaluation\n")
    assert b"### Rollout 0: reward " in whole["step-000004.md"]

    groupwise.train(tree("torn"), **given)
    import shutil

    for name in ("step-000004", "step-000005"):
        shutil.rmtree(tmp_path / "torn" / "checkpoints" / name, ignore_errors=True)
    (tmp_path / "torn" / "samples" / "step-000004.md").write_text("torn")
    groupwise.train(resume=tmp_path / "torn", **given)
    assert written("torn") == whole
