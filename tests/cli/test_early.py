"""What can be found wrong without a model is told before torch is imported, which takes seconds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

WRONG: list[tuple[list[str], str]] = [
    (["train", "none.yaml"], "none.yaml"),
    (["train", "config.yaml", "training.stepz=2"], "did you mean training.steps?"),
    (["train", "config.yaml", "prompts.train=none.jsonl"], "there is no file"),
    (["train", "config.yaml", "prompts.columns.prompt=question"], "no column 'question'"),
    (["train", "config.yaml", "rewards.0.columns={answer: gold}"], "needs the column 'gold'"),
    (
        ["train", "config.yaml", "rewards=[exact]", "rewards.0.columns={answer: gold}"],
        "needs the column 'gold'",
    ),
    (["train", "config.yaml", "rewards=['rewrad.py:letters']"], "did you mean reward.py:letters?"),
    (["train", "config.yaml", "rewards=['reward.py:leters']"], "did you mean 'letters'?"),
    (["train", "config.yaml", "model=./none"], "there is no"),
    (["train", "config.yaml", "model.tokenizer=./none"], "model.tokenizer './none'"),
    (["train", "config.yaml", "run.dir=full"], "full"),
    (["train", "--resume", "none"], "none"),
    (["eval", "config.yaml", "prompts.held_out=none.jsonl"], "there is no file"),
    (["eval", "config.yaml", "rewards=['none.py:letters']"], "there is no file"),
    (["eval", "config.yaml", "model=./none"], "there is no"),
    (["eval", "none"], "none"),
    (["compare", "config.yaml", "--vary", "objectiv=dapo"], "did you mean objective?"),
    (
        ["compare", "config.yaml", "--vary", "objective=dr_grpo", "prompts.train=none.jsonl"],
        "there is no file",
    ),
    (["compare", "config.yaml", "--vary", "objective=dr_grpo", "model=./none"], "there is no"),
    (["compare", "config.yaml", "--vary", "objective=dr_grpo", "rewards=['reward.py:x']"], "has no 'x'"),
]
PROGRAM = """
import contextlib, io, json, sys
from groupwise.cli.main import run
for words in json.load(sys.stdin):
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = run(words)
    print(json.dumps([code, said.getvalue(), sorted({"torch", "transformers"} & set(sys.modules))]))
"""


def test_what_is_wrong_is_told_without_torch(project: Path) -> None:
    (project / "full").mkdir()
    (project / "full" / "notes.txt").write_text("mine")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps([words for words, _ in WRONG]),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(WRONG)
    wrong = [
        (words, why, code, said, loaded)
        for (words, why), (code, said, loaded) in zip(WRONG, found, strict=True)
        if (code, loaded) != (2, []) or why not in said
    ]
    assert not wrong
