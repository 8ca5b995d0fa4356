"""The text of completions, whichever of the two shapes a reward gets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_THINKING = re.compile(
    r"""(?<!["'])
      (?: <\s?(?P<tag>/?\s?(?:seed:)?(?:think|thinking|thought|thoughts|reasoning|scratchpad|analysis))\b[^<>\n]{0,60}>
      | \[(?P<square>/?THINK)\] | ◁(?P<arrow>/?think)▷
      | <\|(?P<spelled>(?:begin|end)_of_(?:thought|thinking))\|> | <\|channel\|>(?P<channel>analysis|final)\b )
      (?!["'])""",
    re.IGNORECASE | re.VERBOSE,
)
"""Where reasoning begins and ends, in the marks of the models that think aloud; in quotes they are only mentioned."""


def text_of(completion: Any) -> str:
    """The text of one completion: itself, or the content of its messages, one after another.

    Raises:
        TypeError: it is neither text nor a list of messages with text for content.
    """
    if isinstance(completion, str):
        return completion
    if isinstance(completion, Sequence) and all(
        isinstance(message, Mapping) and isinstance(message.get("content"), str) for message in completion
    ):
        return "".join(message["content"] for message in completion)
    raise TypeError(
        f"a completion is text or a list of messages with text for content, not {completion!r:.80}"
    )


def without_reasoning(text: str) -> str | None:
    """What stands behind the reasoning of a completion; the whole where it has none, None where it is never closed.

    A mark inside reasoning of another name closes nothing. A closing mark alone is enough, since a chat template may
    write the opening one.
    """
    opened, close_at = None, None
    for match in _THINKING.finditer(text):
        mark = next(filter(None, match.groups())).lower().replace(" ", "")
        name = mark.lstrip("/").removeprefix("begin_").removeprefix("end_").replace("final", "analysis")
        if mark.startswith(("/", "end_", "final")):
            if opened in (None, name):
                close_at, opened = match.end(), None
        elif opened is None:
            opened = name
    if opened is not None:
        return None
    return text if close_at is None else text[close_at:].removeprefix("<|message|>")
