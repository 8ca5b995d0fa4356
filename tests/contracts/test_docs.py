import re
from pathlib import Path

import groupwise
from groupwise.records.metrics_file import METRICS
from groupwise.rewards.document import fill
from groupwise.rewards.made_up import Case, probes
from tests.contracts.documentation import (
    docstring_faults,
    metric_names,
    missing_files,
    undocumented,
    unfinished,
)

SOURCE = Path(groupwise.__file__).parent
ROOT = Path(__file__).parents[2]
PAGES = [
    path
    for glob in ("*.md", "docs/**/*.md", "examples/**/*.md", "benchmarks/**/*.md")
    for path in ROOT.glob(glob)
]


def test_everything_public_is_explained() -> None:
    assert docstring_faults(SOURCE) == []


def test_nothing_says_of_itself_that_it_is_not_finished() -> None:
    assert unfinished(SOURCE) == []


def test_the_repository_has_what_a_stranger_expects() -> None:
    assert missing_files(ROOT) == []


def test_every_metric_that_the_source_spells_is_documented() -> None:
    names = metric_names(SOURCE)
    assert {name: names[name] for name in undocumented(names)} == {}


def test_every_documented_metric_is_spelled_outside_its_documentation() -> None:
    spelled = set()
    for path in SOURCE.rglob("*.py"):
        if path.name != "metrics_file.py":
            text = path.read_text(encoding="utf-8")
            spelled |= {name for name in METRICS if re.sub(r"\{label\}", "{", name).split("{")[0] in text}
    assert set(METRICS) - spelled == set()


def test_the_table_of_scorers_is_that_of_the_registry() -> None:
    page = ROOT / "docs" / "rewards" / "index.md"
    text = page.read_text(encoding="utf-8")
    assert fill(text, page.parent) == text, "a scorer has changed: make docs"


def test_every_finding_of_check_reward_is_explained() -> None:
    page = (ROOT / "docs" / "rewards" / "check_reward.md").read_text(encoding="utf-8")
    source = (SOURCE / "rewards" / "findings.py").read_text(encoding="utf-8")
    names = re.findall(r'_(?:fault|warning|note)\(\s*f?"([a-z_]+)(?:\{[^}]*\})?"', source)
    assert len(names) > 20
    for name in names:
        assert f"`{name}{'PROBE' if name.endswith('_') else ''}`" in page or name == "strict_"
    case = Case(place="a:0", prompt="p", columns={}, answer="25")
    for probe in probes(case, "{answer}", []):
        assert f"`{probe.name}`" in page


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text(encoding="utf-8")):
            if not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


def test_paths_that_pages_name_are_there() -> None:
    """As code or in a command; CONTRIBUTING.md names one that a reader is to write."""
    missing = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for path in re.findall(r"(?<![\w/.-])((?:examples|docs|src|tests|benchmarks)/[\w./-]*[\w/])", text):
            if not any((folder / path).exists() for folder in (ROOT, page.parent)) and "my_" not in path:
                missing.append(f"{page.relative_to(ROOT)}: {path}")
    assert missing == []
