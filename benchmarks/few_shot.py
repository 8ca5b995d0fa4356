"""What the untrained model does when it is shown how: writes docs/results/few_shot.md.

The demo's held-out sums, greedy, with solved sums from its training data as earlier turns of the chat. A reply is right
when the last number of its first line is, cut off or not, so this is kinder than the demo's own measure.

python benchmarks/few_shot.py
"""

import json
import re
import tempfile
import time
from pathlib import Path

from groupwise.config import load
from groupwise.workbench.evaluation import evaluate_model

ROOT = Path(__file__).parent.parent
DATA = ROOT / "examples/first_run"
NEW_TOKENS = 20


def first_line(completions: list, answer: list[str], **columns: object) -> list[float]:
    lines = [c[0]["content"].strip().partition("\n")[0].replace(",", "") for c in completions]
    return [float(re.findall(r"\d+", line)[-1:] == [a]) for line, a in zip(lines, answer, strict=True)]


def rows(file: str) -> list[tuple[int, int, str]]:
    lines = [json.loads(line) for line in (DATA / file).read_text().splitlines()]
    return [(*(int(n) for n in re.findall(r"\d+", line["prompt"])), line["answer"]) for line in lines]


def accuracy(shown: int, folder: Path) -> float:
    """Share of held-out sums that are right after so many solved ones, as earlier turns of the chat."""
    question = "What is {} + {}? Answer briefly."
    examples = [
        turn
        for a, b, c in rows("train.jsonl")[:shown]
        for turn in (
            {"role": "user", "content": question.format(a, b)},
            {"role": "assistant", "content": f"{a} + {b} = {c}"},
        )
    ]
    file = folder / f"{shown}.jsonl"
    with file.open("w") as out:
        for a, b, c in rows("held_out.jsonl"):
            asked = {"role": "user", "content": question.format(a, b)}
            out.write(json.dumps({"prompt": [*examples, asked], "answer": c}) + "\n")
    config = load(
        {
            "model": "smollm2-135m",
            "prompts": {"held_out": str(file)},
            "rewards": [{"name": f"{Path(__file__).resolve()}:first_line"}],
            "rollout": {"max_new_tokens": NEW_TOKENS},
        }
    )
    return evaluate_model(config).metrics["eval/pass@1"]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = {shown: accuracy(shown, Path(folder)) for shown in (0, 4)}
    table = "\n".join(f"| {shown} | {share:.1%} |" for shown, share in found.items())
    (ROOT / "docs/results/few_shot.md").write_text(
        f"""# The untrained model, shown how

SmolLM2-135M-Instruct on the first run's 200 held-out sums, greedy, {NEW_TOKENS} new tokens, with solved sums from the
training data as earlier turns of the chat ("a + b = c"). Right is a reply whose first line ends in the right number,
cut off or not. Written by `python benchmarks/few_shot.py` on {time.strftime("%Y-%m-%d")}.

| solved sums shown | right |
|---|---|
{table}

What [training](first_run.md) reaches above this is more than eliciting a form of reply.
"""
    )


if __name__ == "__main__":
    main()
