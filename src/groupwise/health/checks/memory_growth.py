"""Memory grows step by step: with the batches, or without a reason in them."""

from __future__ import annotations

from groupwise.health.facts import Facts
from groupwise.health.history import History, Series
from groupwise.records import Finding, Severity

_NEEDED_FOR = ("tokens/generated", "length/max")
"""What a step needs memory for: whenever one of them is larger than ever, the peak may be."""

_LEAKS = ("a reward or an engine of your own keeps something of every call", "a library leaks")
_LONGER = ("responses grow longer", "the batch holds more tokens")
_IF_IT_LEAKS = (
    "run the same with reward `length` alone, and see whether memory still grows",
    "checkpoint.every_steps, and go on from the last checkpoint when memory is short",
)
_IF_LONGER = (
    "lower rollout.max_new_tokens to what right answers need",
    "training.micro_batch_tokens and rollout.cache_megabytes bound what a step takes",
)


def memory_growth(
    history: History,
    facts: Facts,
    *,
    first: int = 10,
    window: int = 50,
    least_mb: float = 512.0,
    factor: float = 1.1,
) -> list[Finding]:
    """The peak of memory goes on rising after the first steps.

    Judges by `memory/peak_rss_mb`, which never falls while a process lives. A rise in a step with more tokens, or a
    longer response, than any before comes with the batch; other rises do not, and many of them are a leak.

    Args:
        history: the metrics.
        facts: of the run; not used.
        first: steps of a process in which it takes what it needs.
        window: steps looked back over.
        least_mb: megabytes of 2^20 bytes by which the peak has to rise in the window.
        factor: what the peak has to be at least, of what it was before the window.

    Source: threads of the field in which memory rose at every step until the run was killed, and others in which it
    rose to 70 GB with the length of the responses and nothing leaked.

    Edge case: no finding before `first` + `window` steps of a process. A leak has to show in four of the five parts of
    the window, by a tenth of `least_mb` each, since a rise or two for once (an evaluation, a checkpoint) is none.
    """
    recent = history.last("memory/peak_rss_mb", window + 1)
    if len(recent) <= window or history.now("memory/peak_rss_mb") is None:
        return []
    before, now = recent.values[0], recent.values[-1]
    if now - before < least_mb or now < before * factor:
        return []
    peaks = history.all("memory/peak_rss_mb")
    begun = max((i for i in range(1, len(peaks)) if peaks.values[i] < peaks.values[i - 1]), default=0)
    if len(peaks) - begun < first + window:
        return []
    rises = _rises(history, peaks, begun, window)
    if rises is None:
        return []
    with_batch, without = rises
    leak = sum(without) >= least_mb and sum(part >= least_mb / 10 for part in without) >= 4
    if not leak and with_batch < sum(without):
        return []
    longest = history.now("length/max")
    evidence = {
        "memory/peak_rss_mb": now,
        f"{window} steps before": before,
        "rise with larger batches": with_batch,
    }
    evidence |= {"rise without": sum(without)} | ({} if longest is None else {"length/max": longest})
    return [
        Finding(
            check="memory_growth",
            kind="leak" if leak else "longer",
            severity=Severity.WARNING if leak else Severity.INFO,
            first_step=peaks.steps[-window],
            last_step=history.step,
            summary=f"the peak of memory rose from {before:.0f} to {now:.0f} MB, "
            + (
                f"{sum(without):.0f} of them in steps that needed no more than earlier ones"
                if leak
                else "with the largest batch so far: more tokens or longer responses, not a leak"
            ),
            evidence=evidence,
            causes=_LEAKS if leak else _LONGER,
            remedies=_IF_IT_LEAKS if leak else _IF_LONGER,
        )
    ]


def _rises(history: History, peaks: Series, begun: int, window: int) -> tuple[float, list[float]] | None:
    """By how much the peak rose in the window, in steps that needed more than every earlier one of the process, and in
    the others of each fifth of it; None where nothing tells what a step needed."""
    larger: set[int] = set()
    told = False
    for name in _NEEDED_FOR:
        series = history.all(name).since(peaks.steps[begun])
        told |= len(series) > 0
        most = float("-inf")
        for step, value in zip(series.steps, series.values, strict=True):
            if value > most:
                larger.add(step)
                most = value
    with_batch, without = 0.0, [0.0] * 5
    first = len(peaks) - window
    for i in range(first, len(peaks)):
        rise = peaks.values[i] - peaks.values[i - 1]
        if peaks.steps[i] in larger:
            with_batch += rise
        else:
            without[(i - first) * 5 // window] += rise
    return (with_batch, without) if told else None
