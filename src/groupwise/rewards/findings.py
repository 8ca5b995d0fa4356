"""What the measurements of a reward mean."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from groupwise.rewards.examine import Asked, Measured, Tried
from groupwise.rewards.made_up import LISTS, PARTS
from groupwise.rewards.payment import PAID, Pay, by_group, paid, pays, worth

Level = Literal["fault", "warning", "note"]

SLOW = 0.1
"""Share of a step from which on a reward is called slow."""
TOO_SLOW = 0.5
"""Share of a step from which on that is a fault."""
LONG_SECONDS = 1.0
"""Longest time for one very long completion."""
TELLS_APART = 0.65
"""Share of pairs, right before wrong, below which a reward does not tell them apart; a coin gets 0.5."""
TIES = 0.75
"""Share of pairs, right and wrong, that get the same, from which on a reward is blind to the answer."""
OUTWEIGHED = 0.1
"""Share of the span of values below which what the right answer is worth hardly counts."""
A_LITTLE = 0.01
"""Share of what being right is worth from which on a payment is told, though it is no fault."""
LARGE = 100.0
"""Size of values from which on they are called large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong with a reward, or worth knowing."""

    name: str
    """One word or a few, joined by _, as in docs/rewards/check_reward.md."""
    level: Level
    """`fault`: do not train on it. `warning`: look at it first. `note`: it may be meant."""
    says: str
    """What, with the evidence and the remedy."""


def _fault(name: str, says: str) -> Finding:
    return Finding(name=name, level="fault", says=says)


def _warning(name: str, says: str) -> Finding:
    return Finding(name=name, level="warning", says=says)


def _note(name: str, says: str) -> Finding:
    return Finding(name=name, level="note", says=says)


def findings(measured: Measured) -> list[Finding]:
    """Everything that is to be said, faults first; nothing for a reward that is sound."""
    if measured.asked and all(each.failure is not None for each in measured.asked):
        return list(_failures(measured))  # what little it answered says nothing more
    senseless = list(_sense(measured))
    found = [
        *_failures(measured),
        *_repeats(measured),
        *senseless,
        *([] if senseless else _tricks(measured)),  # what is paid blindly is paid for tricks too
        *_rows(measured),
        *_values_and_groups(measured),
        *_time(measured),
    ]
    order = ("fault", "warning", "note")
    return sorted(found, key=lambda finding: order.index(finding.level))


def ordered(measured: Measured) -> tuple[float, float] | None:
    """(share of pairs in which the right answer is paid more than a wrong one, a tie counting half; share of ties).

    None where there is no pair with two rewards.
    """
    better: list[float] = []
    wrongs = by_group(measured.of_kind("wrong"))
    for group, rights in by_group(measured.of_kind("right")).items():
        for right in rights:
            better += [1.0 if right > w else 0.5 if right == w else 0.0 for w in wrongs.get(group, [])]
    if not better:
        return None
    return statistics.fmean(better), sum(b == 0.5 for b in better) / len(better)


def spreads(asked: Sequence[Asked]) -> list[float]:
    """The sample standard deviation of each group's rewards, for groups with at least two."""
    return [statistics.stdev(values) for values in by_group(asked).values() if len(values) > 1]


def _failures(measured: Measured) -> Iterator[Finding]:
    asked = measured.asked
    failed = [each for each in asked if each.failure is not None]
    if failed:
        first = failed[0]
        yield _fault(
            "fails_on_samples",
            f"it fails on {len(failed) / len(asked):.0%} of ordinary completions, first on {_shown(first.item.text)}: "
            f"{_reason(first)}",
        )
        if len(failed) == len(asked):
            return
    elif asked and all(each.value is None for each in asked):
        yield _fault(
            "never_applies", "it has nothing to say of any completion; check the columns that it reads"
        )
    for tried in measured.tried:
        failed = [each for each in tried.asked if each.failure is not None]
        if failed:
            yield _fault(
                f"fails_on_{tried.probe.name}",
                f"it fails on {tried.probe.means}: {_reason(failed[0])}; give such a completion a low value instead",
            )


def _repeats(measured: Measured) -> Iterator[Finding]:
    repeats, spread = measured.repeats, _span(measured)
    moved = f"asked {repeats.times} times about the same batch, a value moved by up to {repeats.again:.4g}"
    if _moving(measured):
        if repeats.correlation is None or repeats.correlation < 0.5:
            yield _fault(
                "random", f"{moved}, as much as completions differ: it does not depend on what is said"
            )
        else:
            yield _fault(
                "not_repeatable",
                f"{moved}, and all values span {spread:.4g}; fix its seed, or take the mean of several judgements",
            )
        return
    if repeats.again > 1e-9:
        yield _note(
            "nearly_repeatable", f"{moved}, which is little beside the span of all values, {spread:.4g}"
        )
    if repeats.elsewhere > max(1e-9, 0.01 * spread):
        yield _warning(
            "depends_on_batch",
            f"in another order or alone, a value moved by up to {repeats.elsewhere:.4g}: it depends on "
            "what else is in the batch",
        )


def _moving(measured: Measured) -> bool:
    """True when the same batch gets other values the next time, so that comparing values says little."""
    return measured.repeats.again > max(1e-9, 0.01 * _span(measured))


def _span(measured: Measured) -> float:
    values = _values(measured.asked)
    return max(values) - min(values) if values else 0.0


def _sense(measured: Measured) -> Iterator[Finding]:
    """Whether values have to do with what was said; at most one finding, the plainest."""
    everything = [*measured.asked, *(each for tried in measured.tried for each in tried.asked)]
    values = _values(everything)
    if not values or _moving(measured):
        return
    if len(set(values)) == 1:
        remedy = (
            "check the column that right answers are read from (--answer), and if they have to stand in a form of "
            "their own, name that with --form"
            if measured.of_kind("right")
            else "no right answer is known here, so name its column with --answer, or sample completions with --model"
        )
        yield _fault(
            "constant",
            f"all of {len(values)} completions got {values[0]:.4g}, so nothing can be learned; {remedy}",
        )
        return
    length = _length_alone(everything)
    if length is not None:
        yield _fault(
            "length_only",
            f"completions with the same number of {length} always get the same, whatever they say; use it only beside "
            "a reward for what is said",
        )
        return
    pairs = ordered(measured)
    if pairs is None:
        return
    share, ties = pairs
    forms = {value for value in measured.forms.values() if value is not None}
    if ties >= TIES and len(forms) > 1:
        yield _fault(
            "format_only",
            "right and wrong answers in one form get the same, and other forms get something else: it pays the form "
            "alone; add a reward for the answer, or say --no-answer if none is right (a length, a letter)",
        )
    elif ties >= TIES:
        yield _fault(
            "blind",
            f"right and wrong answers get the same in {ties:.0%} of pairs; check that it reads the answer, name the "
            "form it wants with --form, or say --no-answer if it is about style",
        )
    elif share < TELLS_APART:
        yield _fault(
            "unrelated",
            f"the right answer gets more than a wrong one in {share:.0%} of pairs, and a coin gets 50%; check the "
            "column of the answer (--answer), or say --no-answer if it is about style",
        )
    else:
        gap = _mean(measured, "right") - _mean(measured, "wrong")
        made_up = _values(measured.of_kind("right", "wrong", "scrambled"))
        span = max([*made_up, *forms]) - min([*made_up, *forms])
        if gap < OUTWEIGHED * span:
            yield _fault(
                "outweighed",
                f"being right is worth {gap:.3g}, and what else differs between answers up to {span:.3g}: it pays for "
                "something else; give the answer more weight",
            )


def _mean(measured: Measured, kind: str) -> float:
    return statistics.fmean(_values(measured.of_kind(kind)))


def _length_alone(asked: Sequence[Asked]) -> str | None:
    """The measure of length that decides the value by itself, if one does."""
    measures: dict[str, Callable[[str], int]] = {
        "characters": len,
        "words": lambda text: len(text.split()),
        "bytes": lambda text: len(text.encode()),
        "lines": lambda text: len(text.splitlines()),
    }
    for name, measure in measures.items():
        texts: dict[int, set[str]] = {}
        values: dict[int, set[float]] = {}
        for each in asked:
            if each.value is not None:
                length = measure(each.item.text)
                texts.setdefault(length, set()).add(each.item.text)
                values.setdefault(length, set()).add(each.value)
        compared = sum(len(different) > 1 for different in texts.values())
        if (
            compared >= 3
            and all(len(v) == 1 for v in values.values())
            and len(set().union(*values.values())) > 1
        ):
            return name
    return None


def _tricks(measured: Measured) -> Iterator[Finding]:
    if _moving(measured):
        return
    parts: list[tuple[Tried, Pay]] = []
    lists: list[tuple[Tried, Pay]] = []
    silent: list[tuple[Tried, Pay]] = []
    for tried in measured.tried:
        probe, share = tried.probe, paid(measured, tried)
        what = f"{probe.means} ({_shown(probe.text)})"
        pay = next((pay for pay in pays(measured, tried) if pay.paid), None)
        if share and pay is None:
            yield _warning(f"pays_{probe.name}", f"it pays {what} as much as the best of the plain replies")
        elif share and pay is not None:
            if share < 0.5:
                yield _warning(
                    f"pays_{probe.name}", f"on {share:.0%} of the rows tried {_told([(tried, pay)])}"
                )
            elif probe.name in PARTS:
                parts.append((tried, pay))
            elif probe.name in LISTS:
                lists.append((tried, pay))
            elif probe.aim == "leak":
                yield _fault(
                    "leaked_answer",
                    f"to a prompt that holds the right answer {_shown(probe.text)} gets {pay.value:.3g}, and "
                    f"{pay.wrong:.3g} otherwise: it searches the prompt; look at the completion alone",
                )
            elif pay.value == 0 and pay.wrong < 0:
                silent.append((tried, pay))
            else:
                yield _fault(f"pays_{probe.name}", f"{_told([(tried, pay)])}; pay nothing for it")
        yield from _beside_right(measured, tried)
    if parts:
        yield _fault("substring", f"{_told(parts)}; compare whole answers, not parts of them")
    if lists:
        yield _fault("many_candidates", f"{_told(lists)}; refuse more than one answer")
    if silent:
        yield _warning(
            "silence_pays",
            f"{_told(silent)}; it may be meant, since a wrong answer costs something, but a model that is seldom right "
            "learns to say nothing",
        )
    yield from _a_little(measured)


def _told(paid_for: Sequence[tuple[Tried, Pay]]) -> str:
    """What is paid for probes against a right answer, and what that means; by the best paid of them."""
    said = [
        f"{tried.probe.means} ({_shown(tried.probe.text)}) {pay.value:.3g}"
        for tried, pay in paid_for
        if pay.value is not None
    ]
    best = max((pay for _, pay in paid_for), key=lambda pay: pay.share or 0.0)
    share = best.share or 0.0
    means = (
        f"a model that is right in less than {share:.0%} of its tries earns more by it than by answering"
        if share < 1
        else "no model earns more by answering"
    )
    return (
        f"it pays {' and '.join(said)}, where the right answer gets {best.right:.3g} and a wrong one {best.wrong:.3g}: "
        f"{means}"
    )


def _a_little(measured: Measured) -> Iterator[Finding]:
    """Payments that are told and left to the reader."""
    shares = {
        tried.probe.name: worth(measured, tried) for tried in measured.tried if not paid(measured, tried)
    }
    small = [
        f"{name} {share:.0%}" for name, share in shares.items() if share is not None and share >= A_LITTLE
    ]
    if small:
        yield _note(
            "pays_a_little",
            f"of what being right is worth beyond a wrong answer it pays {', '.join(small)}: below {PAID:.0%}, too "
            "little to be learned in place of answers by a model that is right in one of five tries",
        )


def _beside_right(measured: Measured, tried: Tried) -> Iterator[Finding]:
    """Probes that hold the right answer."""
    probe = tried.probe
    rights = by_group(measured.of_kind("right"))
    pairs = [
        (each.value, rights[each.item.group][0])
        for each in tried.asked
        if each.value is not None and each.item.group in rights
    ]
    if not pairs:
        return
    value, right = pairs[0]
    if probe.aim == "more" and all(value > right + 1e-9 for value, right in pairs):
        yield _fault(
            f"pays_{probe.name}",
            f"{probe.means}, gets {value:.4g}, more than the right answer once, {right:.4g}",
        )
    if probe.aim == "same" and all(value < right - 1e-9 for value, right in pairs):
        yield _note(
            f"strict_{probe.name}",
            f"{probe.means} ({_shown(probe.text)}) gets {value:.4g}, and the answer itself {right:.4g}",
        )


def _rows(measured: Measured) -> Iterator[Finding]:
    """Rows of the data that a reward cannot be right about."""
    cases, pairs = measured.cases, ordered(measured)
    if pairs is not None and pairs[0] >= TELLS_APART and not _moving(measured):
        rights, wrongs = by_group(measured.of_kind("right")), by_group(measured.of_kind("wrong"))
        paid_always = _always_paid(measured, rights)
        if paid_always:
            yield _fault(
                "pays_wrong",
                f"on every row it pays the right answer with {' and with '.join(paid_always)} as much as alone; "
                "compare whole numbers, with their sign",
            )
        behind = [g for g, (right,) in rights.items() if g in wrongs and right <= max(wrongs[g])]
        if behind:
            yield _warning(
                "right_not_ahead",
                f"on {len(behind)} of {len(rights)} rows a wrong answer gets as much as the right one, first on "
                f"{cases[behind[0]].place}",
            )
    made_up = measured.of_kind("right", "reply")
    silent = {each.item.group for each in made_up if each.value is None and each.failure is None}
    if silent and any(each.value is not None for each in measured.asked):
        yield _warning(
            "does_not_apply",
            f"it has nothing to say on {len(silent)} of {len(cases)} rows, first on {cases[min(silent)].place}; check "
            "the columns that it reads there",
        )
    holding = [case for case in cases if case.answer and _stands_in(case.answer, case.asked)]
    if len(holding) > 0.2 * len(cases):
        yield _note(
            "prompt_holds_answer",
            f"the right answer stands in the prompt of {len(holding)} of {len(cases)} rows, as in {holding[0].place}",
        )


def _always_paid(measured: Measured, rights: Mapping[int, Sequence[float]]) -> list[str]:
    """The ways to make a wrong number that are paid on each of at least three rows; far ones, beyond a tolerance."""
    found = []
    for name, change in (("times ten", "a nought behind it"), ("sign flipped", "the other sign")):
        said = [
            each.value is not None and each.value >= rights[each.item.group][0]
            for each in measured.of_kind("wrong")
            if each.item.name == name and each.item.group in rights
        ]
        if len(said) >= 3 and all(said):
            found.append(change)
    return found


def _stands_in(answer: str, prompt: str) -> bool:
    text = f" {prompt} "
    at = text.find(answer)
    while at >= 0:
        if not (text[at - 1 : at].isalnum() or text[at + len(answer) : at + len(answer) + 1].isalnum()):
            return True
        at = text.find(answer, at + 1)
    return False


def _values_and_groups(measured: Measured) -> Iterator[Finding]:
    stds = spreads(measured.of_kind("sampled"))
    flat = sum(std == 0 for std in stds)
    if flat > 0.5 * len(stds):
        yield _warning(
            "flat_groups",
            f"in {flat} of {len(stds)} groups of sampled completions all rewards are equal, and such a group teaches "
            "nothing; make the reward finer, the prompts easier or harder, or the groups larger",
        )
    values = _values(measured.asked)
    if values and max(abs(value) for value in values) > LARGE:
        yield _warning(
            "large_values",
            f"values reach from {min(values):.4g} to {max(values):.4g}; beside other rewards or a KL penalty it "
            "decides alone, so scale it to about 1",
        )


def _time(measured: Measured) -> Iterator[Finding]:
    cost = measured.cost
    if cost.share > SLOW:
        says = (
            f"{cost.rollouts_per_step} rollouts take {cost.seconds_step:.2g} s, {cost.share:.0%} of a step that "
            f"otherwise takes {cost.step_seconds:g} s"
        )
        yield _fault("slow", says) if cost.share > TOO_SLOW else _warning("slow", says)
    for tried in measured.tried:
        if tried.seconds > max(LONG_SECONDS, 10 * cost.seconds_alone):
            yield _warning(
                f"slow_on_{tried.probe.name}",
                f"{tried.probe.means} took {tried.seconds:.2g} s, an ordinary completion {cost.seconds_alone:.2g} s",
            )


def _values(asked: Sequence[Asked]) -> list[float]:
    return [each.value for each in asked if each.value is not None and math.isfinite(each.value)]


def _reason(asked: Asked) -> str:
    """The end of a failure's sentence: what was raised or returned."""
    return (asked.failure or "").rpartition("): ")[2][:200]


def _shown(text: str, limit: int = 60) -> str:
    return repr(text if len(text) <= limit else f"{text[: limit - 3]}...")
