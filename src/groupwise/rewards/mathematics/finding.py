r"""Where the answer of a completion stands.

What is read, in this order:

1. Reasoning up to the last `</think>` is left out; a `<think>` that is never closed leaves nothing.
2. Inside `<answer>...</answer>`, if there is one, the last counts.
3. A statement: a `\boxed{}`, a `####` line, or "the answer is". The last one in the text counts. Several boxes or
   `####` lines with nothing between them but "or", "and" or commas are one answer that lists several values.
4. Without a statement: a text of one line, or the last line, when it is nothing but an answer; else the last formula
   or number of the text.

Nothing is taken from 4 out of a question, out of a sentence of the prompt, or where words deny it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from groupwise.rewards.mathematics.nodes import UnreadableError
from groupwise.rewards.mathematics.prose import leading_answer, math_as_text, starts_like_an_answer
from groupwise.rewards.mathematics.spelling import closing
from groupwise.rewards.numbers import characters

MAX_STATEMENTS = 64
"""Boxes, and other statements, that are looked at, from the end."""
MAX_READ = 50_000
"""Characters, from the end, in which an answer is looked for once the reasoning is left out."""


@dataclass(frozen=True, slots=True)
class Found:
    """The answer of a completion."""

    text: str
    """As written, for `reading.readings`."""
    where: str
    """`box`, `marker`, `statement`, `whole`, `formula` or `number`."""
    boxes: tuple[str, ...] = field(default=())
    """All different boxes of the text, which together may be the answer where it has several values."""


_THINKING = re.compile(r"<(/?)(think|thinking|thought|reasoning|scratchpad)>", re.IGNORECASE)
_CALCULATED = re.compile(r"<<[^<>\n]{0,100}>>")
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,3}|__)([^\s*](?:[^*\n]{0,200}[^\s*])?)\1(?![\w*])")
_TAG = re.compile(r"<(/?)answer>", re.IGNORECASE)
_BOX = re.compile(r"\\f?boxed(?![a-zA-Z])\s{0,3}|\\fbox(?![a-zA-Z])\s{0,3}")
_MARKER = re.compile(r"(?<!#)####(?!#)[ \t\xa0]*")
_HEADING = re.compile(r"(?:step|part|case|method|solution|problem)\b|\d+[.):][ \t]+[^\W\d]", re.IGNORECASE)
_BETWEEN = re.compile(
    r"(?:[\s,;/$&~.]|\\[;,! ()\[\]]|\\\\|\\q?quad|\\(?:text|mathrm|textrm)\{|\}|\\\{|\\\}"
    r"|\b(?:and|or|final|correct|my|maybe|perhaps|possibly|either|otherwise|else|alternatively|also|could|be|it|is|might|then|so|the"
    r"|answer|not)\b|\\vee|\\wedge|\\cup|[xyzabcn]\s*=)*",
    re.IGNORECASE,
)
_STATEMENT = re.compile(
    r"""\b(?: answers?
          | (?:solutions|roots|zeros|zeroes|values) (?=\ (?:of\ \S{1,20}\ )?are\b)
          | final\ (?:result|value|total)
          | (?:correct|right)\ (?:option|choice|letter) )\b
        (?: [^.\n:=?!<>]{0,60}?
            (?: \b(?:is|are|was|equals?|(?:will|would|should|must)\ be|becomes)\b (?:\ ?:)? | [:=] )
          | (?<=final\ answer) | (?<=Final\ Answer) | (?<=FINAL\ ANSWER) )
        [\s*_:=#>]{0,12}""",
    re.VERBOSE | re.IGNORECASE,
)
_DENIED = re.compile(
    r"\s*(?:definitely |certainly |clearly )?(?:not|never|isn't|anything but|unlikely|wrong|incorrect)\b",
    re.IGNORECASE,
)
_DENIED_AFTER = re.compile(
    r"[\s})\]$.\\*]{0,6}(?:is|was|are|would be|seems|looks)\s+(?:a\s+|the\s+)?(?:wrong|incorrect|not|false|mistake)\b",
    re.IGNORECASE,
)
_DENIED_BEFORE = re.compile(
    r"(?:\b(?:not|n't|never|rather than|instead of|except|isn't|other than|more than|less than|fewer than|greater than|"
    r"wrong|unlike)|[<>≠]|\\(?:ne|lt|gt)q?)\s*(?:be\s+|equal to\s+|just\s+|exactly\s+|simply\s+)?[$*_(]*$",
    re.IGNORECASE,
)
_LISTED_BEFORE = re.compile(
    r"""(?<![\d.,]) [-+$]?\d[\d.]*
        (?: \s*[,;/]?\s*(?:or|and)\s+(?:(?:maybe|perhaps|possibly|even)\ )?
          | \s*,\s*[-+$]?\d[\d.]*\s*,\s*(?:(?:and|or)\ )?
          | \s+[-+$]?\d[\d.]*\s+ ) [$*_]*$""",
    re.VERBOSE | re.IGNORECASE,
)
_BEHIND_BOX = re.compile(
    r"(?P<taken>\s*(?:\\?%|\^\s*\{?\\circ\}?|°|\\degree)|[\s~$]*\\(?:text|mathrm|textrm)\s*\{[^{}]{1,30}\}(?:\s?\^\{?\d\}?)?)"
    r"|(?P<goes_on>\s*(?:[/^!*+]|\\(?:cdot|times|div|frac|sqrt|pi)(?![a-z]))|\d)"
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


def find_answer(completion: str, *, kind: str = "value", prompt: str | None = None) -> Found:
    """The answer of a completion.

    Args:
        completion: the text.
        kind: what is looked for without a statement: `value`, `choice`, `words`, or `formula` for a formula that the
            grammar does not know.
        prompt: the question, of which an echo is no answer; None where it is not known.

    Raises:
        UnreadableError: there is none, or it was taken back; says why.
    """
    text = _without_reasoning(characters(completion).replace("\r\n", "\n"))
    text = _EMPHASIS.sub(r"\2", _CALCULATED.sub("", text))
    tagged = _tagged(text)
    if tagged is not None:
        if not tagged.strip():
            raise UnreadableError("the answer tag is empty")
        text = tagged
    elif prompt is not None:
        text = _without_echo(text, characters(prompt))
    text = text[-MAX_READ:]
    found = _latest(text, kind)
    if found is not None:
        return found
    return _unstated(text, kind, prompt, tagged is not None)


def gold_answer(text: str) -> str:
    r"""The answer in a text of the data: what follows the last `####`, or stands in the last box, or the whole.

    A whole solution without either is read by its statement, "the answer is".

    Raises:
        UnreadableError: there is none.
    """
    text = characters(text).strip()
    if not text:
        raise UnreadableError("it is empty")
    if "####" in text:
        return text.rpartition("####")[2]
    boxes = _boxes(text)
    if boxes:
        return _joined(text, boxes)
    stated = None
    for match in _STATEMENT.finditer(text):
        if starts_like_an_answer(text[match.end() : match.end() + 40]):
            stated = leading_answer(_line(text, match.end()))
    return text if stated is None else stated


def _without_reasoning(text: str) -> str:
    open_at, close_at = None, None
    for match in _THINKING.finditer(text):
        if match[1]:
            close_at, open_at = match.end(), None
        elif open_at is None:
            open_at = match.end()
    if open_at is not None:
        raise UnreadableError("the reasoning was never closed")
    return text if close_at is None else text[close_at:]


def _tagged(text: str) -> str | None:
    """The inside of the last answer tag; None without one. A tag that a stop text cut off counts to the end."""
    start, end = None, None
    for match in _TAG.finditer(text):
        if not match[1]:
            start, end = match.end(), None
        elif start is not None and end is None:
            end = match.start()
    if start is None:
        return None
    return text[start : len(text) if end is None else end]


def _without_echo(text: str, prompt: str) -> str:
    """The text without the question at its start."""
    question = prompt.strip()
    stripped = text.lstrip()
    return stripped[len(question) :] if len(question) >= 20 and stripped.startswith(question) else text


def _latest(text: str, kind: str) -> Found | None:
    """The last statement of the text, if there is any."""
    boxes = _boxes(text)
    box_at = boxes[-1][0] if boxes else -1
    marker = _marked(text, box_at)
    marker_at = marker[0] if marker else -1
    stated = _stated(text, max(box_at, marker_at), kind)
    if stated is not None:
        start, answer = stated
        before: list[tuple[int, str]] = []
        if boxes and boxes[-1][2] >= 0:
            before.append((boxes[-1][2] + 1, _inside(text, boxes[-1])))
        if marker is not None:
            before.append((text.find("\n", marker_at), marker[1]))
        end, said = max(before, default=(-1, ""))
        if end >= 0 and start - end < 60 and _BETWEEN.fullmatch(text[end:start]):
            answer = _listed([said, answer])
        return Found(answer, "statement")
    if marker is not None:
        return Found(marker[1], "marker")
    if not boxes:
        return None
    last = boxes[-1]
    if last[2] < 0:
        raise UnreadableError("the last box was never closed")
    if _DENIED_AFTER.match(text, last[2]):
        raise UnreadableError("the last box was taken back")
    answer = _joined(text, boxes)
    if not answer.strip():
        raise UnreadableError("the box is empty")
    different = tuple(dict.fromkeys(_inside(text, box).strip() for box in boxes))
    return Found(answer, "box", different if len(different) > 1 else ())


Box = tuple[int, int, int]
"""Where a box begins, where its inside begins, and where the inside ends; -1 for a box that was cut off."""


def _boxes(text: str) -> list[Box]:
    """The last boxes of a text that are not empty; an instruction to use an empty one is none."""
    starts = list(_BOX.finditer(text))[-MAX_STATEMENTS:]
    boxes: list[Box] = []
    empty = 0
    for match in starts:
        if text.startswith("{", match.end()):
            end = _closing_before(text, match.end(), 4000)
            box = (match.start(), match.end() + 1, -1 if end is None else end)
        else:
            bare = re.compile(r"[^\s$.,;]{1,40}").match(text, match.end())
            box = (match.start(), match.end(), bare.end() if bare else match.end())
        if box[2] >= 0 and not text[box[1] : box[2]].strip(" {}"):
            empty += 1
        else:
            boxes.append(box)
    if empty and not boxes:
        raise UnreadableError("the box is empty")
    return boxes


def _closing_before(text: str, start: int, limit: int) -> int | None:
    end = closing(text[start : start + limit], 0)
    return None if end is None else start + end


def _inside(text: str, box: Box) -> str:
    """What a box holds, with the sign before it and the unit behind it."""
    start, inside, end = box
    answer = text[inside : end if end >= 0 else len(text)]
    nested = list(_BOX.finditer(answer))
    if nested:
        answer = answer.replace(r"\boxed", "").replace(r"\fbox", "")
    before = text[max(0, start - 8) : start].rstrip(" $")
    if before.endswith("-") and not re.search(r"[\w)}\]]\s*-$", before):
        answer = f"-({answer})" if re.search(r"[+\-,]", answer) else "-" + answer
    behind = _BEHIND_BOX.match(text, end + 1) if end >= 0 and text[end : end + 1] == "}" else None
    if behind is not None and behind["goes_on"] is not None:
        raise UnreadableError("the formula goes on behind the box")
    return answer + (behind["taken"].replace("$", " ") if behind is not None else "")


def _joined(text: str, boxes: list[Box]) -> str:
    """The last box, together with those before it that are parts of the same list."""
    run = [boxes[-1]]
    for box in reversed(boxes[:-1]):
        if box[2] < 0 or box[2] > run[0][0]:
            break
        between = text[box[2] + 1 : run[0][0]]
        if len(between) > 60 or not _BETWEEN.fullmatch(between):
            break
        run.insert(0, box)
    return _listed([_inside(text, box).strip() for box in run])


def _listed(answers: list[str]) -> str:
    """Answers that stand side by side as one that lists them; once what is written alike."""
    different: dict[str, str] = {}
    for answer in answers:
        different.setdefault(re.sub(r"[\s*_(){}.$]", "", answer), answer)
    return " ; ".join(different.values())


def _line(text: str, start: int) -> str:
    end = text.find("\n", start)
    return text[start : min(len(text) if end < 0 else end, start + 400)]


def _marked(text: str, after: int) -> tuple[int, str] | None:
    """The last `####` behind `after` that is no heading, and its answer; lines that follow each other are a list."""
    lines: list[tuple[int, int, str]] = []
    for match in _MARKER.finditer(text):
        line = _line(text, match.end())
        content = line.strip().strip("*_` \t")
        if content and not _HEADING.match(content) and starts_like_an_answer(content):
            lines.append((match.start(), match.end() + len(line), content))
    lines = lines[-MAX_STATEMENTS:]
    if not lines or lines[-1][0] <= after:
        return None
    run = [lines[-1]]
    for line_ in reversed(lines[:-1]):
        if text[line_[1] : run[0][0]].strip():
            break
        run.insert(0, line_)
    answer = _listed([leading_answer(math_as_text(item[2])) for item in run])
    return run[-1][0], answer


def _stated(text: str, after: int, kind: str) -> tuple[int, str] | None:
    """The last "the answer is" behind `after` that is followed by an answer: where it stands, and the answer."""
    found: tuple[int, str] | None = None
    denied = False
    for match in list(_STATEMENT.finditer(text, max(0, after)))[-MAX_STATEMENTS:]:
        rest = text[match.end() : match.end() + 400]
        if _DENIED.match(rest):
            found, denied = None, True
            continue
        if _BOX.match(rest.lstrip(" $*")) or _MARKER.match(rest):
            continue
        line = _line(text, match.end())
        if not line.strip("*_ $"):
            line = _line(text, match.end() + len(line) + 1)
        if starts_like_an_answer(line):
            found, denied = (match.start(), leading_answer(math_as_text(line))), False
        elif kind == "words" and re.match(r"[$*_\s]*(?:\\text\s*\{)?[^\W\d_]", line):
            words = re.split(r"[.,;!?\n(]|\s(?:because|since|as|so|which|but)\s", math_as_text(line))[0]
            found, denied = (match.start(), words.strip(" *_")), False
    if denied and after < 0:
        raise UnreadableError("the answer is denied, and no other is stated")
    return found if found is not None and found[1] else None


def _unstated(text: str, kind: str, prompt: str | None, tagged: bool) -> Found:
    """An answer that nothing announces."""
    stripped = text.strip().strip("*_` ")
    if not stripped:
        raise UnreadableError("there is no answer")
    lines = [line.strip() for line in stripped.split("\n") if line.strip(" $\\[]")]
    if len(lines) <= 1 or tagged or r"\begin{" in stripped:
        whole = _bare(stripped, kind)
        if whole is not None:
            return Found(whole, "whole")
    if not lines:
        raise UnreadableError("there is no answer")
    if stripped.endswith("?") or re.search(r"\?\s*[\"')*]*$", stripped):
        raise UnreadableError("it ends in a question")
    if len(lines) > 2 and all(re.fullmatch(r"[-+$]?[\d.,]*\d[.,;]?", line) for line in lines[-3:]):
        raise UnreadableError("it ends in a list of numbers")
    last = _bare(lines[-1], kind)
    if last is not None and not _echoes(lines[-1], prompt):
        return Found(last, "whole")
    if kind == "formula" and len(lines) == 1 and not re.search(r"(?<![\\A-Za-z])[A-Za-z]{4,}", stripped):
        return Found(math_as_text(stripped).strip(), "whole")
    if last is None and not re.search(r"(?<![\\A-Za-z])[A-Za-z]{2,}", lines[-1]):
        raise UnreadableError("its last line is a formula that cannot be read")
    if kind == "choice":
        return Found(_last_choice(stripped), "whole")
    if kind == "words":
        return Found(_last_words(stripped, lines[-1]), "whole")
    return _last_value(stripped, prompt)


def _bare(text: str, kind: str) -> str | None:
    """A text that is nothing but an answer, without the formula's delimiters; None when it is anything else."""
    from groupwise.rewards.mathematics.reading import MAX_ANSWER, readings
    from groupwise.rewards.mathematics.shapes import Words

    if len(text) > MAX_ANSWER:
        return None
    text = re.sub(
        r"^(?:[-*•]\s+|(?:so|thus|hence|therefore|total|ans|result)\b[\s,:=]*|=\s*)+",
        "",
        text,
        flags=re.IGNORECASE,
    )
    plain = math_as_text(text).strip().strip("*_` ")
    if not plain or plain.endswith("?"):
        return None
    try:
        shapes = readings(plain, gold=False)
    except UnreadableError:
        return None
    if kind == "value" and all(isinstance(shape, Words) for shape in shapes):
        return None
    if kind == "value" and re.search(r"\b(?:is|are|was|were|has|have|had|will|then|each|if|for)\b", plain):
        return None
    return plain


def _echoes(sentence: str, prompt: str | None) -> bool:
    """True for a sentence of three words or more that stands in the prompt."""
    if prompt is None:
        return False
    wanted = " ".join(re.findall(r"\w+", sentence.casefold()))
    return wanted.count(" ") >= 2 and wanted in " ".join(re.findall(r"\w+", characters(prompt).casefold()))


def _last_choice(text: str) -> str:
    tail = text[-400:]
    found = re.findall(r"\(([A-J])\)|\b(?:option|choice)\s+\(?([A-J])\b", tail)
    if found:
        listed = re.search(r"\([A-J]\)\s*(?:,|or|and|/|\s)+\s*\([A-J]\)\W*$", tail)
        if listed:
            raise UnreadableError("several choices are listed")
        return str(found[-1][0] or found[-1][1])
    lone = re.search(r"(?<![\w,])([B-HJ]|A)[\s*_.)]*$", tail)
    if lone is None or re.search(r"\b[A-J]\b\s*(?:,|or|and|/|\s)\s*" + lone[1] + r"[\s*_.)]*$", tail):
        raise UnreadableError("no choice is stated")
    return lone[1]


def _last_words(text: str, last_line: str) -> str:
    first = re.match(r"\W{0,3}(yes|no|true|false)\b", text, re.IGNORECASE)
    if first is not None and not re.match(
        r"\W{0,3}(?:yes|no|true|false)\W+(?:or|and|yes|no|true|false)\b", text, re.IGNORECASE
    ):
        return str(first[1])
    return last_line


def _last_value(text: str, prompt: str | None) -> Found:
    """The last formula or number of a text, whichever ends later, if its sentence states it."""
    from groupwise.rewards.mathematics.prose import last_formula

    formula = last_formula(text)
    number = _last_number(text)
    if formula is None and number is None:
        raise UnreadableError("there is no number and no formula")
    if formula is not None and (number is None or number < formula[1]):
        start, end, answer, where = formula[0], formula[1], formula[2], "formula"
    else:
        assert number is not None
        start, where = number, "number"
        end = start + 1
        answer = leading_answer(_line(text, start))
    question = text.rfind("?")
    if question > end:
        raise UnreadableError("its last number stands in a question")
    before = _SENTENCE.split(text[max(0, start - 300) : start])[-1]
    if _DENIED_BEFORE.search(before):
        raise UnreadableError("its last number is denied")
    if _LISTED_BEFORE.search(before):
        raise UnreadableError("it ends in a list of numbers")
    after = _SENTENCE.split(text[start : start + 300])[0]
    if _DENIED_AFTER.search(after):
        raise UnreadableError("its last number is denied")
    if _echoes(before + after, prompt):
        raise UnreadableError("its last number stands in a sentence of the question")
    if not answer:
        raise UnreadableError("its last number cannot be read")
    return Found(answer, where)


def _last_number(text: str) -> int | None:
    """Where the last number of a text begins, its sign and currency included."""
    start = None
    for match in re.compile(r"(?<![\w.,/^])\d[\d.,'\xa0_/:]*|[½¼¾⅐-⅞]|√\S").finditer(text):
        start = match.start()
    if start is None:
        return None
    begin = start
    while begin > 0 and text[begin - 1] in "-+$€£¥₹.√" and start - begin < 3:
        begin -= 1
    if text[begin] in "-+" and begin > 0 and (text[begin - 1].isalnum() or text[begin - 1] in ")]}%"):
        begin += 1
    mixed = re.search(r"(?<![\w.,/])[-+]?\d+[ \xa0]$", text[max(0, begin - 12) : begin])
    if mixed is not None and re.match(r"\d+/\d+", text[begin:]):
        begin -= len(mixed[0])
    return begin
