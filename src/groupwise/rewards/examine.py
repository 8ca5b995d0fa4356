"""A reward examined before it trains anything: what it says of made-up and sampled completions, again and again."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from groupwise.errors import RewardError
from groupwise.records import Verdict
from groupwise.records.nouns import NONE_APPLIES
from groupwise.rewards.batch import Batch
from groupwise.rewards.made_up import (
    FORMS,
    PLAIN_REPLIES,
    Case,
    Probe,
    in_form,
    probes,
    scrambled,
    wrong_answers,
)
from groupwise.rewards.reward import Rewards

FORM_CASES = 4
"""Rows on which the forms of an answer, and the probes, are tried."""
ALONE = 7
"""Completions that are also scored in a batch of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One completion that a reward is asked about."""

    group: int
    """Items of one number answer one prompt."""
    kind: str
    """`right`, `wrong`, `scrambled`, `form`, `reply`, `probe` or `sampled`."""
    name: str
    """How it was made, for people."""
    prompt: Any
    """Text, or a list of messages."""
    text: str
    """The completion."""
    columns: Mapping[str, Any]
    """Of its row."""
    token_ids: Sequence[int] | None = None
    """As sampled; None for made-up text, whose bytes then stand for tokens."""
    stop_reason: str = "stop"
    """`stop` or `length`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """An item with what was said of it."""

    item: Item
    """What was asked about."""
    verdict: Verdict
    """What was said."""

    @property
    def value(self) -> float | None:
        """The reward, if there is one."""
        return self.verdict.reward

    @property
    def failure(self) -> str | None:
        """Why there is none, where that is a failure."""
        said = self.verdict.failure
        return None if self.value is not None or said == NONE_APPLIES else said


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A probe on several rows."""

    probe: Probe
    """As built for the first row."""
    asked: tuple[Asked, ...]
    """What was said, row by row."""
    seconds: float
    """Longest call, for one completion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """How far values moved when the same was asked again."""

    again: float
    """Largest change in the same batch, asked again."""
    correlation: float | None
    """Between the first and the second time, over completions; None where either does not vary."""
    elsewhere: float
    """Largest change in another batch: in reverse order, and alone or with its group alone."""
    times: int
    """How often the same batch was asked about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What the reward takes."""

    seconds_alone: float
    """One completion in a call of its own; the median."""
    seconds_each: float
    """A further completion in the same call."""
    seconds_step: float
    """Projected for the rollouts of a step, in one call."""
    rollouts_per_step: int
    """How many these are."""
    step_seconds: float
    """What a step takes without its rewards."""

    @property
    def share(self) -> float:
        """Of a step's time, from 0 to 1."""
        return self.seconds_step / (self.seconds_step + self.step_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Everything that was measured; what it means is said by `findings`."""

    labels: tuple[str, ...]
    """Of the rewards."""
    cases: tuple[Case, ...]
    """The rows."""
    form: str
    """The template in which right answers are paid best."""
    forms: Mapping[str, float | None]
    """Name or template to the mean reward of right answers in it, None for no reward; empty without known answers."""
    asked: tuple[Asked, ...]
    """Every made-up completion but the probes, and every sampled one."""
    tried: tuple[Tried, ...]
    """The probes."""
    repeats: Repeats
    """The same asked again."""
    cost: Cost
    """Time."""

    def of_kind(self, *kinds: str) -> list[Asked]:
        """What was said of the items of some kinds."""
        return [each for each in self.asked if each.item.kind in kinds]


def measure(
    rewards: Rewards,
    cases: Sequence[Case],
    *,
    sampled: Sequence[Item] = (),
    form: str | None = None,
    repeats: int = 3,
    rollouts_per_step: int = 64,
    step_seconds: float = 10.0,
) -> Measured:
    """Ask rewards about completions made up from rows, and about sampled ones, through the same code as training.

    Args:
        rewards: as `build` made them; those whose policy is `fail` end the examination where they end a run.
        cases: rows; the first few are also probed.
        sampled: completions of a model, of groups numbered from `len(cases)` on.
        form: a template with `{answer}` for right answers; None to find it among `FORMS`.
        repeats: how often the same batch is asked about, at least 2.
        rollouts_per_step: for the projection of time.
        step_seconds: what a step takes without its rewards.
    """
    with _quiet():
        forms = _try_forms(rewards, cases, form)
        best = form or FORMS[_best(forms)]
        items = [*_made_up(cases, best), *sampled]
        started = time.perf_counter()
        first = ask(rewards, items)
        seconds = [time.perf_counter() - started]
        asked = tuple(Asked(item=i, verdict=v) for i, v in zip(items, first, strict=True))
        again = []
        for _ in range(max(repeats, 2) - 1):
            started = time.perf_counter()
            again.append(ask(rewards, items))
            seconds.append(time.perf_counter() - started)
        elsewhere = [*_alone(rewards, items), *_reversed(rewards, items)]
        moved = _moved(first, again, elsewhere)
        cost = _cost(seconds, len(items), _seconds_alone(rewards, items), rollouts_per_step, step_seconds)
        tried = _probe(rewards, cases, best, items)
    return Measured(
        labels=rewards.labels,
        cases=tuple(cases),
        form=best,
        forms=forms,
        asked=asked,
        tried=tried,
        repeats=moved,
        cost=cost,
    )


def ask(rewards: Rewards, items: Sequence[Item]) -> list[Verdict]:
    """One verdict per item. A reward that would end a run over these gives verdicts that say so.

    Where a batch fails, each item is asked about alone, to see which it fails on. Where it fails on none, it is the
    batch that it fails on, as it would in a run: a wrong count of values is such a failure.

    Args:
        rewards: as `build` made them.
        items: in any mix of prompts.
    """
    if not items:
        return []
    try:
        return rewards.score_batch(_batch(items))
    except RewardError as error:
        if len(items) == 1:
            parts = dict.fromkeys(rewards.labels)
            return [Verdict(reward=None, parts=parts, failure=str(error))]
        of_batch = str(error)
    verdicts = [verdict for item in items for verdict in ask(rewards, [item])]
    if any(verdict.failure not in (None, NONE_APPLIES) for verdict in verdicts):
        return verdicts
    return [replace(verdict, reward=None, failure=of_batch) for verdict in verdicts]


def _batch(items: Sequence[Item]) -> Batch:
    names = dict.fromkeys(name for item in items for name in item.columns)
    return Batch(
        prompts=[item.prompt for item in items],
        completions=[
            item.text if isinstance(item.prompt, str) else [{"role": "assistant", "content": item.text}]
            for item in items
        ],
        completion_ids=[
            list(item.text.encode()) if item.token_ids is None else list(item.token_ids) for item in items
        ],
        stop_reasons=[item.stop_reason for item in items],
        columns={name: [item.columns.get(name) for item in items] for name in names},
        group_ids=[str(item.group) for item in items],
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of a run: what fails is counted and told here."""
    log = logging.getLogger("groupwise.rewards")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _item(case: Case, group: int, kind: str, name: str, text: str, prompt: Any = None) -> Item:
    return Item(
        group=group,
        kind=kind,
        name=name,
        prompt=case.prompt if prompt is None else prompt,
        text=text,
        columns=case.columns,
    )


def _try_forms(rewards: Rewards, cases: Sequence[Case], form: str | None) -> dict[str, float | None]:
    known = [(group, case) for group, case in enumerate(cases) if case.answer is not None][:FORM_CASES]
    if not known:
        return {}
    templates = dict(FORMS) if form is None else {**FORMS, form: form}
    items = [
        _item(case, group, "form", name, in_form(template, case.answer or ""))
        for name, template in templates.items()
        for group, case in known
    ]
    verdicts = ask(rewards, items)
    said: dict[str, list[float]] = {name: [] for name in templates}
    for item, verdict in zip(items, verdicts, strict=True):
        if verdict.reward is not None:
            said[item.name].append(verdict.reward)
    return {name: statistics.fmean(values) if values else None for name, values in said.items()}


def _best(forms: Mapping[str, float | None]) -> str:
    """The form that is paid best, the first of equals."""
    paid = {name: value for name, value in forms.items() if value is not None}
    return max(paid, key=lambda name: paid[name]) if paid else next(iter(FORMS))


def _made_up(cases: Sequence[Case], form: str) -> list[Item]:
    items: list[Item] = []
    for group, case in enumerate(cases):
        if case.answer is None:
            items += [_item(case, group, "reply", text, text) for text in PLAIN_REPLIES]
            continue
        right = in_form(form, case.answer)
        items.append(_item(case, group, "right", "right", right))
        for name, text in wrong_answers(case.answer, others_than(cases, group)).items():
            items.append(_item(case, group, "wrong", name, in_form(form, text)))
        if scrambled(right) != right:
            items.append(_item(case, group, "scrambled", "scrambled", scrambled(right)))
    return items


def others_than(cases: Sequence[Case], group: int) -> list[str]:
    """The right answers of the other rows, the next one first."""
    turned = [*cases[group + 1 :], *cases[:group]]
    return [case.answer for case in turned if case.answer is not None]


def _alone(rewards: Rewards, items: Sequence[Item]) -> list[tuple[int, Verdict]]:
    """Some completions, each in a batch of its own; with its group, where a reward compares the rollouts of one."""
    chosen = _spread_over(range(len(items)), ALONE)
    units = [[i] for i in chosen]
    if rewards.by_group:
        units = [[k for k, item in enumerate(items) if item.group == items[i].group] for i in chosen]
    verdicts: list[tuple[int, Verdict]] = []
    for unit in units:
        verdicts += zip(unit, ask(rewards, [items[i] for i in unit]), strict=True)
    return verdicts


def _seconds_alone(rewards: Rewards, items: Sequence[Item]) -> list[float]:
    """The time of single completions, each in a call of its own."""
    seconds = []
    for i in _spread_over(range(len(items)), ALONE):
        started = time.perf_counter()
        ask(rewards, [items[i]])
        seconds.append(time.perf_counter() - started)
    return seconds


def _spread_over(numbers: range, count: int) -> list[int]:
    return sorted({k * len(numbers) // count for k in range(count)}) if numbers else []


def _reversed(rewards: Rewards, items: Sequence[Item]) -> list[tuple[int, Verdict]]:
    """Everything from the last to the first."""
    return list(enumerate(reversed(ask(rewards, list(reversed(items))))))


def _moved(
    first: Sequence[Verdict],
    again: Sequence[Sequence[Verdict]],
    elsewhere: Sequence[tuple[int, Verdict]],
) -> Repeats:
    pairs = [
        (a.reward, b.reward)
        for a, b in zip(first, again[0], strict=True)
        if a.reward is not None and b.reward is not None
    ]
    varies = len(pairs) > 1 and all(len({pair[k] for pair in pairs}) > 1 for k in (0, 1))
    return Repeats(
        again=max(
            (_change(a, b) for verdicts in again for a, b in zip(first, verdicts, strict=True)), default=0.0
        ),
        correlation=statistics.correlation(*zip(*pairs, strict=True)) if varies else None,
        elsewhere=max((_change(first[i], v) for i, v in elsewhere), default=0.0),
        times=len(again) + 1,
    )


def _change(a: Verdict, b: Verdict) -> float:
    if a.reward is None or b.reward is None:
        return 0.0 if a.reward is b.reward else float("inf")
    return abs(a.reward - b.reward)


def _cost(
    seconds: Sequence[float], count: int, alone: Sequence[float], rollouts_per_step: int, step_seconds: float
) -> Cost:
    """Time as overhead of a call plus so much a completion, from calls of two sizes."""
    whole = statistics.median(seconds)
    one = statistics.median(alone) if alone else whole
    each = max(0.0, (whole - one) / (count - 1)) if count > 1 else one
    return Cost(
        seconds_alone=one,
        seconds_each=each,
        seconds_step=one + each * (rollouts_per_step - 1),
        rollouts_per_step=rollouts_per_step,
        step_seconds=step_seconds,
    )


def _probe(rewards: Rewards, cases: Sequence[Case], form: str, items: Sequence[Item]) -> tuple[Tried, ...]:
    """Every probe on the first rows, each in a call of its own, so that its time is known.

    Where a reward compares the rollouts of a group, the row's other completions are its company.
    """
    by_name: dict[str, list[tuple[Probe, Item]]] = {}
    for group, case in enumerate(cases[:FORM_CASES]):
        for probe in probes(case, form, others_than(cases, group)):
            item = _item(case, group, "probe", probe.name, probe.text, probe.prompt)
            by_name.setdefault(probe.name, []).append((probe, item))
    tried = []
    for built in by_name.values():
        asked, longest = [], 0.0
        for _, item in built:
            started = time.perf_counter()
            company = [other for other in items if rewards.by_group and other.group == item.group]
            verdict = ask(rewards, [item, *company])[0]
            longest = max(longest, time.perf_counter() - started)
            asked.append(Asked(item=item, verdict=verdict))
        tried.append(Tried(probe=built[0][0], asked=tuple(asked), seconds=longest))
    return tuple(tried)
