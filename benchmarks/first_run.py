"""Runs the demo with several seeds and writes docs/results/first_run.md, its curve, and the README's block.

python benchmarks/first_run.py --seeds 0 1 2
python benchmarks/first_run.py --from runs/0 runs/1     # the page anew, from runs that have ended
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import matplotlib
import yaml

matplotlib.use("svg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parent.parent
CONFIG = ROOT / "examples/first_run/config.yaml"
RESULTS = ROOT / "docs/results"
WINDOW = 5


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run folder says of its run."""

    seed: int
    rewards: list[float]
    """Mean reward of each step."""
    before: float
    """Held-out pass@1 before training."""
    after: float
    seconds: float
    """Of training, without evaluation."""
    memory: float
    """Peak, in GiB."""
    prompts_per_step: int
    group_size: int
    held_out: int
    """Prompts that pass@1 is measured on."""
    cores: int
    """That the process could use."""
    day: str

    @property
    def first(self) -> float:
        return sum(self.rewards[:WINDOW]) / len(self.rewards[:WINDOW])

    @property
    def last(self) -> float:
        return sum(self.rewards[-WINDOW:]) / len(self.rewards[-WINDOW:])

    @property
    def setting(self) -> tuple[int, ...]:
        """What all runs of one page have to share."""
        return (len(self.rewards), self.prompts_per_step, self.group_size, self.held_out, self.cores)


def run(seed: int, folder: Path) -> Path:
    """One run of the demo as a user starts it."""
    command = [sys.executable, "-m", "groupwise", "train", str(CONFIG)]
    subprocess.run(
        [*command, f"run.seed={seed}", f"run.dir={folder}", "run.save_model=false"],
        check=True,
    )
    return folder


def read(folder: Path) -> Result:
    """The numbers of a finished run."""
    config = yaml.safe_load((folder / "config.yaml").read_text())
    manifest = json.loads((folder / "manifest.json").read_text())
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["step"] > 0]
    passed = [line["eval/pass@1"] for line in lines if "eval/pass@1" in line]
    if not steps or len(passed) < 2:
        sys.exit(f"{folder}: the run has not ended, or was not measured before and after; leave it out")
    rows = (Path(config["run"]["base"]) / config["prompts"]["held_out"]).read_text().splitlines()
    count = sum(bool(row.strip()) for row in rows)
    return Result(
        seed=config["run"]["seed"],
        rewards=[line["reward/mean"] for line in steps],
        before=passed[0],
        after=passed[-1],
        seconds=sum(line["time/step_seconds"] - line.get("time/evaluate_seconds", 0) for line in steps),
        memory=max(line.get("memory/peak_rss_mb", 0) for line in lines) / 1024,
        prompts_per_step=config["rollout"]["prompts_per_step"],
        group_size=config["rollout"]["group_size"],
        held_out=min(count, config["evaluate"]["prompts"] or count),
        cores=manifest["platform"]["cores"],
        day=f"{datetime.fromtimestamp(os.path.getmtime(folder / 'metrics.jsonl')):%Y-%m-%d}",
    )


def draw(runs: list[Result], file: Path) -> None:
    """Reward per step as dots, its moving average as a line, held-out pass@1 in the legend."""
    figure, axes = plt.subplots(figsize=(7, 3.2))
    for i, result in enumerate(runs):
        rewards, color = result.rewards, f"C{i}"
        steps = range(1, len(rewards) + 1)
        average = [sum(rewards[max(0, k - WINDOW) : k]) / len(rewards[max(0, k - WINDOW) : k]) for k in steps]
        axes.plot(steps, rewards, ".", color=color, alpha=0.35, markersize=4)
        label = f"seed {result.seed}: held-out {result.before:.0%} to {result.after:.0%}"
        axes.plot(steps, average, color=color, label=label)
    axes.set(xlabel="step", ylabel=f"reward (line: mean of {WINDOW} steps)", ylim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="lower right")
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)


def page(runs: list[Result]) -> str:
    """The page of results."""
    one = runs[0]
    rows = [
        f"| {r.seed} | {r.first:.3f} | {r.last:.3f} | {r.before:.1%} | {r.after:.1%} | {r.seconds / 60:.1f} | "
        f"{r.memory:.1f} |"
        for r in runs
    ]
    table = "\n".join(
        [
            f"| seed | reward, first {WINDOW} steps | reward, last {WINDOW} steps | held-out pass@1 before | after | "
            "minutes of training | peak memory, GiB |",
            "|---|---|---|---|---|---|---|",
            *rows,
        ]
    )
    cores = f"{one.cores} CPU core{'s' if one.cores > 1 else ''}"
    days = " and ".join(dict.fromkeys(r.day for r in runs))
    seeds = " ".join(str(r.seed) for r in runs)
    return f"""# The first run

SmolLM2-135M-Instruct learns to add two numbers: `examples/first_run/`, all weights, {len(one.rewards)} steps of
{one.prompts_per_step} prompts x {one.group_size} rollouts, on {cores}. Held out are {one.held_out} sums that are never
trained on, either way round; a reply passes when it ends by itself and its last number is right. The runs ended on
{days}: `python benchmarks/first_run.py --seeds {seeds}`.

![reward per step](first_run.svg)

{table}

Part of the gain is a habit of replying in a form that ends: before training, a right answer that is cut off counts as a
failure. [few_shot.md](few_shot.md) says what the untrained model does when it is shown how. The minutes depend on the
machine; the other columns repeat on the same one, apart from the memory.
"""


def block(runs: list[Result]) -> str:
    """What the README says of it."""
    seeds = f"with {len(runs)} seeds" if len(runs) > 1 else "with one seed"
    return (
        "![reward per step](docs/results/first_run.svg)\n\n"
        f"Held-out accuracy went from {between([f'{r.before:.0%}' for r in runs], [r.before for r in runs])} to "
        f"{between([f'{r.after:.0%}' for r in runs], [r.after for r in runs])} {seeds}, in "
        f"{between([f'{r.seconds / 60:.0f}' for r in runs], [r.seconds for r in runs])} minutes of training "
        "([numbers](docs/results/first_run.md), `make first-run`)."
    )


def between(shown: list[str], values: list[float]) -> str:
    """The smallest and the largest as they are shown, or the one that all are shown as."""
    low, high = shown[values.index(min(values))], shown[values.index(max(values))]
    return low if low == high else f"between {low} and {high}"


def write(folders: list[Path]) -> None:
    """The page, the curve and the README's block, from the folders of finished runs."""
    runs = sorted((read(folder) for folder in folders), key=lambda r: r.seed)
    if len({r.setting for r in runs}) > 1:
        sys.exit("the runs differ in steps, batch, held-out data or cores, so they do not belong on one page")
    RESULTS.mkdir(parents=True, exist_ok=True)
    draw(runs, RESULTS / "first_run.svg")
    (RESULTS / "first_run.md").write_text(page(runs))
    readme = (ROOT / "README.md").read_text()
    start, end = readme.index("<!-- demo -->") + len("<!-- demo -->"), readme.index("<!-- end -->")
    (ROOT / "README.md").write_text(f"{readme[:start]}\n{block(runs)}\n{readme[end:]}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--keep", type=Path, metavar="DIR", help="put the run folders there, one per seed")
    parser.add_argument(
        "--from",
        type=Path,
        nargs="+",
        metavar="DIR",
        dest="folders",
        help="no new run: read these run folders",
    )
    given = parser.parse_args()
    if given.folders:
        write(given.folders)
    elif given.keep:
        write([run(seed, given.keep / str(seed)) for seed in given.seeds])
    else:
        with tempfile.TemporaryDirectory() as folder:
            write([run(seed, Path(folder) / str(seed)) for seed in given.seeds])


if __name__ == "__main__":
    main()
