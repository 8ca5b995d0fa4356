r"""The words of an answer: numbers, commands, letters and signs, each with where it stands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from groupwise.rewards.mathematics.nodes import UnreadableError
from groupwise.rewards.mathematics.spelling import closing

MAX_TOKENS = 400
"""Longest answer that is read."""
MAX_FIGURES = 1000
"""Longest number that is read."""
MAX_TEN = 400
"""Largest power of ten behind an `e`."""


@dataclass(frozen=True, slots=True)
class Token:
    """One word of an answer."""

    kind: str
    """`number`, `command`, `word`, `text` or `sign`."""
    text: str
    """As written; without the backslash of a command, and the inside of a text."""
    spaced: bool
    """True when a space stands before it."""
    value: Fraction | None = None
    """Of a number."""
    grouped: bool = False
    """True when commas group its digits, so that it might be a list as well."""


_GROUPED = re.compile(
    r"""(?P<whole>[1-9]\d{0,2}(?P<mark>[,'_\xa0 ])\d{3}(?:(?P=mark)\d{3})*(?!\d)|[1-9]\d?(?:,\d\d)+,\d{3}(?!\d))
        (?:\.(?P<decimals>\d+))?(?![.,']\d)""",
    re.VERBOSE,
)
_EUROPEAN = re.compile(
    r"""(?P<whole>[1-9]\d{0,2}(?:\.\d{3})+),(?P<decimals>\d+)(?![.,]?\d)
      | (?P<whole_2>[1-9]\d{0,2}(?:\.\d{3}){2,})(?![.,]?\d)
      | (?P<whole_3>[1-9]\d{0,2}(?:[\ \xa0]\d{3})+),(?P<decimals_3>\d{1,2}|\d{4,})(?![.,]?\d)""",
    re.VERBOSE,
)
_PLAIN = re.compile(r"(?P<whole>\d+)(?:\.(?P<decimals>\d+)|\.(?![\d.]))?|\.(?P<only>\d+)")
_REPEATED = re.compile(
    r"""\\overline\s*\{(?P<bar>\d{1,40})\} | \\overline\s?(?P<bar_1>\d) | \\dot\s*\{(?P<dot>\d)\}
      | \((?P<round>\d{1,40})\) | \u0305""",
    re.VERBOSE,
)
_AND_SO_ON = re.compile(r"\s?(?:\.\.\.|\\ldots)")
_TEN = re.compile(r"[eE](?P<ten>[-+]?\d{1,4})(?![A-Za-z0-9.])")
_COMMAND = re.compile(r"\\([A-Za-z]+|.)")
_WORD = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")
_SPACE = re.compile(r"[\s\xa0]+")


def tokens(text: str, *, group: bool = True) -> list[Token]:
    r"""The words of a spelled answer.

    Args:
        text: an answer as `spell` gives it.
        group: commas may group digits where no bracket is open; `1,234` is one number then.

    Raises:
        UnreadableError: it is too long, or holds a character that answers do not hold.
    """
    found: list[Token] = []
    depth, at, spaced = 0, 0, False
    while at < len(text):
        if len(found) >= MAX_TOKENS:
            raise UnreadableError(f"it has more than {MAX_TOKENS} parts")
        space = _SPACE.match(text, at)
        if space:
            at, spaced = space.end(), True
            continue
        character = text[at]
        if character.isdigit() or (character == "." and text[at + 1 : at + 2].isdigit()):
            token, at = _number(text, at, spaced, group=group and depth == 0)
        elif character == "\\":
            token, at = _command(text, at, spaced)
        elif character.isalpha():
            word = _WORD.match(text, at)
            end = word.end() if word else at + 1
            token, at = Token("word", text[at:end], spaced), end
        else:
            token, at = Token("sign", character, spaced), at + 1
        if token.kind == "sign" or (token.kind == "command" and token.text in "{}"):
            depth += (token.text in "([{") - (token.text in ")]}")
        found.append(token)
        spaced = False
    return found


def _command(text: str, at: int, spaced: bool) -> tuple[Token, int]:
    match = _COMMAND.match(text, at)
    if match is None:
        raise UnreadableError("it ends in a backslash")
    if match[1] == "text":
        start = match.end()
        while text[start : start + 1].isspace():
            start += 1
        end = closing(text, start) if text.startswith("{", start) else None
        if end is None:
            raise UnreadableError("a brace is never closed")
        return Token("text", text[start + 1 : end].strip(), spaced), end + 1
    return Token("command", match[1], spaced), match.end()


def _number(text: str, at: int, spaced: bool, *, group: bool) -> tuple[Token, int]:
    match = _EUROPEAN.match(text, at) if group else None
    if match is not None:
        whole = match["whole"] or match["whole_2"] or match["whole_3"]
        decimals = match["decimals"] or match["decimals_3"] or ""
        return _finished(text, match, re.sub(r"[.\s\xa0]", "", whole), decimals, spaced, False)
    match = _GROUPED.match(text, at)
    if match is not None and (group or match["mark"] not in (None, ",")):
        comma = "," in match["whole"]
        whole = re.sub(r"[,'_\s\xa0]", "", match["whole"])
        return _finished(text, match, whole, match["decimals"] or "", spaced, comma)
    match = _PLAIN.match(text, at)
    if match is None:  # a digit that is none of 0 to 9
        raise UnreadableError("it holds a digit of no number")
    return _finished(
        text, match, match["whole"] or "0", match["decimals"] or match["only"] or "", spaced, False
    )


def _finished(
    text: str, match: re.Match[str], whole: str, decimals: str, spaced: bool, grouped: bool
) -> tuple[Token, int]:
    if len(whole) + len(decimals) > MAX_FIGURES:
        raise UnreadableError(f"it holds a number of more than {MAX_FIGURES} digits")
    value = Fraction(int(whole + decimals), 10 ** len(decimals))
    end = match.end()
    written = text[match.start() : end]
    repeated = _REPEATED.match(text, end) if "." in written or (decimals and "," in written) else None
    if repeated is not None and repeated[0] == "\u0305":
        value, end = _with_period(whole, decimals[:-1], decimals[-1:]), repeated.end()
    elif repeated is not None:
        figures = repeated["bar"] or repeated["bar_1"] or repeated["dot"] or repeated["round"]
        value, end = _with_period(whole, decimals, figures), repeated.end()
    else:
        more = _AND_SO_ON.match(text, end) if decimals else None
        if more is not None:
            value, end = _continued(whole, decimals), more.end()
        ten = _TEN.match(text, end)
        if ten is not None and abs(int(ten["ten"])) <= MAX_TEN:
            value, end = value * Fraction(10) ** int(ten["ten"]), ten.end()
    return Token("number", text[match.start() : end], spaced, value, grouped), end


def _with_period(whole: str, decimals: str, period: str) -> Fraction:
    """A repeating decimal: 0.1 with the period 6 is 1/6."""
    if not period:
        raise UnreadableError("it holds a repeating decimal without a period")
    fixed = Fraction(int(whole + decimals), 10 ** len(decimals))
    return fixed + Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(decimals))


def _continued(whole: str, decimals: str) -> Fraction:
    """A decimal that goes on, `0.333...`: only where what repeats is seen three times, or twice if it is longer."""
    for length in range(1, len(decimals) // 2 + 1):
        times = 3 if length == 1 else 2
        period = decimals[-length:]
        if decimals.endswith(period * times):
            kept = decimals
            while kept.endswith(period):
                kept = kept[:-length]
            return _with_period(whole, kept, period)
    raise UnreadableError("it holds a decimal that goes on without a period")
