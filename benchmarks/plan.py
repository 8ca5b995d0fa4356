"""What `groupwise plan` predicts against what is measured: writes docs/results/plan.md.

python -m benchmarks.plan                     # thirteen processes, one after the other; about a quarter of an hour
python -m benchmarks.plan --points base full  # some of them; the others stay as they were measured
python -m benchmarks.plan --page              # only writes the page anew

Six configurations of the embedded model are fitted to: a process without a model gives the base, and one factor stands
for what the allocator holds beyond what it gave out. Six others, of another model, are not. The peak of a process is
its largest resident memory over two steps, after which the optimiser has its averages and every phase has been seen.
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import facts
from benchmarks.cases import Case
from benchmarks.facts import ROOT
from benchmarks.record import RESULTS, Record, read
from benchmarks.results import paragraph, table

PAGE = ROOT / "docs/results/plan.md"
FREE = "other-full-default"
"""The point `other-full` once more, as a process without `THRESHOLD` takes it; shown, and held to nothing."""
THRESHOLD = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
"""Has glibc give a freed tensor back. By itself it raises this size with what is freed, and then keeps tensors."""
BOUND = 0.15
"""How far a prediction may be from what is measured."""
GIB = 2**30
_STEPS = 2


@dataclass(frozen=True, kw_only=True)
class Point:
    """A configuration that is measured."""

    words: str
    """For people."""
    model: str
    """`embedded` or `other`."""
    case: Case
    """Sizes of its step."""
    tree: dict[str, Any]
    """Settings."""
    fitted: bool
    """The factor is fitted to it."""


_SMALL = Case(prompts=2, prompt_tokens=64, group=4, new_tokens=32)
_MIDDLE = Case(prompts=2, prompt_tokens=64, group=8, new_tokens=32)
_LONG = Case(prompts=2, prompt_tokens=64, group=4, new_tokens=128)
_LARGE = Case(prompts=4, prompt_tokens=64, group=8, new_tokens=48)
_LORA = {"lora": {"rank": 16}}
_CHECKPOINTING = {"training": {"gradient_checkpointing": True}}
_HALF = {"model": {"precision": "bfloat16"}}
POINTS = {
    "full": Point(words="full", model="embedded", case=_SMALL, tree={}, fitted=True),
    "lora": Point(words="LoRA", model="embedded", case=_MIDDLE, tree=_LORA, fitted=True),
    "checkpointing": Point(
        words="full, checkpointing", model="embedded", case=_MIDDLE, tree=_CHECKPOINTING, fitted=True
    ),
    "bf16": Point(words="full, bf16 products", model="embedded", case=_SMALL, tree=_HALF, fitted=True),
    "longer": Point(words="full, longer completions", model="embedded", case=_LONG, tree={}, fitted=True),
    "larger": Point(words="full, larger batch", model="embedded", case=_LARGE, tree={}, fitted=True),
    "other-full": Point(words="full", model="other", case=_MIDDLE, tree={}, fitted=False),
    "other-lora": Point(words="LoRA", model="other", case=_LONG, tree=_LORA, fitted=False),
    "other-checkpointing": Point(
        words="LoRA, checkpointing", model="other", case=_LARGE, tree=_CHECKPOINTING | _LORA, fitted=False
    ),
    "other-bf16": Point(words="full, bf16 products", model="other", case=_SMALL, tree=_HALF, fitted=False),
    "other-longer": Point(
        words="full, longer completions",
        model="other",
        case=replace(_LONG, new_tokens=256, prompt_tokens=128),
        tree={},
        fitted=False,
    ),
    "other-larger": Point(
        words="full, larger batch in passes of 1,024 tokens",
        model="other",
        case=replace(_LARGE, prompts=6),
        tree={"training": {"micro_batch_tokens": 1024}},
        fitted=False,
    ),
}
OTHER = {"architecture": "qwen2", "hidden": 768, "layers": 12, "context_tokens": 1024, "tied": False}
"""The second model: random weights, an architecture and sizes of its own. What it says has no effect on memory."""
SHOWN = (
    ("7B with LoRA on a card of 24 GB", ["lora.rank=16"], "rtx4090", 1),
    ("7B in full on two cards of 80 GB", ["distributed.strategy=fsdp2"], "a100", 2),
)
"""What the page shows of published cards and models: title, settings, card, how many."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--points", nargs="+", choices=["base", *POINTS, FREE], default=["base", *POINTS, FREE]
    )
    parser.add_argument("--threads", type=int, default=facts.machine()["cores"])
    parser.add_argument("--page", action="store_true", help="measure nothing")
    parser.add_argument("--fresh", action="store_true", help="forget earlier measurements")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        print(json.dumps(measured_here(given.child)))
        return
    if not given.page:
        measure(given)
    PAGE.write_text(page(read(RESULTS / "plan.json")))
    print(f"{PAGE} written")


def measure(given: argparse.Namespace) -> None:
    """Every point that is asked for and not held yet, in a process of its own."""
    identity = {"machine": facts.machine(), "threads": given.threads}
    record = Record("plan", identity, fresh=given.fresh)
    for name in given.points:
        if any(run["point"] == name for run in record.runs):
            continue
        point = "other-full" if name == FREE else name
        command = [sys.executable, "-m", "benchmarks.plan", "--child", point]
        env = facts.environment(given.threads) | ({} if name == FREE else THRESHOLD)
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{name} ended with code {done.returncode}:\n{done.stderr[-2000:]}")
        record.add(
            facts.moment()
            | {"point": name, "source": facts.source()}
            | json.loads(done.stdout.splitlines()[-1])
        )
        last = record.runs[-1]
        said = "" if name == "base" else f", predicted {predicted(point) / GIB:.2f}"
        print(f"{name}: {last['peak_memory_mb'] / 1024:.2f} GiB{said}", flush=True)


def measured_here(name: str) -> dict[str, Any]:
    """The peak of this process over two steps of a point; of `base`, with the libraries alone."""
    import peft  # noqa: F401

    from benchmarks.sides import ours

    if name == "base":
        return {"peak_memory_mb": facts.peak_memory_mb(), "versions": facts.versions(*ours.VERSIONS)}
    from benchmarks.cases import by_place, prompts_of, write_prompts
    from groupwise.config.model import ModelConfig
    from groupwise.model.load import load_tokenizer

    point = POINTS[name]
    with tempfile.TemporaryDirectory() as folder:
        tree = tree_of(point, Path(folder))
        tokenizer = load_tokenizer(ModelConfig(name=tree["model"]["name"]), base=Path.cwd())
        write_prompts(Path(tree["prompts"]["train"]), prompts_of(tokenizer, point.case))
        run = ours.assemble(
            tree,
            [],
            precision=tree["model"]["precision"],
            rewards=[by_place(point.case.group)],
            endless=True,
        )
        left = iter(range(_STEPS))
        seconds: list[float] = []
        ours.in_steps(
            run,
            lambda: {} if next(left, None) is not None else None,
            lambda took, step, flops: seconds.append(took),
        )
    return {"peak_memory_mb": facts.peak_memory_mb(), "seconds": seconds}


def tree_of(point: Point, folder: Path) -> dict[str, Any]:
    """The configuration of a point, with its model and its prompts in a folder."""
    name = "smollm2-135m"
    if point.model == "other":
        from groupwise.model.tiny import write_tiny

        name = str(write_tiny(folder / "model", **OTHER))
    case = point.case
    return {
        "model": {"name": name, "device": "cpu", "precision": "float32"} | point.tree.get("model", {}),
        "prompts": {"train": str(folder / "prompts.jsonl"), "shuffle": False},
        "rollout": {
            "prompts_per_step": case.prompts,
            "group_size": case.group,
            "max_new_tokens": case.new_tokens,
        },
        "training": {"steps": 1000} | point.tree.get("training", {}),
        "run": {"dir": str(folder / "run"), "sinks": [], "save_model": False},
        "checkpoint": {"save": False},
    } | ({"lora": point.tree["lora"]} if "lora" in point.tree else {})


@functools.cache
def phase(name: str) -> tuple[str, float]:
    """The worst phase of a point by the formulas alone, and its bytes."""
    from groupwise.config import load
    from groupwise.workbench.planning.devices import Device, Layout
    from groupwise.workbench.planning.memory import Overhead, memory_of
    from groupwise.workbench.planning.settings import setting_of
    from groupwise.workbench.planning.shapes import shape_of

    point = POINTS[name]
    device = Device(
        name="processor",
        kind="cpu",
        memory=float(facts.machine()["memory_gb"]) * GIB,
        bfloat16_flops=1.0 if facts.has_bfloat16() else None,
        float32_flops=1.0,
        bandwidth=1.0,
        link=1.0,
    )
    with tempfile.TemporaryDirectory() as folder:
        loaded = load(tree_of(point, Path(folder)))
        shape = shape_of(loaded.config.model, Path(folder))
        setting = setting_of(
            loaded.config, shape, device, Layout(gpus=1, nodes=1), prompt_tokens=point.case.prompt_tokens
        )
    memory = memory_of(setting, Overhead(base=0.0, factor=1.0))
    return memory.worst, memory.peak


def predicted(name: str) -> float:
    """Bytes, with the overhead that the package states."""
    from groupwise.workbench.planning.memory import OVERHEADS

    over = OVERHEADS["cpu"]
    return over.base + over.factor * phase(name)[1]


def fit(held: dict[str, Any]) -> dict[str, float]:
    """Base and factor from what was measured: the base as it is, the factor with the least square relative error."""
    peaks = {run["point"]: run["peak_memory_mb"] * 2**20 for run in held["runs"]}
    base = peaks["base"]
    pairs = [(phase(name)[1], peaks[name]) for name, p in POINTS.items() if p.fitted and name in peaks]
    # minimise sum ((base + f x - m) / m)^2: f = sum x (m - base) / m^2  /  sum x^2 / m^2
    factor = sum(x * (m - base) / m**2 for x, m in pairs) / sum(x * x / m**2 for x, m in pairs)
    return {"base": base, "factor": factor}


def page(held: dict[str, Any]) -> str:
    """The whole page."""
    from groupwise.workbench.planning.memory import OVERHEADS

    over = OVERHEADS["cpu"]
    rows, wrong = [], []
    peaks = {run["point"]: run["peak_memory_mb"] * 2**20 for run in held["runs"]}
    for name, point in POINTS.items():
        if name not in peaks:
            rows.append([point.model, point.words, _case(point.case), "", "", "not measured", "", ""])
            continue
        where, guessed = phase(name)[0], predicted(name)
        off = guessed / peaks[name] - 1
        wrong.append((point.fitted, abs(off)))
        cells = [f"{guessed / GIB:.2f}", f"{peaks[name] / GIB:.2f}", f"{off:+.1%}", where]
        use = "fitted" if point.fitted else "not fitted"
        rows.append([point.model, point.words, _case(point.case), use, *cells])
    parts = [
        "# `groupwise plan` against what is measured",
        paragraph(
            "Written by `python -m benchmarks.plan`; the formulas are those of [plan.md](../plan.md). Every row is a",
            "process of its own that trains two steps; its peak is the largest resident memory that the system",
            f"reports. Predictions may be off by {BOUND:.0%}.",
            "glibc by itself raises the size from which it maps memory anew to that of the largest tensor that was",
            "freed, up to 32 MB, and then keeps smaller ones; how much it keeps depends on the order of all that was",
            f"computed, so the processes are measured with {'='.join(next(iter(THRESHOLD.items())))}, which fixes it.",
            _kept(peaks),
        ),
        table(
            ["model", "configuration", "step", "", "predicted, GiB", "measured, GiB", "off", "phase"], rows
        ),
        _summary(wrong),
        _fitted(held, over),
        *(_shown(*each) for each in SHOWN),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _kept(peaks: dict[str, float]) -> str:
    if FREE not in peaks or "other-full" not in peaks:
        return ""
    fixed, free = peaks["other-full"] / GIB, peaks[FREE] / GIB
    return f"Without it `other`, full, takes {free:.2f} GiB in place of {fixed:.2f}."


def _case(case: Case) -> str:
    return f"{case.prompts} x {case.group}, {case.prompt_tokens} + {case.new_tokens} tokens"


def _summary(wrong: list[tuple[bool, float]]) -> str:
    if not wrong:
        return ""
    said = []
    for fitted, words in ((True, "fitted"), (False, "not fitted")):
        errors = [off for is_fitted, off in wrong if is_fitted == fitted]
        if errors:
            within = sum(off <= BOUND for off in errors)
            said.append(
                f"Of {len(errors)} {words}, {within} are within {BOUND:.0%}; the worst is off by {max(errors):.1%}."
            )
    return paragraph(*said)


def _fitted(held: dict[str, Any], over: Any) -> str:
    measured = {run["point"] for run in held["runs"]}
    if "base" not in measured or not any(POINTS[name].fitted for name in measured - {"base"}):
        return ""
    found = fit(held)
    machine = held["identity"]["machine"]
    return paragraph(
        f"A process with the libraries and no model takes {found['base'] / GIB:.2f} GiB, and the factor that fits best",
        f"is {found['factor']:.3f}; the package states {over.base / GIB:.2f} GiB and {over.factor:.3f}.",
        f"`embedded` is SmolLM2-135M; `other` is of random weights, {OTHER['architecture']} of width",
        f"{OTHER['hidden']} with {OTHER['layers']} layers and a head of its own. Measured on {machine['processor']},",
        f"{machine['cores']} cores, {machine['memory_gb']} GB, {held['identity']['threads']} thread(s),",
        "bfloat16 in hardware."
        if facts.has_bfloat16()
        else "bfloat16 emulated, which changes time and not memory.",
    )


def _shown(title: str, words: list[str], name: str, gpus: int) -> str:
    """What the command says of a published card and model, and the arithmetic of what is held."""
    from groupwise.config import load
    from groupwise.workbench.planning.answer import Request, plan
    from groupwise.workbench.planning.devices import Layout, card

    layout = Layout(gpus=gpus, nodes=1)
    model = "Qwen/Qwen2.5-7B-Instruct"
    answer = plan(
        Request(
            loaded=load({"model": model}, words),
            device=card(name),
            layout=layout,
            prompt_tokens=256,
            new_tokens=None,
            reward_seconds=0.0,
        )
    )
    command = f"groupwise plan config.yaml {' '.join(words)} --gpu {name} --gpus {gpus} --prompt-tokens 256"
    shown = "\n".join(line.rstrip() for line in answer.lines)
    return (
        f"## {title}\n\nWith `model: {model}` alone in config.yaml, `{command}` says:\n\n```text\n{shown}\n```\n\n"
        + _arithmetic(load({"model": model}, words), name, layout)
    )


def _arithmetic(loaded: Any, name: str, layout: Any) -> str:
    from groupwise.workbench.planning.devices import card
    from groupwise.workbench.planning.memory import layer_activations, token_parts, trained, weight_bytes
    from groupwise.workbench.planning.settings import setting_of
    from groupwise.workbench.planning.shapes import shape_of

    shape = shape_of(loaded.config.model, loaded.base)
    setting = setting_of(loaded.config, shape, card(name), layout, prompt_tokens=256)
    n = setting.processes if setting.sharded else 1
    by = f" / {n}" if n > 1 else ""
    some = trained(setting)
    adapter = "" if setting.lora is None else f" + 4 x {some:,} of the adapter"
    one = max(setting.passes(), key=lambda each: each.tokens)
    parts = token_parts(setting)
    layer = layer_activations(setting, one)
    attention = layer / one.tokens - sum(parts.values())
    named = " + ".join(f"{value:,.0f} {key}" for key, value in parts.items() if value)
    lines = [
        f"- weights: (4 x {shape.weights:,}{adapter}){by} = {weight_bytes(setting) / n / GIB:.2f} GiB",
        f"- optimiser: 8 x {some:,}{by} = {8 * some / n / GIB:.2f} GiB; gradients: 4 x {some:,}{by} = "
        f"{4 * some / n / GIB:.2f} GiB",
        f"- activations of a token in a layer: {named} + {attention:,.0f} attention = {layer / one.tokens:,.0f} bytes; "
        f"x {shape.layers} layers x {one.tokens} tokens = {layer * shape.layers / GIB:.2f} GiB, and what lies outside "
        "the layers",
        f"- keys and values of a token: 2 x {shape.key_width} x {shape.layers} x 2 bytes = "
        f"{setting.key_value_bytes:,} bytes",
    ]
    return "The arithmetic of its rows:\n\n" + "\n".join(lines)


if __name__ == "__main__":
    main()
