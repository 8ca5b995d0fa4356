"""The tables of the zoo, from runs made up."""

from typing import Any

from benchmarks.health_zoo import WARDS, confusion, page, table


def run(check: str | None, found_at: int | None, alarms: dict[str, int], **more: Any) -> dict[str, Any]:
    made = {"ward": next(iter(WARDS)), "name": "r", "check": check, "within": 10, "severity": "warning"}
    return made | {"found_at": found_at, "alarms": alarms, "seconds": 1.0} | more


RUNS = [
    run("truncation", 5, {"truncation": 5}),
    run("truncation", 12, {"truncation": 12}),
    run("truncation", None, {"repetition": 3}),
    run("truncation", None, {}),
    run(None, None, {}),
    run(None, None, {"repetition": 7}),
]


def test_each_run_is_counted_once() -> None:
    sick, healthy = list(confusion(RUNS))[2:]
    assert sick == "| 4 sick | 1 | 1 | 1 | 1 |"
    assert healthy == "| 2 healthy | | | 1 | 1 |"


def test_what_went_wrong_stands_out() -> None:
    rows = list(table(RUNS))[2:]
    assert rows[0] == "| r | truncation | 10 | 5 | truncation 5 |"
    assert rows[1] == "| r | truncation | 10 | **12** | truncation 12 |"
    assert rows[3] == "| r | truncation | 10 | **never** | none |"
    assert rows[5] == "| r | nothing | | **something** | repetition 7 |"


def test_the_page_holds_every_pair_of_runs() -> None:
    pair = {
        "illness": "learning rate",
        "seed": 2,
        "ill_at": 5,
        "rollbacks": 1,
        "before": 0.4,
        "after": 0.85,
        "without": 0.05,
        "seconds": 2.0,
    }
    text = page([*RUNS, pair], "abc")
    assert "| learning rate | 2 | 5 | 1 | 40% | 85% | 5% |" in text
    assert "Digest of all thresholds: abc." in text
    assert "All runs together took 8 s." in text
