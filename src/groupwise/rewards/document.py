"""The table of scorers in docs/rewards/index.md, from the registry itself.

`python -m groupwise.rewards.document docs/rewards/index.md` writes it anew between the page's markers; a test compares.
"""

from __future__ import annotations

import inspect
import re
import string
import sys
from pathlib import Path

from groupwise import registry
from groupwise.config.base import said
from groupwise.config.rewards import SCORERS
from groupwise.rewards.function import GIVEN

_MARKS = re.compile(r"(<!-- table: scorers -->\n).*?(<!-- end -->)", re.DOTALL)


def scorers_table(folder: Path) -> str:
    """Markdown: every scorer with what it gives, what it reads and its settings.

    Args:
        folder: of the page; a scorer with a page of its own there, `NAME.md`, is linked to it.
    """
    lines = ["| scorer | gives | reads beside completions | settings |\n", "| --- | --- | --- | --- |\n"]
    for name in registry.names(SCORERS):
        title = f"[`{name}`]({name}.md)" if (folder / f"{name}.md").is_file() else f"`{name}`"
        cells = (title, _gives(name), _reads(name), _settings(name))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    return "".join(lines)


def fill(page: str, folder: Path) -> str:
    """The page with the table written anew between `<!-- table: scorers -->` and `<!-- end -->`.

    Raises:
        ValueError: the page has not exactly one place for it.
    """
    table = scorers_table(folder)
    page, count = _MARKS.subn(lambda found: f"{found[1]}{table}{found[2]}", page)
    if count != 1:
        raise ValueError(f"the page has {count} places for the table of scorers, not one")
    return page


def _gives(name: str) -> str:
    """The module's FORMULA with the settings by their names; the first line of the docstring where there is none."""
    function = registry.find(SCORERS, name)
    module = inspect.getmodule(function)
    formulas = [
        getattr(module, f"FORMULA{key}", None) for key in ("", *(f"_{k.upper()}" for k in _chosen(name)))
    ]
    if not isinstance(formulas[0], str):
        return (inspect.getdoc(function) or "").partition("\n")[0].rstrip(".")
    parsed = [piece for formula in formulas if formula for piece in string.Formatter().parse(formula)]
    return "".join(text + (f"`{field}`" if field else "") for text, field, _, _ in parsed)


def _reads(name: str) -> str:
    parameters = inspect.signature(registry.find(SCORERS, name)).parameters.values()
    left_out = ("completions", "log_metric", "log_extra")
    read = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.name not in left_out]
    shown = []
    for parameter in read:
        what = "" if parameter.name in GIVEN else "column "
        may = "" if parameter.default is parameter.empty else ", where known"
        shown.append(f"{what}`{parameter.name}`{may}")
    return "; ".join(shown) or "nothing"


def _settings(name: str) -> str:
    return ", ".join(f"`{key}: {_spelled(p.default)}`" for key, p in _chosen(name).items()) or "none"


def _chosen(name: str) -> dict[str, inspect.Parameter]:
    return registry.settings(registry.find(SCORERS, name))


def _spelled(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return value if isinstance(value, str) else said(value)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        file = Path(argument)
        file.write_text(fill(file.read_text(encoding="utf-8"), file.parent), encoding="utf-8")
