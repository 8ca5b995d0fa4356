"""Dynamic sampling and a curriculum against plain sampling, on mixed difficulty: writes docs/results/recipes.md.

A tiny model of random weights is asked for n small letters: a response passes when its first n characters are
lower-case letters. n is 1 to 8, and a quarter of the training rows can never pass, as rows with a wrong answer cannot.
Held-out rows are of every n. All arms have the same model, prompts, seeds and learning rate; they differ by the recipe
alone. Accuracy is compared at equal numbers of generated tokens, those of replaced groups included.

python benchmarks/recipes.py [--seeds 0 1 2 3 4] [--steps 48] [--folder runs/recipes]

Finished runs in the folder are not made again.
"""

import argparse
import json
import re
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from groupwise.evaluate.intervals import bootstrap_interval, student_interval

ROOT = Path(__file__).parent.parent
LEVELS = (1, 2, 3, 4, 5, 6, 7, 8)
ARMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "dynamic sampling": {"rollout": {"max_redraws": 3}},
    "curriculum": {"prompts": {"curriculum": {"difficulty": [0.6, 0.95], "steps": 40, "again_after": 12}}},
    "both": {
        "rollout": {"max_redraws": 3},
        "prompts": {"curriculum": {"difficulty": [0.6, 0.95], "steps": 40, "again_after": 12}},
    },
}

Curve = list[tuple[float, float]]
"""(generated tokens so far, held-out accuracy), one pair per evaluation."""


def rows(held_out: bool) -> list[dict[str, Any]]:
    """Prompts of every level; of the training rows a fourth can never pass."""
    made = []
    for level in LEVELS:
        for k in range(4 if held_out else 12):
            text = f"Write {level} small letters. ({'test' if held_out else 'no.'} {k})"
            made.append({"prompt": text, "letters": level, "possible": held_out or k % 4 != 3})
    return made


def passes(completions: list[str], letters: list[int], possible: list[bool], **columns: Any) -> list[float]:
    """1 when the first n characters are lower-case letters and the row can pass at all."""
    return [
        float(can and re.match(rf"[a-z]{{{n}}}", text) is not None)
        for text, n, can in zip(completions, letters, possible, strict=True)
    ]


def configuration(arm: str, seed: int, steps: int, folder: Path) -> dict[str, Any]:
    tree: dict[str, Any] = {
        "model": "tiny",
        "objective": {"preset": "grpo", "kl": {"beta": 0.0}},
        "rollout": {"prompts_per_step": 8, "group_size": 8, "max_new_tokens": 8},
        "training": {"steps": steps, "learning_rate": 3e-3},
        "evaluate": {"every_steps": 4, "temperature": 1.0, "samples": 4},
        "checkpoint": {"save": False},
        "run": {
            "dir": str(folder),
            "seed": seed,
            "sinks": [],
            "save_rollouts": False,
            "save_model": False,
            "overwrite": True,
        },
    }
    for section, values in ARMS[arm].items():
        tree[section] = {**tree.get(section, {}), **values}
    return tree


def curve_of(lines: Sequence[dict[str, float]]) -> Curve:
    """Accuracy against all tokens that were generated for training until then."""
    tokens, curve = 0.0, []
    for line in lines:
        tokens += line.get("tokens/generated", 0.0)
        if "eval/pass@1" in line:
            curve.append((tokens, line["eval/pass@1"]))
    return curve


def accuracy_at(curve: Curve, tokens: float) -> float:
    """Along straight lines between evaluations; the last one's beyond the end."""
    return float(np.interp(tokens, [t for t, _ in curve], [a for _, a in curve]))


def tokens_to(curve: Curve, accuracy: float) -> float:
    """Tokens at which the accuracy is first reached, along straight lines; infinite when it never is."""
    for (t0, a0), (t1, a1) in pairwise(curve):
        if a0 >= accuracy:
            return t0
        if a1 >= accuracy:
            return t0 + (t1 - t0) * (accuracy - a0) / (a1 - a0)
    return float("inf")


def area(curve: Curve, until: float) -> float:
    """Mean accuracy over tokens from 0 until so many, along straight lines."""
    grid = np.linspace(0.0, until, 201)
    values = np.interp(grid, [t for t, _ in curve], [a for _, a in curve])
    return float((values[1:] + values[:-1]).mean() / 2)


def by_update(curve: Curve) -> float:
    """Mean accuracy over the evaluations, which come at equal numbers of updates whatever they cost in tokens."""
    return float(np.mean([accuracy for _, accuracy in curve]))


def table(curves: dict[str, list[Curve]]) -> str:
    """One line per arm, each the mean over seeds with its interval; differences are paired by seed."""
    plain = curves["plain"]
    budget = min(curve[-1][0] for runs in curves.values() for curve in runs)
    goals = [accuracy_at(curve, budget) for curve in plain]
    lines = []
    for arm, runs in curves.items():
        at_budget = [accuracy_at(curve, budget) for curve in runs]
        areas = [area(curve, budget) for curve in runs]
        more = [area(curve, budget) - area(other, budget) for curve, other in zip(runs, plain, strict=True)]
        shares = [
            min(tokens_to(curve, goal), curve[-1][0]) / budget
            for curve, goal in zip(runs, goals, strict=True)
        ]
        never = sum(tokens_to(curve, goal) == float("inf") for curve, goal in zip(runs, goals, strict=True))
        against = "" if arm == "plain" else student_interval(more).text("+.3f")
        ends, heights, updates = (
            bootstrap_interval(values).text(".3f")
            for values in (at_budget, areas, [by_update(curve) for curve in runs])
        )
        lines.append(
            f"| {arm} | {ends} | {heights} | {against} | {bootstrap_interval(shares).text('.2f')} "
            f"| {never} of {len(runs)} | {updates} |"
        )
    return "\n".join(lines)


def verdict(curves: dict[str, list[Curve]]) -> str:
    """One sentence per arm: better, worse or within noise, by the interval of the paired difference in area."""
    budget = min(curve[-1][0] for runs in curves.values() for curve in runs)
    sentences = []
    for arm, runs in curves.items():
        if arm == "plain":
            continue
        more = [area(c, budget) - area(p, budget) for c, p in zip(runs, curves["plain"], strict=True)]
        found = student_interval(more)
        word = "better than" if found.low > 0 else "worse than" if found.high < 0 else "within noise of"
        sentences.append(f"{arm} is {word} plain sampling")
    text = "; ".join(sentences)
    return text[0].upper() + text[1:] + "."


def run(arm: str, seed: int, steps: int, folder: Path) -> Curve:
    """The curve of one run; of an earlier one where the folder has it."""
    from groupwise.config import load
    from groupwise.training.inputs import read_inputs
    from groupwise.training.loop import train
    from groupwise.training.setup import assemble

    place = folder / f"{arm.replace(' ', '_')}-{seed}-{steps}"
    kept = place / "curve.json"
    if kept.is_file():
        return [(t, a) for t, a in json.loads(kept.read_text())]
    loaded = load(configuration(arm, seed, steps, place))
    inputs = read_inputs(loaded, rewards=[passes], train=rows(False), held_out=rows(True))
    started = time.perf_counter()
    curve = curve_of(train(assemble(inputs, console=Console(quiet=True))).metrics)
    kept.write_text(json.dumps(curve))
    print(f"{arm}, seed {seed}: {curve[-1][1]:.3f} in {time.perf_counter() - started:.0f} s", flush=True)
    return curve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs/recipes")
    given = parser.parse_args()
    by_seed = {seed: {arm: run(arm, seed, given.steps, given.folder) for arm in ARMS} for seed in given.seeds}
    curves = {arm: [by_seed[seed][arm] for seed in given.seeds] for arm in ARMS}
    budget = min(curve[-1][0] for runs in curves.values() for curve in runs)
    command = f"python benchmarks/recipes.py --seeds {' '.join(map(str, given.seeds))} --steps {given.steps}"
    (ROOT / "docs/results/recipes.md").write_text(
        f"""# Dynamic sampling and a curriculum against plain sampling

`{command}`, on {time.strftime("%Y-%m-%d")}.

A model of 0.1 M random weights is asked for n = 1 to 8 lower-case letters and has 8 tokens; a quarter of the training
rows can never pass. {given.steps} steps of 8 prompts x 8 responses, learning rate 3e-3, GRPO without a KL; accuracy is
that of 4 samples to each of {len(rows(True))} held-out rows, every 4 steps. Tokens are all that training generated,
those of replaced groups included; arms are compared up to {budget:.0f} tokens, which all of them reached. Mean over
{len(given.seeds)} seeds with a bootstrap interval of 95 % over seeds; the difference is paired by seed, its interval
Student's.

| arm | accuracy at the end | mean accuracy on the way | more than plain | tokens to plain's end | never | per update |
|---|---|---|---|---|---|---|
{table(curves)}

At equal numbers of generated tokens:
{verdict(curves)}

The fifth column is a share of the tokens up to which arms are compared; a run that never gets to plain's last accuracy
counts with all that it used. `never` counts
these. The last column is the mean accuracy at equal numbers of updates, whatever they cost in tokens.
"""
    )
    print(table(curves))
    print(verdict(curves))


if __name__ == "__main__":
    main()
