"""What the site (mkdocs.yml) needs beside the pages of this folder.

The README, CONTRIBUTING, CHANGELOG and the examples' own pages become pages of it. Links to source and data have no
page to lead to: their text stays, with the path where it does not name it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
_EXAMPLES = sorted(ROOT.glob("examples/*/README.md"))
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "examples/index.md",
    **{f"examples/{path.parent.name}/README.md": f"examples/{path.parent.name}.md" for path in _EXAMPLES},
}
"""File beside this folder to page of the site."""

_LINK = re.compile(
    r"(?<!!)\[(?P<text>[^\]]*)\]\((?!https?:|#|mailto:)(?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)"
)
_IMAGE = re.compile(r"(!\[[^\]]*\])\(docs/")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that stand beside this folder."""
    for name, page in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        content = linked(text, folder=posixpath.dirname(name), on=page)
        files.append(File.generated(config, page, content=_IMAGE.sub(r"\1(", content)))
    return files


def on_page_markdown(markdown: str, page: Any, **given: Any) -> str:
    """The page's text with links that the site can follow."""
    uri = page.file.src_uri
    return (
        markdown
        if uri in PAGES.values()
        else linked(markdown, folder=f"docs/{posixpath.dirname(uri)}", on=uri)
    )


def linked(markdown: str, *, folder: str, on: str) -> str:
    """A text with its links led to pages of the site.

    Args:
        markdown: the text.
        folder: that its links are relative to, from the root of the repository.
        on: the page's place in the site.
    """

    def replaced(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, found["target"]))
        place = PAGES.get(path)
        if path.startswith("docs/"):
            inside = path.removeprefix("docs/")
            place = posixpath.join(inside, "README.md") if (ROOT / path).is_dir() else inside
        if place is not None:
            target = posixpath.relpath(place, posixpath.dirname(on) or ".")
            return f"[{found['text']}]({target}{found['anchor'] or ''})"
        name = posixpath.basename(path)
        return found["text"] if name in found["text"] else f"{found['text']} (`{path}`)"

    return _LINK.sub(replaced, markdown)
