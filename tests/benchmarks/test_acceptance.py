"""The page of promises says what a run of the tests said, and names only tests and tables that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import facts
from benchmarks.acceptance import PROMISES, Case, Promise, begun, page, read_report, row

REPORT = """<?xml version="1.0"?><testsuites><testsuite tests="4" timestamp="2026-11-30T07:18:30.89+00:00">
<testcase classname="tests.rollouts.test_sampling" name="test_a[1]"/>
<testcase classname="tests.rollouts.test_sampling" name="test_b"><failure message="x">y</failure></testcase>
<testcase classname="tests.rollouts.vllm.test_engine" name="test_c"><skipped message="none here"/></testcase>
<testcase classname="tests.rollouts.vllm.test_engine.TestMore" name="test_d"><error message="x"/></testcase>
</testsuite></testsuites>"""


def test_a_report_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(REPORT)
    assert [(case.name, case.outcome) for case in read_report(tmp_path / "a.xml")] == [
        ("test_a[1]", "passed"),
        ("test_b", "failed"),
        ("test_c", "skipped"),
        ("test_d", "failed"),
    ]
    assert read_report(tmp_path / "a.xml")[0].file == "tests/rollouts/test_sampling"
    assert begun(tmp_path / "a.xml") == "`a.xml`, 2026-11-30 07:18, 4 tests"


@pytest.mark.parametrize("text", [None, "", "not xml"])
def test_no_report(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "a.xml").write_text(text)
    with pytest.raises(SystemExit, match="no JUnit report"):
        read_report(tmp_path / "a.xml")


@pytest.mark.parametrize(
    ("outcomes", "held", "said"),
    [
        (["passed", "passed"], "yes", "2 passed"),
        (["passed", "skipped"], "yes", "1 passed; 1 skipped"),
        (["skipped"], "**no**", "1 skipped"),
        (["passed", "failed"], "**no**", "1 passed; 1 failed; failed: `tests/a/test_b.py::t1`"),
    ],
)
def test_held_or_not(outcomes: list[str], held: str, said: str) -> None:
    cases = [Case("tests/a/test_b", f"t{i}", outcome) for i, outcome in enumerate(outcomes)]
    cases.append(Case("tests/a/test_bc", "of another file", "failed"))
    assert row(Promise("x", ("a/test_b.py",)), cases) == ["x", held, said]


def test_without_tests() -> None:
    table = "docs/results/plan.md"
    assert row(Promise("x", (), (table,)), []) == ["x", "see there", "[plan](plan.md)"]
    assert (
        row(Promise("x", (), ("benchmarks/RESULTS.md",)), [])[2] == "[RESULTS](../../benchmarks/RESULTS.md)"
    )
    assert row(Promise("x", left="no"), []) == ["x", "not shown", "no"]


def test_a_promise_whose_tests_did_not_run_is_not_held() -> None:
    cases = [Case("tests/a/test_b", "t", "passed")]
    assert row(Promise("x", ("a/test_b.py", "a/test_c.py")), cases) == [
        "x",
        "**no**",
        "1 passed; not run: `tests/a/test_c.py`",
    ]


def test_every_test_and_table_is_there() -> None:
    promises = [promise for group in PROMISES.values() for promise in group]
    for promise in promises:
        for name in promise.tests:
            assert (facts.ROOT / "tests" / name).exists(), name
        assert promise.tests or promise.tables or promise.left, promise.words
    cases = [Case(f"tests/{name.removesuffix('.py')}", "t", "passed") for p in promises for name in p.tests]
    text = page(cases, commit="abc1234", reports=["`a.xml`, today, 4 tests"])
    assert "\n- `a.xml`, today, 4 tests\n\nSource" in text
    assert "Source `abc1234`" in text
    assert text.count("| yes |") == sum(bool(promise.tests) for promise in promises)
