"""Runs the demo with several seeds and writes docs/results/first_run.md, its curve, and the README's block.

python benchmarks/first_run.py --seeds 0 1 2
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parent.parent
CONFIG = ROOT / "examples/first_run/config.yaml"
RESULTS = ROOT / "docs/results"
WINDOW = 5


def run(seed: int, folder: Path) -> dict:
    """One run of the demo as a user starts it, and its numbers."""
    command = [sys.executable, "-m", "groupwise", "train", str(CONFIG)]
    command += [f"run.seed={seed}", f"run.dir={folder}", "run.save_model=false"]
    subprocess.run(command, check=True)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rewards = [line["reward/mean"] for line in lines if "reward/mean" in line]
    held_out = [line["eval/pass@1"] for line in lines if "eval/pass@1" in line]
    training = sum(line["time/step_seconds"] - line.get("time/evaluate_seconds", 0) for line in lines[1:])
    return {
        "seed": seed,
        "rewards": rewards,
        "first": sum(rewards[:WINDOW]) / WINDOW,
        "last": sum(rewards[-WINDOW:]) / WINDOW,
        "before": held_out[0],
        "after": held_out[-1],
        "seconds": training,
        "memory": max(line.get("memory/peak_rss_mb", 0) for line in lines) / 1000,
    }


def draw(runs: list[dict], file: Path) -> None:
    """Reward per step as dots, its moving average as a line, held-out pass@1 in the legend."""
    figure, axes = plt.subplots(figsize=(7, 3.2))
    for i, result in enumerate(runs):
        rewards, color = result["rewards"], f"C{i}"
        steps = range(1, len(rewards) + 1)
        average = [sum(rewards[max(0, k - WINDOW) : k]) / len(rewards[max(0, k - WINDOW) : k]) for k in steps]
        axes.plot(steps, rewards, ".", color=color, alpha=0.35, markersize=4)
        label = f"seed {result['seed']}: held-out {result['before']:.0%} to {result['after']:.0%}"
        axes.plot(steps, average, color=color, label=label)
    axes.set(xlabel="step", ylabel=f"reward (line: mean of {WINDOW} steps)", ylim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="lower right")
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})


def write(runs: list[dict]) -> None:
    """The page of results and the README's block."""
    seeds = " ".join(str(r["seed"]) for r in runs)
    rows = [
        f"| {r['seed']} | {r['first']:.3f} | {r['last']:.3f} | {r['before']:.1%} | {r['after']:.1%} | "
        f"{r['seconds'] / 60:.1f} | {r['memory']:.1f} |"
        for r in runs
    ]
    table = "\n".join(
        [
            f"| seed | reward, first {WINDOW} steps | reward, last {WINDOW} steps | held-out pass@1 before | after | "
            "minutes of training | peak memory, GB |",
            "|---|---|---|---|---|---|---|",
            *rows,
        ]
    )
    steps = len(runs[0]["rewards"])
    page = f"""# The first run

SmolLM2-135M-Instruct learns to add two numbers: `examples/first_run/`, all weights, {steps} steps of 6 prompts x 16
rollouts, on two CPU cores. Held out are 200 sums that are never trained on, either way round; a reply passes when it
ends by itself and its last number is right. Written by `python benchmarks/first_run.py --seeds {seeds}` on
{time.strftime("%Y-%m-%d")}.

![reward per step](first_run.svg)

{table}

Part of the gain is a habit of replying in a form that ends: before training, a right answer that is cut off counts as a
failure. [few_shot.md](few_shot.md) says what the untrained model does when it is shown how. The minutes depend on the
machine; the other columns repeat on the same one.
"""
    (RESULTS / "first_run.md").write_text(page)
    low, high = min(r["after"] for r in runs), max(r["after"] for r in runs)
    before = runs[0]["before"]
    block = (
        f"![reward per step](docs/results/first_run.svg)\n\n"
        f"Held-out accuracy went from {before:.0%} to between {low:.0%} and {high:.0%} with {len(runs)} seeds, in "
        f"{min(r['seconds'] for r in runs) / 60:.0f} to {max(r['seconds'] for r in runs) / 60:.0f} minutes "
        "([numbers](docs/results/first_run.md), `make first-run`)."
    )
    readme = (ROOT / "README.md").read_text()
    start, end = readme.index("<!-- demo -->") + len("<!-- demo -->"), readme.index("<!-- end -->")
    (ROOT / "README.md").write_text(f"{readme[:start]}\n{block}\n{readme[end:]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    seeds = parser.parse_args().seeds
    with tempfile.TemporaryDirectory() as folder:
        runs = [run(seed, Path(folder) / str(seed)) for seed in seeds]
    RESULTS.mkdir(parents=True, exist_ok=True)
    draw(runs, RESULTS / "first_run.svg")
    write(runs)


if __name__ == "__main__":
    main()
