"""A few rollouts as Markdown, for people to read. What a model or a prompt says can break out of no fence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from groupwise.records import Group, Rollout, StopReason, Verdict

GROUPS = 4
"""Groups in a file."""
_ROLLOUTS = 3
_CHARACTERS = 4000


def due(step: int, every_steps: int | None) -> bool:
    """True at the first step and after every so many; None for never.

    The last step is no exception, so that a run that is lengthened has the files of one that was always longer.
    """
    return every_steps is not None and (step == 1 or step % every_steps == 0)


def page(title: str, groups: Sequence[Group], *, most: int = GROUPS) -> str:
    """The first groups, of each the best rollout, the middle one and the worst.

    Args:
        title: heading of the file, plain words.
        groups: in the order of the batch.
        most: how many of them.
    """
    return document(
        title, (section for group in groups[:most] for section in _group(group)), len(groups), most
    )


def document(title: str, sections: Iterable[str], total: int, most: int) -> str:
    """Sections under a heading, and how many more there are."""
    more = [f"{total - most} more are not in this file."] if total > most else []
    return "\n\n".join([f"# {title}", *sections, *more]) + "\n"


def fenced(text: str) -> str:
    """Text in a fence longer than any run of backticks in it (CommonMark 0.31, section 4.5), long texts cut."""
    if len(text) > _CHARACTERS:
        text = f"{text[:_CHARACTERS]}\n[... {len(text) - _CHARACTERS} more characters]"
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}text\n{text}\n{fence}"


def code(text: str) -> str:
    """Text within a line, between more backticks than it holds in a row (section 6.1), without line breaks."""
    text = " ".join(text.split()) or " "
    ticks = "`" * (_longest_run(text) + 1)
    return f"{ticks} {text} {ticks}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall(r"`+", text)), default=0)


def _group(group: Group) -> Iterator[str]:
    rewards = [v.reward for v in group.verdicts_G if v.reward is not None]
    mean = f"mean reward {sum(rewards) / len(rewards):.4g}" if rewards else "no reward"
    yield f"## {code(group.prompt.id)}, {mean}"
    yield fenced(group.prompt.text)
    pairs = sorted(
        zip(group.rollouts_G, group.verdicts_G, strict=True),
        key=lambda pair: -float("inf") if pair[1].reward is None else pair[1].reward,
        reverse=True,
    )
    if len(pairs) > _ROLLOUTS:
        pairs = [pairs[0], pairs[len(pairs) // 2], pairs[-1]]
    for rollout, verdict in pairs:
        yield f"### Rollout {rollout.group_index}: {_said(rollout, verdict)}"
        yield fenced(rollout.text)


def _said(rollout: Rollout, verdict: Verdict) -> str:
    reward = "no reward" if verdict.reward is None else f"reward {verdict.reward:.4g}"
    parts = [f"{code(label)} {_number(value)}" for label, value in verdict.parts.items()]
    of = f" ({', '.join(parts)})" if len(parts) > 1 else ""
    ended = ", cut off by the limit" if rollout.stop_reason is StopReason.LENGTH else ""
    return f"{reward}{of}, {len(rollout.token_ids_T)} tokens{ended}"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"
