"""The program in a completion."""

from __future__ import annotations

import re
import textwrap

from groupwise.rewards.completions import without_reasoning

_FENCE = re.compile(r"^[ \t>]*+(?:[-*+]|\d+\.)?+[ \t]*+(`{3,}+|~{3,}+)[ \t]*([^\n`]*)$", re.MULTILINE)
_GLUED = re.compile(r"(?<=[^\s`])[ \t]*+(```(?:python|py)\b[^\n`]*\n)", re.IGNORECASE)
_PYTHON = re.compile(r"^\{?\.?(?:python|py|ipython)[\d.]*\b", re.IGNORECASE)


def extract_code(completion: str) -> str:
    """The Python program that a completion gives as its answer.

    In this order:

    1. Reasoning, up to the last `</think>` and the like, is left out, and one that is never closed leaves nothing;
       within `<answer>` and `</answer>`, where both are there and hold something, the last such part alone is read.
    2. The last fenced block that is marked `python` or `py`, else the last one without a mark. A fence is three or
       more backticks or tildes at the start of a line; with its mark it may also end one. Blocks of other languages
       are no programs.
    3. A block that was never closed, as when the length ran out, counts only where there is no closed one.
    4. Without any fence, the whole text. Prose then fails as a program, which is what it is.

    The time is linear in the length of the text.
    """
    behind = without_reasoning(completion)
    if behind is None:
        return ""
    text = behind.replace("\r\n", "\n")
    text = _GLUED.sub(r"\n\1", text)
    head, opening, _ = text.rpartition("<answer>")
    if opening:
        inside = text[len(head) + len(opening) :].partition("</answer>")[0]
        text = inside if inside.strip() else text
    closed, left_open, fenced = _blocks(text)
    for blocks in (closed, left_open):
        for marked in (True, False):
            found = [
                code for mark, code in blocks if bool(_PYTHON.match(mark)) == marked and (marked or not mark)
            ]
            if found:
                return found[-1]
    return "" if fenced else text.strip("\n")


def _blocks(text: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]], bool]:
    """(mark, code) of the closed blocks in order, of one that is left open, and whether there is any fence."""
    closed: list[tuple[str, str]] = []
    opening: re.Match[str] | None = None
    fenced = False
    for fence in _FENCE.finditer(text):
        fenced = True
        if opening is None:
            opening = fence
            continue
        same_kind = fence[1][0] == opening[1][0] and len(fence[1]) >= len(opening[1])
        if same_kind and not fence[2].strip():
            closed.append((opening[2].strip(), _code(text[opening.end() : fence.start()])))
            opening = None
    if opening is None:
        return closed, [], fenced
    rest = text[opening.end() :]
    glued = rest.rstrip()
    if glued.endswith(opening[1]):  # closed at the end of the last line of code
        closed.append((opening[2].strip(), _code(glued[: -len(opening[1])])))
        return closed, [], fenced
    return closed, [(opening[2].strip(), _code(rest))], fenced


def _code(block: str) -> str:
    """The lines of a block without the indent that a list or a quotation gave them all."""
    lines = block.removeprefix("\n").split("\n")
    if any(line.strip() for line in lines) and all(
        line.lstrip().startswith(">") or not line.strip() for line in lines
    ):
        lines = [re.sub(r"^\s*> ?", "", line) for line in lines]
    return textwrap.dedent("\n".join(lines)).strip("\n") + "\n"
