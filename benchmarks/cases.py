"""What one step of the comparison consists of."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.facts import ROOT


@dataclass(frozen=True, kw_only=True)
class Case:
    """Sizes of one step."""

    prompts: int
    """In a batch."""
    prompt_tokens: int
    """Of each, chat template included."""
    group: int
    """Rollouts per prompt."""
    new_tokens: int
    """Of each rollout, forced."""

    @property
    def rollouts(self) -> int:
        """In a batch."""
        return self.prompts * self.group

    @property
    def completion_tokens(self) -> int:
        """In a batch."""
        return self.rollouts * self.new_tokens

    @property
    def unique_tokens(self) -> int:
        """In a batch, each prompt counted once."""
        return self.prompts * self.prompt_tokens + self.completion_tokens


CASES = {
    "short": Case(prompts=8, prompt_tokens=46, group=8, new_tokens=32),
    "long": Case(prompts=4, prompt_tokens=512, group=8, new_tokens=128),
    "trial": Case(prompts=2, prompt_tokens=46, group=2, new_tokens=4),
}
"""`trial` only shows that everything runs."""


def prompts_of(tokenizer: Any, case: Case) -> list[str]:
    """Prompts of exactly the case's length, as text behind the chat template.

    School problems (examples/gsm8k), one behind the other as far as the length asks, each prompt beginning with
    another problem.
    """
    path = ROOT / "examples/gsm8k/data/train_2000.jsonl"
    rows = [json.loads(line)["question"] for line in path.read_text().splitlines()]
    found: list[str] = []
    for start in range(len(rows)):
        text = _of_length(tokenizer, " ".join(rows[start : start + 40]), case.prompt_tokens)
        if text is not None:
            found.append(text)
        if len(found) == case.prompts:
            return found
    raise ValueError(f"no {case.prompts} prompts of {case.prompt_tokens} tokens could be made")


def _of_length(tokenizer: Any, material: str, tokens: int) -> str | None:
    """The template around the beginning of the material, of so many tokens; None where no beginning gives that."""

    def render(content: str) -> str:
        message = [{"role": "user", "content": content}]
        return str(tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False))

    frame = len(tokenizer(render("")).input_ids)
    ids = tokenizer(material).input_ids
    for extra in (0, -1, 1, -2, 2):
        if not 0 < tokens - frame + extra <= len(ids):
            continue
        text = render(tokenizer.decode(ids[: tokens - frame + extra]).strip())
        if len(tokenizer(text).input_ids) == tokens:
            return text
    return None


def write_prompts(path: Path, prompts: list[str]) -> None:
    """As a file of rows that every side reads."""
    path.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))


def by_place(group: int) -> Any:
    """A reward that differs within every group for certain: the rollout's place in it, 0 to group - 1.

    With an even group no reward is the group's mean, so that no rollout has advantage 0 and none may be skipped.
    """

    def place(completions: list[Any], **columns: Any) -> list[float]:
        return [float(i % group) for i in range(len(completions))]

    return place
