r"""Answers within sentences: where one begins, how far it goes, and formulas between dollar signs."""

from __future__ import annotations

import re

from groupwise.rewards.mathematics.expressions import FUNCTIONS
from groupwise.rewards.mathematics.spelling import GREEK
from groupwise.rewards.mathematics.vocabulary import vocabulary

MAX_FORMULA = 1000
"""Longest formula that is looked at."""

_FILLERS = re.compile(
    r"(?:[\s*_:=~`>\"'“‘]|\\(?:approx|quad|,|;|:)|≈"
    r"|\b(?:approximately|about|roughly|around|exactly|equal to|simply|just|only|therefore|thus|indeed|still"
    r"|always|clearly|option|choice|letter|the number|the value|the|a total of|total of|given by|then|also|so|at least"
    r"|at most|up to|probably|likely|obviously|hence|now|either|both)\b(?!\s*=))+",
    re.IGNORECASE,
)
_VALUE = re.compile(
    r"""[-+−–±]?\s?[$€£¥₹]?\s?[-+]?(?:\d|\.\d)
      | [½¼¾⅐-⅞↉√∞∅π({\[]
      | \\(?:boxed|frac|dfrac|tfrac|sqrt|pi|text|mathrm|textbf|mathbf|begin|infty|emptyset|varnothing|left|pm|langle
           |\{|\$|\(|\[|sin|cos|tan|ln|log|binom|dbinom|alpha|beta|theta|lambda|mathbb|displaystyle|lfloor|lceil|cos|arc[a-z]+)
      | (?:negative|minus)\s+[\d$.\\]
      | \$ | [-+]\s?[a-z](?![a-z])
      | [A-J](?![A-Za-z'])
      | [a-zA-Z](?:_\{?\w\}?|\([a-z]\))?\s*(?:[=<>≤≥^+*/)-]|\\(?:le|ge|in|ne|lt|gt|cdot)\b)
      | [a-z](?=[\s.,;$*]*$)
      | (?:(?:twen|thir|for|fif|six|seven|eigh|nine)ty|zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven
           |twelve|(?:thir|four|fif|six|seven|eigh|nine)teen)\b(?!\ of\b)
      | (?:yes|no|true|false|sqrt|pi|infinity|none|undefined|dne)\b(?!\s+(?:real\s+)?[a-z]{3,})
      | no\ (?:real\ )?solutions?\b
      | (?:sin|cos|tan|ln|log|max|min)\s?\(""",
    re.VERBOSE,
)
_CHUNK = re.compile(
    r"\\text\s*\{[^{}]*\}|\\begin\{[a-zA-Z]*\}|\\[A-Za-z]+|\\.|[^\W\d_]+(?:'[a-z]+)?|\d(?:[.,'\xa0_]?\d)*|\s+|.",
    re.DOTALL,
)
_STOP = vocabulary(
    "because since as which where when if but not who whose for after before by from with while thus "
    "therefore hence that than this these those is are was were has have had will would can could may "
    "might i we he she it they you there then rounded approximately about roughly respectively assuming "
    "given using only due giving making meaning instead however although though so equals answer"
)
_OPERATORS = frozenset(["plus", "minus", "times", "divided", "multiplied", "over", "x", "squared", "cubed"])
_HEDGED = re.compile(
    r"\s*(?:maybe|perhaps|possibly|even|it could be|it might be|could be|might be)?\s*", re.IGNORECASE
)
_MAYBE = re.compile(
    r"\b(or|and)\s+(?:(?:it\s+)?(?:could|might|may)\s+(?:also\s+)?be|maybe|perhaps|possibly|also|even)\b",
    re.IGNORECASE,
)
_ABOUT = re.compile(r"\s*(?:about|approximately|roughly|around|nearly|≈|\\approx)", re.IGNORECASE)
_CURRENCY = re.compile(r"\$\s?-?\d[\d,]*(?:\.\d+)?(?=[\s.,;:!?)*%]|$|[-/](?:[a-z]|$))")
_MATH_WORDS = re.compile(r"\\text\s*\{[^{}]*\}|\\[A-Za-z]+")


def starts_like_an_answer(text: str) -> bool:
    """True when a text, after words such as "about", begins with something that can be an answer."""
    return _VALUE.match(text, _content(text)) is not None


def _content(text: str) -> int:
    match = _FILLERS.match(text)
    return match.end() if match else 0


def math_as_text(text: str) -> str:
    r"""The text without the delimiters of its formulas. A dollar sign that is money stays."""
    if "\\(" in text or "\\[" in text:
        text = re.sub(r"(?<!\\)\\[()\[\]]", " ", text)
    if "$" not in text:
        return text
    pieces, at = [], 0
    for start, end, inside in _formulas(text):
        pieces += [text[at:start], inside]
        at = end
    pieces.append(text[at:])
    return "".join(pieces)


def _formulas(text: str) -> list[tuple[int, int, str]]:
    """The formulas between dollar signs: where each begins and ends, and its inside."""
    found: list[tuple[int, int, str]] = []
    signs = [m.start() for m in re.finditer(r"(?<!\\)\$", text)]
    i = 0
    while i < len(signs) - 1:
        start = signs[i]
        double = signs[i + 1] == start + 1
        if double:
            end = next((k for k in range(i + 2, len(signs) - 1) if signs[k + 1] == signs[k] + 1), None)
            if end is None:
                i += 2
                continue
            found.append((start, signs[end] + 2, text[start + 2 : signs[end]]))
            i = end + 2
            continue
        inside = text[start + 1 : signs[i + 1]]
        if _is_formula(text, start, signs[i + 1], inside):
            found.append((start, signs[i + 1] + 1, inside))
            i += 2
        else:
            i += 1
    return found


def _is_formula(text: str, start: int, end: int, inside: str) -> bool:
    """Whether two dollar signs enclose a formula, not two sums of money."""
    if not inside.strip() or len(inside) > MAX_FORMULA or "\n\n" in inside:
        return False
    if text[end + 1 : end + 2].isdigit() and inside[-1:] in " -/(":
        return False
    if _CURRENCY.match(text, start) and (inside[-1:].isspace() or text[end + 1 : end + 2].isdigit()):
        return False
    words = re.findall(r"[A-Za-z]{3,}", _MATH_WORDS.sub(" ", inside))
    return all(word in FUNCTIONS or word in GREEK for word in words)


def last_formula(text: str) -> tuple[int, int, str] | None:
    r"""The last formula that states something: where it begins and ends, and its inside with a unit behind it.

    A single letter, `$x$`, names something and states nothing.
    """
    tail = max(0, len(text) - 4000)
    found = _formulas(text[tail:])
    for match in re.finditer(r"\\\((.{1,1000}?)\\\)|\\\[(.{1,1000}?)\\\]", text[tail:], re.DOTALL):
        found.append((match.start(), match.end(), match[1] or match[2]))
    for start, end, inside in sorted(found, reverse=True):
        if re.fullmatch(r"\s*[A-Za-z]?(?:_\{?\w+\}?)?(?:\([a-z]\))?\s*", inside):
            continue
        behind = re.match(
            r"\s?(?:\\?%|\\text\s*\{[^{}]{1,30}\}|[A-Za-z]{1,12}(?:\^\{?\d\}?|²|³)?(?=[\s.,;]|$))?",
            text[tail + end :],
        )
        inside = inside.strip()
        inside = inside.rstrip(".,;")
        taken = behind[0] if behind is not None else ""
        if taken.strip().lower() in _STOP | {
            "and",
            "or",
            "in",
            "of",
            "to",
            "at",
            "on",
            "the",
            "left",
            "each",
        }:
            taken = ""
        return tail + start, tail + end, inside + taken
    return None


def line_at(text: str, start: int) -> str:
    """The rest of a line from `start`, 400 characters at most."""
    end = text.find("\n", start)
    return text[start : min(len(text) if end < 0 else end, start + 400)]


def leading_answer(text: str) -> str:
    """The answer that a text begins with: `18 eggs per day, since` gives `18 eggs per day`.

    Further values joined by commas, "and" or "or" belong to it, so that an answer that names several is seen to do so.
    """
    text = _MAYBE.sub(r"\1", text)
    begin = _content(text)
    depth, words, ended = 0, 0, len(text)
    seen = False
    for match in _CHUNK.finditer(text, begin):
        chunk, at = match[0], match.start()
        rest = text[match.end() : match.end() + 60]
        if chunk == "\n" and seen and depth <= 0:
            ended = at
            break
        if chunk.isspace():
            continue
        if chunk[0] in "([{":
            if depth == 0 and chunk == "(" and seen and _is_aside(text, at):
                ended = at
                break
            depth += 1
        elif chunk[0] in ")]}":
            depth -= 1
            if depth < 0:
                ended = at
                break
        if depth > 0 or chunk.startswith("\\"):
            seen = True
            continue
        if _breaks_off(text, at, chunk, rest, seen):
            ended = at
            break
        if chunk[0].isdigit():
            if words and not re.search(
                r"(?:\b(?:to|through|till|until|vs|versus)|and|or|,|;|/|\^|-)\s*(?:\w+\s+)?[$€£]?-?$",
                text[begin:at],
            ):
                ended = at
                break
            seen = True
            words = 0
        elif chunk in ",;":
            if not _goes_on(rest):
                ended = at
                break
        elif chunk[0].isalpha():
            low = chunk.lower()
            if low in ("and", "or"):
                if _ABOUT.match(rest) or not _goes_on(rest):
                    ended = at
                    break
                words = 0
                continue
            if len(chunk) == 1 and low not in ("a",) and not (chunk == "I" and rest[:1] == " "):
                seen = True
                continue
            if low in _OPERATORS and seen and _VALUE.match(rest.lstrip()):
                continue
            if low in _STOP or (low == "a" and seen):
                ended = at
                break
            if low in FUNCTIONS or low in GREEK or low in ("pi", "infinity", "maybe", "perhaps", "possibly"):
                seen = True
                continue
            words += 1
            seen = True
            if words > 5:
                ended = at
                break
        else:
            seen = seen or chunk not in "*_-+$"
    quotes = "\"'”’" if re.search(r"[\"'“‘]", text[:begin]) else ""
    return text[begin:ended].rstrip(" ,;:*_\n" + quotes)


def _breaks_off(text: str, at: int, chunk: str, rest: str, seen: bool) -> bool:
    """Whether a sentence ends here, or a dash or a table's bar sets off what follows."""
    if chunk in ".!?":
        return not rest or rest[0].isspace() or rest[0] in "*_\"'$)"
    doubted = r"\s*$|\s+(?!maybe|perhaps|possibly|or\b|no\b|wait)[A-Za-z]{2,}|\s*\|"
    return chunk in "-|" and seen and text[at - 1 : at].isspace() and re.match(doubted, rest) is not None


def _is_aside(text: str, at: int) -> bool:
    """Whether a bracket behind a space holds words, not a part of the answer."""
    inside = re.match(r"\([^()\n]{0,200}", text[at : at + 202])
    if inside and re.match(r"\(\s*(?:i\.e|e\.g|=|≈|\\approx)", inside[0]):
        return True
    words = re.findall(r"[A-Za-z]{2,}", _MATH_WORDS.sub(" ", inside[0])) if inside else []
    if inside and re.search(r"\b(?:or|maybe|perhaps|possibly|alternatively)\b[^a-z]*\d", inside[0]):
        return False  # `18 (or 19)` names two
    return text[at - 1 : at].isspace() and any(word not in FUNCTIONS and word not in GREEK for word in words)


def _goes_on(rest: str) -> bool:
    """Whether another value follows a comma, "and" or "or"."""
    rest = re.sub(r"^\s*(?:and|or)\b", "", rest.lstrip(), flags=re.IGNORECASE)
    if _ABOUT.match(rest):
        return False
    hedged = _HEDGED.match(rest)
    rest = rest[hedged.end() :] if hedged else rest
    value = _VALUE.match(rest)
    if value is None:
        return False
    return not (
        value[0][:1].isalpha() and value[0][0].isupper() and re.match(r"[A-Z]\s+[a-z]{2,}", rest) is not None
    )
