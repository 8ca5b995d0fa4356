"""The pages as a site: strict, whole, and without anything from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

FETCHED = re.compile(
    r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)", re.I
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    return folder


def test_every_page_is_in_it(site: Path) -> None:
    for page in ROOT.glob("docs/**/*.md"):
        place = page.relative_to(ROOT / "docs")
        name = place.with_name("index.html") if place.stem == "README" else place.with_suffix(".html")
        assert (site / name).is_file(), name
    for name in ("index.html", "contributing.html", "changelog.html", "results/first_run.svg"):
        assert (site / name).is_file(), name
    assert not (site / "site_pages.py").exists()


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        found = [
            url for url in FETCHED.findall(page.read_text(encoding="utf-8")) if 'rel="canonical"' not in url
        ]
        assert found == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"@import|url\([\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8")), sheet


def test_links_of_the_readme_lead_into_the_site(site: Path) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    for target in ("first_run.html", "objectives/index.html", "rewards/index.html", "decisions/index.html"):
        assert f'href="{target}"' in text, target
    assert "src/groupwise/training/loop.py" in text  # a link out of the pages stays as text
    assert 'src="results/first_run.svg"' in text
