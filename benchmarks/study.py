"""Eight objectives on one task with the same prompts and seeds: writes docs/results/study.md and its curves.

A tiny transformers model is first taught, by plain supervised training, to sort six digits, and stopped while most
of its answers are wrong. Each objective then trains that model by reward alone: 1 for the right order, 0 otherwise.

python -m benchmarks.study                 # all of it, or what is left of it
python -m benchmarks.study --at-most 1     # one run; several such commands share the work
"""

import argparse
import json
import random
import time
from pathlib import Path

import torch
import yaml

from benchmarks.facts import machine, versions
from groupwise.model.reading import quiet
from groupwise.model.tiny import build_tiny
from groupwise.workbench.compare import compare, drawn, plan
from groupwise.workbench.comparison import BASE, Comparison

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
PRESETS = ("grpo", "dr_grpo", "dapo", "rloo", "reinforce_plus_plus", "gspo", "remax", "ppo")
TAUGHT = 0.15
"""Share of right answers, sampled at temperature 1, at which the supervised training stops."""
HELD_OUT = 200
UPDATES = ("training.updates_per_batch=1", "training.mini_batches=4")
"""For all, since presets with 16 updates per batch would move 16 times as far at one learning rate."""
CONFIG = {
    "model": {"name": "model"},
    "prompts": {"train": "train.jsonl", "held_out": "held_out.jsonl"},
    "rewards": ["exact"],
    "objective": "grpo",
    "rollout": {"prompts_per_step": 8, "group_size": 16, "max_new_tokens": 8},
    "training": {"steps": 50, "learning_rate": 1.25e-4},
    "evaluate": {"temperature": 1.0, "samples": 2},
}


def numbers() -> tuple[list[str], list[str]]:
    """Six digits each, to train on and held out; no number is in both."""
    chosen = [f"{i:06}" for i in random.Random(0).sample(range(10**6), 10_000)]
    return chosen[HELD_OUT:], chosen[:HELD_OUT]


def row(number: str) -> dict[str, str]:
    return {"prompt": f"{number}=", "answer": "".join(sorted(number))}


def teach(folder: Path) -> float:
    """Supervised training from random weights until `TAUGHT` is reached on numbers that are not held out."""
    train, _ = numbers()
    model, tokenizer = build_tiny(0)
    ids = torch.tensor(
        [
            tokenizer(row(n)["prompt"] + row(n)["answer"])["input_ids"] + [tokenizer.eos_token_id]
            for n in train
        ]
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    order = torch.Generator().manual_seed(0)
    right = 0.0
    for step in range(1, 5001):
        batch = ids[torch.randint(len(ids), (128,), generator=order)]
        logits = model(batch[:, :-1]).logits[:, 6:]  # what follows "=" is predicted
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 7:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            right = _right(model, ids[:200])
            if right >= TAUGHT:
                break
    print(f"taught for {step} steps: {right:.1%} right at temperature 1")
    with quiet():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return right


def _right(model: torch.nn.Module, ids: torch.Tensor) -> float:
    """The mean chance of the whole right answer."""
    with torch.no_grad():
        logprobs = model(ids[:, :-1]).logits[:, 6:].log_softmax(-1)
    return float(logprobs.gather(2, ids[:, 7:, None]).sum((1, 2)).exp().mean())


def prepare(folder: Path) -> Path:
    """The model, the data and the configuration; gives the last."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "model" / "config.json").exists():
        teach(folder / "model")
    for name, chosen in zip(("train", "held_out"), numbers(), strict=True):
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row(n))}\n" for n in chosen))
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(CONFIG, sort_keys=False))
    return config


def page(found: Comparison, seeds: int) -> str:
    runs = [outcome for outcomes in found.outcomes.values() for outcome in outcomes]
    facts = machine()
    start = sum(o.curve[0][1] for o in found.outcomes[BASE]) / len(found.outcomes[BASE])
    training, rollout = CONFIG["training"], CONFIG["rollout"]
    steps, rate = training["steps"], training["learning_rate"]
    sentences = "\n".join(f"- {sentence}" for sentence in found.sentences())
    return f"""# Eight objectives on one task

A model of 0.1 M weights is taught by supervision to sort six digits (`491750=` is answered by `014579`) until at least
{TAUGHT:.0%} of its sampled answers are right. Each preset then trains it with a reward of 1 for the right order and 0
otherwise: {steps} steps of {rollout["prompts_per_step"]} prompts x {rollout["group_size"]} responses, learning rate
{rate:g} and 4 updates per batch for all, {seeds} seeds; everything else is the preset's own, its KL leash included.
The base is `grpo`. Held out are {HELD_OUT} numbers that are never trained on; pass@1 is of two samples each at
temperature 1, {start:.1%} before training.

![held-out pass@1 by step](study.svg)

{found.table()}

{sentences}
- The learning rate and the number of updates are the same for all and were tuned for none, which favours presets that
  like them. A task of seven tokens with an exact reward says nothing of long answers.

The {len(runs)} runs took {sum(o.seconds for o in runs) / 60:.0f} minutes of one thread in all, evaluation left out, on
{facts["processor"]} ({facts["cores"]} cores, shared with other work). Written by `python -m benchmarks.study` on
{time.strftime("%Y-%m-%d")} with torch {versions("torch")["torch"]}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--at-most", type=int, default=None)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "study")
    given = parser.parse_args()
    torch.set_num_threads(1)
    config = prepare(given.folder)
    vary = [f"objective={','.join(PRESETS)}"]
    runs = plan(config, vary, seeds=given.seeds, folder=given.folder / "runs", overrides=UPDATES)
    found = compare(runs, metric="eval/pass@1", folder=given.folder / "runs", most=given.at_most)
    print(found.table())
    if sum(map(len, found.outcomes.values())) == found.wanted:
        (RESULTS / "study.md").write_text(page(found, given.seeds))
        (RESULTS / "study.svg").write_text(drawn(found))
        print(f"wrote {RESULTS / 'study.md'}")


if __name__ == "__main__":
    main()
