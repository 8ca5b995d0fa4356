"""Programs and what a grader should say of each (C3): honest ones, wrong ones, and those that attack it."""

from __future__ import annotations

from typing import Any

import pytest

from groupwise.rewards.sandbox import Limits, grade
from groupwise.rewards.sandbox.extract import extract_code
from tests.rewards.sandbox.conftest import rows, ways

SLOW = {"X046", "X050", "X057", "X061", "X067", "X092", "X070"}
"""Those that only the time limit ends, or that fill what they may."""
FINE = "def sq(n):\n    return n * n\n"


def limits(row: dict[str, Any]) -> Limits:
    return Limits(seconds=0.7 if row.get("id") in SLOW or row.get("slow") else 20.0)


def graded(row: dict[str, Any], isolation: Any) -> Any:
    program = extract_code(row["program"]) if row.get("mode") == "completion" else row["program"]
    options = {key: row[key] for key in ("entry_point", "tolerance") if key in row}
    return grade(program, row["tests"], isolation=isolation, limits=limits(row), **options)


@pytest.mark.usefixtures("canaries")
@pytest.mark.parametrize("isolation", ways(weaker=False), indirect=True)
@pytest.mark.parametrize("row", rows("cases.jsonl"))
def test_every_case_is_graded_as_it_should(row: dict[str, Any], isolation: str) -> None:
    given = graded(row, isolation)
    assert given.outcome in row["accept"], (row["why"], given)
    if row.get("danger"):
        assert grade(FINE, "assert sq(3) == 9", isolation=isolation).outcome == "pass"  # type: ignore[arg-type]


@pytest.mark.usefixtures("canaries")
@pytest.mark.parametrize("isolation", ways(weaker=False), indirect=True)
@pytest.mark.parametrize("row", rows("attacks.jsonl"))
def test_no_attack_wins(row: dict[str, Any], isolation: str) -> None:
    assert (
        graded(row, isolation).outcome != "pass"
    )  # and the next row runs in the sandbox that this one leaves


@pytest.mark.parametrize("isolation", ways(weaker=False), indirect=True)
@pytest.mark.parametrize("row", rows("honest.jsonl"))
def test_honest_programs_of_odd_kinds_are_graded_as_they_deserve(row: dict[str, Any], isolation: str) -> None:
    given = graded(row, isolation)
    accept = row.get("restricted", row["accept"]) if isolation == "restricted" else row["accept"]
    assert given.outcome in accept, given


@pytest.mark.parametrize("isolation", ways(), indirect=True)
class TestOfKindC:
    """The faults that other graders had."""

    def test_c02_a_crash_is_no_empty_output(self, isolation: Any) -> None:
        empty = [{"stdin": "1\n", "stdout": ""}]
        assert grade("1 / 0", empty, isolation=isolation).outcome == "error"
        assert grade("import sys\nsys.exit(3)", empty, isolation=isolation).outcome == "error"
        assert grade("import os\nos.abort()", empty, isolation=isolation).outcome == "error"
        assert grade("pass", empty, isolation=isolation).outcome == "pass"

    def test_c04_values_are_compared_elsewhere_as_plain_data(self, isolation: Any) -> None:
        tests = "assert f(2) == 4\nassert f(0) == 0"
        always = "class Y(int):\n    def __eq__(self, o): return True\ndef f(n): return Y(1)"
        assert grade(always, tests, isolation=isolation).outcome == "fail"
        assert grade("def f(n): return float(n * n)", tests, isolation=isolation).outcome == "pass"
        assert grade("def f(n): return n == 1", "assert f(1) == 1", isolation=isolation).outcome == "pass"
        cases = [{"function": "f", "args": [2], "expected": 4}, {"function": "f", "args": [0], "expected": 0}]
        assert grade(always, cases, isolation=isolation).outcome == "fail"
        assert grade("def f(n): return float(n * n)", cases, isolation=isolation).outcome == "pass"

    @pytest.mark.usefixtures("canaries")
    def test_c05_the_system_isolates_not_python(self, isolation: Any) -> None:
        program = (
            "import ctypes, os, subprocess\n"
            "def reach():\n"
            "    got = []\n"
            "    try: got.append(open('/tmp/sandbox_canary.txt').read())\n"
            "    except OSError: pass\n"
            "    try: open('/tmp/sandbox_canary.txt', 'w').write('changed')\n"
            "    except OSError: pass\n"
            "    libc = ctypes.CDLL(None)\n"
            "    libc.getenv.restype = ctypes.c_char_p\n"
            "    got.append(libc.getenv(b'SANDBOX_CANARY'))\n"
            "    fd = libc.socket(2, 1, 0)\n"
            "    address = (2).to_bytes(2, 'little') + (45871).to_bytes(2, 'big') + bytes([127, 0, 0, 1]) + bytes(8)\n"
            "    got.append(libc.connect(fd, address, 16))\n"
            "    return got\n"
        )
        assert grade(program, "assert reach() == [None, -1]", isolation=isolation).outcome == "pass"

    def test_c07_output_is_bounded_while_it_is_read(self, isolation: Any) -> None:
        import tracemalloc

        flood = "import sys\nwhile True:\n    sys.stdout.buffer.write(bytes([0xe2, 0x82]) * 4096)"
        tracemalloc.start()
        given = grade(flood, [{"stdin": "", "stdout": ""}], isolation=isolation, limits=Limits(output_kb=256))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert given.outcome == "error"
        assert "wrote more than it may" in given.detail
        assert peak < 4 * 256 * 1024  # the cap, decoded, and the few kilobytes of the messages
        cut = "import sys\nsys.stdout.buffer.write('€'.encode()[:2])"
        assert grade(cut, [{"stdin": "", "stdout": "�"}], isolation=isolation).outcome == "pass"
        both = "import sys\nfor _ in range(200):\n    sys.stderr.write('e' * 1000)\n    sys.stdout.write('o' * 1000)"
        assert grade(both, [{"stdin": "", "stdout": "o" * 200_000}], isolation=isolation).outcome == "pass"
