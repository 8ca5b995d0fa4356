r"""One spelling for what is written in many ways: Unicode, LaTeX and plain text become one small dialect of LaTeX.

Every step is a replacement that is linear in the length of the text.
"""

from __future__ import annotations

import re
import unicodedata

from groupwise.rewards.mathematics.vocabulary import listed, vocabulary

_GREEK = listed(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau "
    "upsilon phi chi psi omega"
)
GREEK = frozenset(_GREEK)
_RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ", "0123456789+-()ni", strict=True))
_LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₍₎", "0123456789+-()", strict=True))
_SIGNS = {
    "≤": r"\le ",
    "≦": r"\le ",
    "⩽": r"\le ",
    "≥": r"\ge ",
    "≧": r"\ge ",
    "⩾": r"\ge ",
    "≠": r"\ne ",
    "≈": r"\approx ",
    "≃": r"\approx ",
    "≅": r"\approx ",
    "±": r"\pm ",
    "∓": r"\mp ",
    "×": r"\cdot ",
    "·": r"\cdot ",
    "⋅": r"\cdot ",
    "∙": r"\cdot ",
    "•": r"\cdot ",
    "÷": r"\div ",
    "∕": "/",
    "√": r"\sqrt ",
    "∛": r"\sqrt[3]",
    "∜": r"\sqrt[4]",
    "′": "'",
    "″": "''",
    "∞": r"\infty ",
    "∪": r"\cup ",
    "∩": r"\cap ",
    "∈": r"\in ",
    "∅": r"\emptyset ",
    "ø": r"\emptyset ",
    "Ø": r"\emptyset ",
    "ℝ": r"\mathbb{R}",
    "ℤ": r"\mathbb{Z}",
    "ℕ": r"\mathbb{N}",
    "ℚ": r"\mathbb{Q}",
    "ℂ": r"\mathbb{C}",
    "°": r"^\circ ",
    "º": r"^\circ ",
    "˚": r"^\circ ",
    "℃": r"^\circ C",
    "℉": r"^\circ F",
    "∶": ":",
    "⟨": "(",
    "⟩": ")",
    "…": r"\ldots ",
    "⋯": r"\ldots ",
    "−": "-",
    "‰": r"\permille ",
    "∠": r"\angle ",
    "µ": "\u03bc",
    "⌊": r"\lfloor ",
    "⌋": r"\rfloor ",
    "⌈": r"\lceil ",
    "⌉": r"\rceil ",
}
_LETTERS = {
    unicodedata.lookup(f"GREEK {case} LETTER {'LAMDA' if name == 'lambda' else name.upper()}"): (
        "\\" + (name if case == "SMALL" else name.capitalize()) + " "
    )
    for name in _GREEK
    for case in ("SMALL", "CAPITAL")
} | {"ϕ": r"\phi ", "ϵ": r"\epsilon "}
_VULGAR = {
    chr(code): r"\frac{{{}}}{{{}}}".format(*unicodedata.normalize("NFKC", chr(code)).split("\u2044"))
    for code in [*range(0xBC, 0xBF), *range(0x2150, 0x215F), 0x2189]
}
_UNICODE = str.maketrans({**_SIGNS, **_LETTERS, **_VULGAR})
_RUN_RAISED = re.compile(f"[{''.join(_RAISED)}]+")
_RUN_LOWERED = re.compile(f"[{''.join(_LOWERED)}]+")

_SAME = {
    "dfrac": "frac",
    "tfrac": "frac",
    "cfrac": "frac",
    "nicefrac": "frac",
    "sfrac": "frac",
    "xfrac": "frac",
    "flatfrac": "frac",
    "leq": "le",
    "leqslant": "le",
    "leqq": "le",
    "geq": "ge",
    "geqslant": "ge",
    "geqq": "ge",
    "neq": "ne",
    "times": "cdot",
    "ast": "cdot",
    "bullet": "cdot",
    "varnothing": "emptyset",
    "O": "emptyset",
    "lbrace": "{",
    "rbrace": "}",
    "lbrack": "[",
    "rbrack": "]",
    "lt": "<",
    "gt": ">",
    "colon": ":",
    "langle": "(",
    "rangle": ")",
    "mid": "|",
    "vert": "|",
    "lvert": "|",
    "rvert": "|",
    "dots": "ldots",
    "cdots": "ldots",
    "dotsc": "ldots",
    "simeq": "approx",
    "cong": "approx",
    "varepsilon": "epsilon",
    "varphi": "phi",
    "vartheta": "theta",
    "bar": "overline",
    "dbinom": "binom",
    "tbinom": "binom",
    "lg": "log",
    "arctg": "arctan",
    "tg": "tan",
    "ctg": "cot",
    "cosec": "csc",
    "setminus": "setminus",
    "imath": "i",
    "land": "wedge",
    "lor": "vee",
}
_DROPPED = vocabulary(
    "left right middle big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr displaystyle "
    "textstyle scriptstyle limits nolimits hfill noindent centering boldmath rm bf it sf tt large Large "
    "small mathbf mathit mathsf mathtt mathnormal boldsymbol bm bold pmb"
)
_FONTS = vocabulary(
    "text textbf textit textrm textsf texttt textnormal textsc emph mbox hbox mathrm operatorname underline"
)
_COMMAND = re.compile(r"\\([A-Za-z]+)\*?")
_FONT = re.compile(r"\\text\s*\{")
_SMALL_FRACTION = re.compile("([⁰¹²³⁴-⁹]+)[/⁄]([₀-₉]+)")
_ESCAPED = re.compile(r"(?<!\\)\\([%$#&])")
_DEGREE = re.compile(r"(?<=[\d)])\s?\^\s?(?:\{\s*)?(?:\\text\s?\{\s*[oO°]\s*\}|[oO])(?:\s*\})?(?![A-Za-z])")
_FRACTION_OF_UNITS = re.compile(
    r"\\frac\s*\{\s*\\text\s*\{([^{}]{1,30})\}\s*\}\s*\{\s*\\text\s*\{([^{}]{1,30})\}((?:\^\{?\d\}?)?)\s*\}"
)
_SPACES = re.compile(
    r"(?<!\\)\\[;: ~>]|~|\\(?:quad|qquad|enspace|thinspace|hspace\{[^{}]{0,20}\}|medspace)(?![A-Za-z])"
)
_PLAIN_INSIDE = re.compile(r"\s*[-+]?[\d\s.,/()%$:=^\\]*\d[\d\s.,/()%$:=^]*")


def spell(text: str) -> str:
    r"""An answer in one spelling: `\frac`, `\le`, `\cdot`, `^{2}`, `\text{}` for every font, no sizing, no thin spaces.

    Text in words stays; digits, dashes and full-width characters are expected in ASCII already, see
    `groupwise.rewards.numbers.characters`.
    """
    if not text.isascii():
        text = _SMALL_FRACTION.sub(_small_fraction, text)
        text = _RUN_RAISED.sub(lambda m: "^{" + "".join(_RAISED[c] for c in m[0]) + "}", text)
        text = _RUN_LOWERED.sub(lambda m: "_{" + "".join(_LOWERED[c] for c in m[0]) + "}", text)
        text = text.translate(_UNICODE)
    if "\\" in text:
        text = text.replace(r"\left.", "").replace(r"\right.", "")
        text = text.replace(r"\!", "").replace(r"\/", "").replace(r"\,", "\u00a0").replace("{,}", ",")
        text = _ESCAPED.sub(r"\1", text)
        text = text.replace(r"\|", "|").replace(r"\degree", r"^\circ ").replace(r"^{\circ}", r"^\circ ")
        text = text.replace(r"^{ \circ }", r"^\circ ").replace(r"\textdegree", r"^\circ ")
        text = _SPACES.sub(" ", text)
        text = _COMMAND.sub(_command, text)
        text = _FRACTION_OF_UNITS.sub(r"\\text{\1/\2\3}", _unwrapped(text))
    elif "{,}" in text:
        text = text.replace("{,}", ",")
    text = _DEGREE.sub(r"^\\circ ", text)
    text = re.sub(r"(?<=\d)\s?[xX]\s?(?=10\s?\^)", r"\\cdot ", text)
    text = re.sub(r"(?<=[\w)}\]])\*\*(?=[\w({\\+-])", "^", text)
    text = re.sub(r"^\s*(?:negative|minus)\s+(?=[\d$.\\])", "-", text, flags=re.IGNORECASE)
    text = re.sub(r"(\\\\)\[-?\d+(?:\.\d+)?(?:pt|em|ex|mm)\]", r"\1", text)  # the space below a matrix's row
    text = re.sub(r"<=|=<", r"\\le ", text)
    text = re.sub(r">=", r"\\ge ", text)
    text = text.replace("!=", r"\ne ").replace("+/-", r"\pm ").replace("+-", r"\pm ")
    return text.replace("**", "").replace("`", "").strip()


def _small_fraction(match: re.Match[str]) -> str:
    over, under = (
        "".join(table[c] for c in figures) for table, figures in ((_RAISED, match[1]), (_LOWERED, match[2]))
    )
    return rf"\frac{{{over}}}{{{under}}}"


def _command(match: re.Match[str]) -> str:
    name = match[1]
    if name in _DROPPED:
        return " "
    if name in _FONTS:
        return r"\text"
    if name in _SAME:
        same = _SAME[name]
        if same in "{}":
            return "\\" + same
        return same if len(same) == 1 else "\\" + same + " "
    return match[0]


def _unwrapped(text: str) -> str:
    r"""`\text{5}` as `5` and `\mathrm{e}` as `e`: fonts around what is no word and no unit."""
    if r"\text" not in text:
        return text
    pieces, at = [], 0
    for match in _FONT.finditer(text):
        if match.start() < at:
            continue
        end = closing(text, match.end() - 1)
        if end is None:
            break
        inside = text[match.end() : end]
        if _PLAIN_INSIDE.fullmatch(inside) or inside.strip() in ("e", "i", "%", "$", ",", ":"):
            room = "" if inside == ":" else " "  # `9\text{:}00` is one moment
            pieces += [text[at : match.start()], room, inside, room]
            at = end + 1
    pieces.append(text[at:])
    return "".join(pieces)


def closing(text: str, start: int) -> int | None:
    r"""Where the brace that opens at `start` closes; `\{` and `\}` do not count. None when it never does."""
    depth = 0
    i = start
    while i < len(text):
        character = text[i]
        if character == "\\":
            i += 2
            continue
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return i
        i += 1
    return None
