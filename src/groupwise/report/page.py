"""The page: one HTML file that holds its style, its script and its data, and asks for nothing.

Whatever a run holds reaches the page as JSON in a block that no browser executes, and from there only as text nodes.
"""

from __future__ import annotations

import base64
import hashlib
import html
import importlib.resources
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.errors import RunFolderError
from groupwise.records.health_file import FEW_STEPS
from groupwise.records.metrics_file import nothing_learned
from groupwise.records.rollout_file import read_rollouts
from groupwise.records.rollout_outline import GroupOutline
from groupwise.report.choosing import MOST_TOKENS, Place, choose, rank
from groupwise.report.curves import MOST_POINTS, curves
from groupwise.report.happenings import MOST, happenings, steps_of
from groupwise.report.reading import RunRecord, evenly
from groupwise.report.tokens import Pieces, group_data, number, shortened

LIMIT_BYTES = 5_000_000
"""The page is smaller, however many runs are in it."""
MOST_RUNS = 4
_SCRIPTS = ("dom.js", "charts.js", "tokens.js", "groups.js", "page.js")
_EXTREMES = 24
_EXTREME_CHARACTERS = 1500


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A finished page."""

    html: str
    """The file's text."""
    groups: tuple[int, ...]
    """How many groups of each run can be opened down to their tokens."""


def build(runs: Sequence[tuple[RunRecord, Pieces | None]], *, limit_bytes: int = LIMIT_BYTES) -> Page:
    """The page of one run, or of several side by side.

    Args:
        runs: each with what gives the texts of its tokens.
        limit_bytes: the page's size stays below; runs share it evenly.

    Raises:
        RunFolderError: more runs than can be told apart.
    """
    if len(runs) > MOST_RUNS:
        raise RunFolderError(
            f"a report shows up to {MOST_RUNS} runs, and {len(runs)} were named; leave some out"
        )
    title = " and ".join(record.name for record, _ in runs)
    empty = _filled(title, "")
    share = (limit_bytes - len(empty.encode()) - 10_000) // len(runs)
    made = [_run(record, pieces, share) for record, pieces in runs]
    data = '{"runs":[' + ",".join(text for text, _ in made) + "]}"
    return Page(html=_filled(title, data), groups=tuple(count for _, count in made))


def plain(value: Any) -> str:
    """Data as JSON that no HTML parser mistakes for the end of its block."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return text.encode("utf-8", "replace").decode()  # half a surrogate pair has no bytes


def _filled(title: str, data: str) -> str:
    style, script = _template("page.css"), "\n".join(map(_template, _SCRIPTS))
    script = f'"use strict";\n(() => {{\n{script}\n}})();\n'
    parts = {
        "title": html.escape(f"{title} - groupwise report".encode("utf-8", "replace").decode()),
        "policy": (
            f"default-src 'none'; style-src {_hashed(style)}; script-src {_hashed(script)}; base-uri 'none'; "
            "form-action 'none'"
        ),
        "style": style,
        "script": script,
        "data": data,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _template("page.html"))


def _template(name: str) -> str:
    return (importlib.resources.files(__package__) / "templates" / name).read_text(encoding="utf-8")


def _hashed(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
    return f"'sha256-{digest}'"


def _goes_on(record: RunRecord) -> str:
    """How a run that was stopped before its end goes on."""
    saved, _ = record.described.settings.get("checkpoint.save", ("true", ""))
    if saved == "false":
        return "It wrote no checkpoint (checkpoint.save is false), so it cannot be gone on with if it was stopped."
    if record.manifest.get("python_rewards") or record.manifest.get("python_rows"):
        return "If the run was stopped, groupwise.train(resume=...) with its folder, and what it was given, goes on."
    return "If the run was stopped, groupwise train --resume with its folder goes on."


def _run(record: RunRecord, pieces: Pieces | None, budget: int) -> tuple[str, int]:
    """The JSON of one run, and how many of its groups can be opened."""
    left_out: list[str] = []
    found, _ = _fitting(lambda most: happenings(record.health, most=most), MOST, budget * 0.1)
    metrics, points = _fitting(lambda most: curves(record.lines, points=most), MOST_POINTS, budget * 0.25)
    if metrics["thinned"]:
        left_out.append(
            f"curves have about {points} points, of neighbouring steps the smallest and the largest value"
        )
    data: dict[str, Any] = {
        "name": record.name,
        "step": record.last_step,
        "of": record.described.steps,
        "manifest": {key: record.manifest.get(key) for key in ("groupwise", "versions", "seed", "command")},
        "resumed": len(record.manifest.get("resumed") or ()),
        "formula": shortened(record.described.formula),
        "config": shortened(record.config),
        "settings": {
            key: [shortened(value, 300), origin] for key, (value, origin) in record.described.settings.items()
        },
        "metrics": metrics,
        "happenings": found,
        "nothing_learned": nothing_learned(record.lines),
        "goes_on": _goes_on(record),
        "too_few": record.last_step < FEW_STEPS,
        "table": _table(record, int(budget * 0.2), left_out),
        "extremes": _extremes(record, budget * 0.1, left_out),
        "samples": _samples(record, int(budget * 0.08), left_out),
        "tokens": MOST_TOKENS,
    }
    opened, total = _opened(record, pieces, steps_of(found), budget - len(plain(data)) - 20_000)
    if len(opened) < total:
        left_out.append(
            f"tokens are shown of {len(opened):,} of {total:,} groups, as many as the page's size allows: round after "
            "round one more group of each step, its widest spread first, then the highest mean, the lowest and the "
            "longest"
        )
    if any(
        length > MOST_TOKENS for groups in record.outlines.values() for g in groups for length in g.lengths_G
    ):
        left_out.append(f"of a response the first {MOST_TOKENS:,} tokens are shown")
    data |= {"notes": [shortened(note, 500) for note in record.notes][:50], "left_out": left_out}
    return plain(data)[:-1] + ',"opened":[' + ",".join(opened) + "]}", len(opened)


def _fitting(make: Callable[[int], Any], most: int, budget: float) -> tuple[Any, int]:
    """What is made of so many pieces, or of half as many again and again until it fits; and how many that were."""
    made = make(most)
    while len(plain(made).encode()) > budget and most > 1:
        most //= 2
        made = make(most)
    return made, most


def _opened(
    record: RunRecord, pieces: Pieces | None, first: Sequence[int], budget: int
) -> tuple[list[str], int]:
    """Groups down to their tokens, each as JSON, in the order of the run; and how many there are in all."""
    places = choose(record.outlines, first=first, budget_bytes=budget)
    by_step: dict[int, list[int]] = {}
    for step, number_ in places:
        by_step.setdefault(step, []).append(number_)
    made: dict[Place, str] = {}
    for step, numbers in by_step.items():
        try:
            read = read_rollouts(record.rollout_file(step), groups=numbers)
        except RunFolderError:  # a run that goes on, or back to a checkpoint, has removed it since
            continue
        for number_, entry in zip(sorted(numbers), read, strict=False):
            made[step, number_] = plain(group_data(step, number_, entry, pieces))
    kept: list[Place] = []
    for place in (place for place in places if place in made):
        # More were chosen than fit, since only now their size is known.
        budget -= len(made[place].encode()) + 1
        if budget < 0:
            break
        kept.append(place)
    return [made[place] for place in sorted(kept)], sum(map(len, record.outlines.values()))


def _table(record: RunRecord, budget: int, left_out: list[str]) -> dict[str, Any]:
    """A row for every group, or for those of fewer steps where the budget is small."""
    steps, most = sorted(record.outlines), math.inf
    while True:
        listed = [
            (step, group)
            for step in steps
            for group in sorted(rank(record.outlines[step])[: int(min(most, 10**9))], key=lambda g: g.group)
        ]
        table = _rows(listed)
        if len(plain(table).encode()) <= budget or not listed:
            break
        if len(steps) > 20:
            steps = evenly(steps, len(steps) // 2)
        else:
            most = (
                max(len(groups) for groups in record.outlines.values()) // 2
                if most == math.inf
                else most // 2
            )
    total = sum(map(len, record.outlines.values()))
    if len(listed) < total:
        left_out.append(f"the table lists {len(listed):,} of {total:,} groups, of steps spread evenly")
    return table


def _rows(listed: Sequence[tuple[int, GroupOutline]]) -> dict[str, Any]:
    prompts = list(dict.fromkeys((group.prompt_id, shortened(group.prompt, 160)) for _, group in listed))
    places = {prompt: i for i, prompt in enumerate(prompts)}

    def short(value: float | None) -> float | str | None:
        return number(None if value is None or math.isnan(value) else float(f"{value:.5g}"))

    return {
        "prompts": [list(prompt) for prompt in prompts],
        "step": [step for step, _ in listed],
        "group": [group.group for _, group in listed],
        "prompt": [places[group.prompt_id, shortened(group.prompt, 160)] for _, group in listed],
        "mean": [short(group.mean) for _, group in listed],
        "spread": [short(group.spread) for _, group in listed],
        "min": [short(min(group.known, default=None)) for _, group in listed],
        "max": [short(max(group.known, default=None)) for _, group in listed],
        "length": [short(sum(group.lengths_G) / max(len(group.lengths_G), 1)) for _, group in listed],
        "cut": [sum(group.truncated_G) for _, group in listed],
        "size": [len(group.lengths_G) for _, group in listed],
    }


def _extremes(record: RunRecord, budget: float, left_out: list[str]) -> list[dict[str, Any]]:
    """The best and the worst rollout of some steps."""
    with_reward = sorted(step for step, groups in record.outlines.items() if any(g.known for g in groups))

    def make(most: int) -> list[dict[str, Any]]:
        return [_best_and_worst(step, record.outlines[step]) for step in evenly(with_reward, most)]

    found, _ = _fitting(make, _EXTREMES, budget)
    if len(found) < len(with_reward):
        left_out.append(f"best and worst rollouts are shown of {len(found)} of {len(with_reward)} steps")
    kept: list[dict[str, Any]] = found
    return kept


def _best_and_worst(step: int, groups: Sequence[GroupOutline]) -> dict[str, Any]:
    rated = [
        (reward, group, i)
        for group in groups
        for i, reward in enumerate(group.rewards_G)
        if reward is not None and math.isfinite(reward)
    ]
    best = max(rated, key=lambda entry: (entry[0], -entry[1].group, -entry[2]))
    worst = min(rated, key=lambda entry: (entry[0], entry[1].group, entry[2]))
    return {"step": step, "best": _extreme(*best), "worst": _extreme(*worst)}


def _extreme(reward: float, group: GroupOutline, i: int) -> Mapping[str, Any]:
    return {
        "reward": reward,
        "group": group.group,
        "prompt": shortened(group.prompt, 300),
        "text": shortened(group.responses_G[i], _EXTREME_CHARACTERS),
        "length": group.lengths_G[i],
    }


def _samples(record: RunRecord, budget: int, left_out: list[str]) -> list[list[str]]:
    """Files of samples: the last, the first, then others, as the budget allows; each with its name."""
    names = list(record.samples)
    order = dict.fromkeys([*names[-2:], *names[:2], *reversed(names)])
    kept: list[str] = []
    for name in order:
        budget -= len(plain(shortened(record.samples[name])).encode())
        if budget < 0:
            break
        kept.append(name)
    if len(kept) < len(names):
        left_out.append(f"{len(kept)} of {len(names)} files of samples are shown")
    return [[name, shortened(record.samples[name])] for name in names if name in kept]
