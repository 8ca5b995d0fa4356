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

from groupwise.rewards.completions import without_reasoning
from groupwise.rewards.mathematics.moments import STARTS_LIKE_A_DATE
from groupwise.rewards.mathematics.nodes import UnreadableError
from groupwise.rewards.mathematics.prose import leading_answer, line_at, math_as_text, starts_like_an_answer
from groupwise.rewards.mathematics.spelling import closing
from groupwise.rewards.mathematics.unstated import DENIED_AFTER, Found, unstated
from groupwise.rewards.numbers import characters

MAX_STATEMENTS = 64
"""Boxes, and other statements, that are looked at, from the end."""
MAX_READ = 50_000
"""Characters, from the end, in which an answer is looked for once the reasoning is left out."""


_TURN_END = re.compile(r"(?:\s?(?:<\|[a-z_]{1,30}\|>|</s>|<eos>|<end_of_turn>)){1,3}$", re.IGNORECASE)
_STRUCK = re.compile(r"~~[^~\n]{1,200}~~|<(s|del|strike)>[^<>\n]{0,200}</\1>|\\sout\{[^{}\n]{0,100}\}")
_CALCULATED = re.compile(r"<<[^<>\n]{0,100}>>")
_RAISED = re.compile(r"<sup>([^<>\n]{1,20})</sup>", re.IGNORECASE)
_HTML = re.compile(
    r"</?(?:b|i|u|em|strong|span|p|sub|br|center|final|final_answer|output|result|solution|response)\s?/?>",
    re.IGNORECASE,
)
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,3}|__)([^\s*](?:[^*\n]{0,200}[^\s*])?)\1(?![\w*])")
_PICTURES = re.compile("[\U0001f000-\U0001faff\u2600-\u27bf\u2b00-\u2bff\ufe0f]|\\s[:;]-?[()DP](?=\\s|$)")
_PARTS = re.compile(
    r"(?<![\d./])(\d{1,9}) and (a half|one half|a third|one third|a quarter|one quarter|three quarters)\b",
    re.I,
)
_PART_OF = {
    "a half": "1/2",
    "one half": "1/2",
    "a third": "1/3",
    "one third": "1/3",
    "a quarter": "1/4",
    "one quarter": "1/4",
    "three quarters": "3/4",
}
_TAG = re.compile(r"<(/?)answer>", re.IGNORECASE)
_BOX = re.compile(r"\\(?:f?boxed|Boxed|fbox|framebox)(?![a-zA-Z])\s{0,3}")
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
          | solution (?=\ is\b)
          | final\ (?:result|value|total)
          | (?:correct|right|best|only\ possible)\ (?:option|choice|letter) )\b
        (?: [^.\n:=?!<>]{0,60}? \b(?:is|are|was|equals?|(?:will|would|should|must)\ be|becomes)\b (?:\ ?:)?
          | (?:\ (?:to\ (?:the|this|your)|for|in)\ [^.\n:=?!<>()]{0,40})?
            [\s*_"']{0,4} (?:\([^()\n]{0,30}\))? [\s*_"'}]{0,4} [:=]
          | (?<=final\ answer) | (?<=Final\ Answer) | (?<=FINAL\ ANSWER) )
        [\s*_:=#>]{0,12}""",
    re.VERBOSE | re.IGNORECASE,
)
_ALONE = r"[-+]?[$\\(]{0,3}[-+]?\d[\d,]*(?:\.\d+)?\s*(?:[.!?)$\\\n]|\Z|[a-z]{2,20}\s*(?:[.!?)\n]|\Z))"
"""A number that ends what it stands in, perhaps with its noun."""
_CORRECTED = re.compile(
    rf"""\b(?: (?:wait|actually|no|sorry|oops|hmm|hold\ on|i\ mean|scratch\ that|on\ second\ thou?ght)\b
            [\s,.!:;-]{{1,4}} ){{1,3}}
        (?: (?:it|that|this|the\ (?:answer|result|total|value|number)) (?:['’]s|\ is|\ was|\ equals)
            (?:\ actually|\ really|\ in\ fact)? | (?:it|that|this)\ (?:should|must|would)\ be )\s+
      | \b(?:correction|edit|my\ mistake|let\ me\ correct(?:\ that|\ this)?)\s?:\s*
      | \b(?: (?:wait|actually|sorry|oops|hmm|hold\ on|i\ mean|scratch\ that|just\ kidding|make\ that|rather
                 |on\ second\ thou?ght)\b [\s,.!:;-]{{1,4}}
            | nop?e?[,.:;!]\s{{0,3}} | no\ wait,?\s ){{1,3}} (?={_ALONE})
      | \b(?:but|in\ fact|in\ reality|in\ truth) [\s,]{{1,3}} (?:in\ fact[\s,]{{1,3}})?
        (?:it|that|the\ (?:answer|result|total|value|number)) (?:['’]s|\ is|\ was|\ equals)\s+ (?={_ALONE}) """,
    re.VERBOSE | re.IGNORECASE,
)
"""What takes back an answer that was stated before, and states another."""
_DENIED = re.compile(
    r"\s*(?:definitely |certainly |clearly |surely |obviously |probably |in fact )?"
    r"(?:not|never|isn't|anything but|unlikely|wrong|incorrect)\b",
    re.IGNORECASE,
)
_NOT_BUT = re.compile(r"\s*not\s+[^.,;\n]{1,60}?,?\s+but\s+(?:rather\s+|is\s+)?", re.IGNORECASE)
_NOT_MINE = re.compile(
    r"""(?: \b(?:wrong|incorrect|mistaken|erroneous|false|bad)\ (?:final\ )?
          | \b(?: (?:some|many|most|people|others|someone|somebody|students?|they)(?:\ people|\ students)?
                  (?:\ (?:might|may|could|would|will|often|sometimes))?
                | (?:one|you)\ (?:might|may|could|would) )
            \ (?:first\ )?(?:thinks?|says?|claims?|guess|believe|assume|argue|expect|suppose|thought|claimed|said
                         |guessed|believed)
            (?:\ that)? (?:\ the)? (?:\ final|\ correct|\ right)?\ )$""",
    re.VERBOSE | re.IGNORECASE,
)
"""What makes a statement behind it one that the text itself does not make."""
_OR_ANOTHER = re.compile(
    rf"""[\s$)\\,.]{{0,6}}\bor\s+(?:maybe\ |perhaps\ |possibly\ |even\ |it\ could\ be\ )?[$\\(]{{0,3}}[-+]?\d
      | [\s$)\\,.;:!?*_]{{0,8}} \(?\s?
        (?:\b(?:or|otherwise|alternatively|else|if\ not|failing\ that|maybe|perhaps|possibly)\b[\s,:]{{1,3}}){{1,3}}
        (?:(?:it|that|the\ answer)\ (?:is|could\ be|might\ be|may\ be|would\ be)\s+|it's\s+|even\s+)? (?={_ALONE})
      | [\s$)]{{0,3}}[,/|]\s*\$?-?\d[\d.,]*\s?\$?\s?[.!]?\s*(?:\n|\Z)
      | [*_$)]{{0,3}}\?\s*(?={_ALONE})
      | [\s$)*_.,;]{{0,6}}(?:it|that|the\ answer)\ (?:could|might|may)\ (?:also\ |equally\ |instead\ )?be\s+(?={_ALONE})
      | [\s$)*_.,;]{{0,6}}(?:(?:though|although|but|while|and)\s+)?[-+]?\$?\d[\d.,]*\s
        (?: (?:is|would\ be|could\ be)\ (?:also\ |another\ |an?\ ){{0,2}}
            (?:possible|option|plausible|acceptable|alternative|valid|correct|right|answer)
          | (?:also\ works|works\ (?:too|as\ well)))\b""",
    re.IGNORECASE | re.VERBOSE,
)
"""Another answer right behind one."""
_BY_CASE = re.compile(
    r"[\s$*)]*(?:if|when|unless|provided)\b[^.\n]{0,80}?(?:\botherwise\b|\belse\b"
    r"|[;,]\s*(?:and\s+|or\s+)?[-+$]{0,2}\d[\d.]*\s+(?:if|when|unless)\b)",
    re.IGNORECASE,
)
_WITHIN_FORMULA = re.compile(r"(?:\d|\\(?:sqrt(?:\[\d\])?|[dtc]?frac)\s?\{|\^\{?)$")
_BEHIND_BOX = re.compile(
    r"(?P<taken>\s*(?:\\?%|\^\s*\{?\\circ\}?|°|\\degree)|[\s~$]*\\(?:text|mathrm|textrm)\s*\{[^{}]{1,30}\}(?:\s?\^\{?\d\}?)?)"
    r"|(?P<goes_on>\s*(?:[/^!*+]|\\(?:cdot|times|div|frac|sqrt|pi)(?![a-z]))|\d)"
)


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
    text = without_reasoning(characters(completion).replace("\r\n", "\n"))
    if text is None:
        raise UnreadableError("the reasoning was never closed")
    text = _STRUCK.sub(" ", _CALCULATED.sub("", _TURN_END.sub("", text.rstrip())))
    text = _EMPHASIS.sub(r"\2", _HTML.sub("", _RAISED.sub(r"^{\1}", text)))
    text = _PARTS.sub(lambda m: f"{m[1]} {_PART_OF[m[2].lower()]}", _PICTURES.sub("", text))
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
    return unstated(text, kind=kind, prompt=prompt, tagged=tagged is not None)


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
            stated = leading_answer(line_at(text, match.end()))
    return text if stated is None else stated


def _tagged(text: str) -> str | None:
    """The inside of the last answer tag; None without one. A tag that a stop text cut off counts to the end.

    Tags with nothing between them are one answer that lists several.
    """
    spans: list[tuple[int, int]] = []
    start = None
    for match in _TAG.finditer(text):
        if not match[1]:
            start = match.end()
        elif start is not None:
            spans.append((start, match.start()))
            start = None
    if start is not None:
        return text[start:]
    if not spans:
        return None
    run = [spans[-1]]
    for span in spans[:-1][::-1][:MAX_STATEMENTS]:
        between = text[span[1] + len("</answer>") : run[0][0] - len("<answer>")]
        if len(between) > 60 or not _BETWEEN.fullmatch(between):
            break
        run.insert(0, span)
    return _listed([text[a:b].strip() for a, b in run])


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
    stated = _stated(text, max(box_at, boxes[-1][2] if boxes else -1, marker_at), kind)
    if stated is not None:
        start, answer, corrects = stated
        before: list[tuple[int, str]] = []
        if boxes and boxes[-1][2] >= 0:
            before.append((boxes[-1][2] + 1, _inside(text, boxes[-1])))
        if marker is not None:
            before.append((text.find("\n", marker_at), marker[1]))
        end, said = max(before, default=(-1, ""))
        if not corrects and end >= 0 and start - end < 60 and _BETWEEN.fullmatch(text[end:start]):
            answer = _listed([said, answer])
        return Found(answer, "statement")
    if marker is not None:
        line_end = text.find("\n", marker_at)
        other = _alternative(text[line_end : line_end + 200]) if line_end >= 0 else []
        return Found(_listed([marker[1], *other]), "marker")
    if not boxes:
        return None
    last = boxes[-1]
    if last[2] < 0:
        raise UnreadableError("the last box was never closed")
    if DENIED_AFTER.match(text, last[2]):
        raise UnreadableError("the last box was taken back")
    if _WITHIN_FORMULA.search(text, max(0, last[0] - 12), last[0]):
        raise UnreadableError("the box is a part of a formula")
    answer = _joined(text, boxes)
    if not answer.strip():
        raise UnreadableError("the box is empty")
    answer = _listed([answer, *_alternative(text[last[2] + 1 : last[2] + 200])])
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
        answer = _BOX.sub("", answer)
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


def _marked(text: str, after: int) -> tuple[int, str] | None:
    """The last `####` behind `after` that is no heading, and its answer; lines that follow each other are a list."""
    lines: list[tuple[int, int, str]] = []
    for match in _MARKER.finditer(text):
        line = line_at(text, match.end())
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


def _stated(text: str, after: int, kind: str) -> tuple[int, str, bool] | None:
    """The last "the answer is" behind `after` that is followed by an answer: where it stands, the answer, and whether
    it takes back one that was stated before.

    Statements with nothing between them are one that lists several answers.
    """
    run: list[str] = []
    start, behind = 0, 0
    denied = corrects = False
    found = [*_STATEMENT.finditer(text, max(0, after)), *_CORRECTED.finditer(text, max(0, after))]
    for match in sorted(found, key=lambda match: match.end())[-MAX_STATEMENTS:]:
        correction = match.re is _CORRECTED
        if correction and not run and after < 0 and not denied:
            continue  # there is nothing to take back
        begin = match.end()
        rest = text[begin : begin + 400]
        if correction and re.match(r"not\b", rest, re.IGNORECASE):
            continue  # "no, it is not 8" leaves what was stated
        instead = _NOT_BUT.match(rest)
        if instead is not None:
            begin += instead.end()
            rest = rest[instead.end() :]
        if _DENIED.match(rest) or _NOT_MINE.search(text, max(0, match.start() - 60), match.start()):
            run, denied = [], True
            continue
        if _BOX.match(rest.lstrip(" $*")) or _MARKER.match(rest):
            continue
        line = line_at(text, begin)
        if text[begin - 1] == "\n":
            line = re.sub(r"^\s*[-*\u2022]\s+(?=\S)", "", line)
        for _ in range(2):
            if not line.strip("*_ $"):
                begin += len(line) + 1
                line = re.sub(r"^\s*[-*\u2022]\s+(?=\S)", "", line_at(text, begin))
        answer = _said(line, kind)
        if answer is None:
            continue
        plain = math_as_text(line)
        if DENIED_AFTER.match(plain, plain.find(answer) + len(answer)):
            run, denied = [], True
            continue
        between = text[behind : match.start()].strip(" .,;:*$\n") if run else ""
        follows = (
            run
            and not correction
            and between.startswith(run[-1])
            and _BETWEEN.fullmatch(between[len(run[-1]) :])
        )
        run = [*run, answer] if follows else [answer]
        start, behind, denied, corrects = match.start(), match.end(), False, correction
    if run:
        run += _another(math_as_text(text[behind : behind + 600]), run[-1])
    if denied and after < 0:
        raise UnreadableError("the answer is denied, and no other is stated")
    return (start, _listed(run), corrects) if run else None


def _another(text: str, answer: str) -> list[str]:
    """A second answer right behind a stated one, "Or 9.", so that both are seen to be named.

    Raises:
        UnreadableError: the answer holds in one case, and another is named for the rest.
    """
    rest = text[text.find(answer) + len(answer) :]
    if _BY_CASE.match(rest):
        raise UnreadableError("another answer is stated for another case")
    return _alternative(rest)


def _alternative(rest: str) -> list[str]:
    """The number that a text offers as another answer at its start; none in most texts."""
    another = _OR_ANOTHER.match(rest)
    if another is None:
        return []
    number = re.search(r"[-+]?\d[\d.,/]*%?", another[0] + rest[another.end() :].partition("\n")[0])
    return [] if number is None else [number[0].rstrip(".,")]


def _said(line: str, kind: str) -> str | None:
    """The answer that a line begins with; None where it begins with none."""
    if starts_like_an_answer(line):
        return leading_answer(math_as_text(line)) or None
    if kind == "words" and (date := STARTS_LIKE_A_DATE.match(line.lstrip(" *_$"))) is not None:
        return date[0] if not _OR_ANOTHER.match(line.lstrip(" *_$"), date.end()) else line
    if kind == "words" and re.match(r"[$*_\s]*(?:\\text\s*\{)?[^\W\d_]", line):
        words = re.split(r"[.,;!?\n(]|\s(?:because|since|as|so|which|but)\s", math_as_text(line))[0]
        return words.strip(" *_") or None
    return None
