"""The lines of health.jsonl as findings from begin to end."""

from typing import Any

from groupwise.report.happenings import MOST, happenings, steps_of


def line(step: int, event: str, severity: str = "warning", check: str = "kl_runaway") -> dict[str, Any]:
    finding = {
        "check": check,
        "kind": "high",
        "severity": severity,
        "first_step": step - 1,
        "last_step": step,
        "summary": f"seen at {step}",
        "evidence": {"kl/token_mean": 1.5},
        "causes": ["a"],
        "remedies": ["b"],
    }
    return {"step": step, "kind": "finding", "event": event, "finding": finding}


def test_a_finding_is_told_once_at_its_worst() -> None:
    found = happenings(
        [line(3, "begins"), line(5, "worsens", "critical"), line(20, "ends", "critical"), line(30, "begins")]
    )
    first, second = found["findings"]
    assert (first["begins"], first["worsens"], first["ends"], first["severity"]) == (3, [5], 20, "critical")
    assert first["summary"] == "seen at 5"
    assert (second["begins"], second["ends"], second["severity"]) == (30, None, "warning")
    assert steps_of(found) == [3, 30]


def test_the_rollouts_that_show_a_finding() -> None:
    shown = {"prompt_id": "a:3", "group_index": 2, "why": "the longest"}
    found = happenings([{**line(3, "begins"), "rollouts": [shown]}, line(5, "worsens")])
    assert found["findings"][0]["examples"] == [], "those of the worst, which has none"
    found = happenings([line(3, "begins"), {**line(5, "worsens"), "rollouts": [shown]}])
    assert found["findings"][0]["examples"] == ["step 5, a:3, rollout 2: the longest"]


def test_two_findings_do_not_mix() -> None:
    found = happenings([line(1, "begins"), line(2, "begins", check="truncation"), line(9, "ends")])
    assert [(f["check"], f["ends"]) for f in found["findings"]] == [("kl_runaway", 9), ("truncation", None)]


def test_whatever_else_stands_there_is_an_event() -> None:
    lines = [
        {"step": 2, "kind": "skipped_update", "sentence": "the gradient is NaN", "rollouts": []},
        {"step": 4, "kind": "action", "sentence": "beta is doubled", "action": {"check": "kl_runaway"}},
        {"step": 6, "kind": "of tomorrow", "factor": 2.0, "deep": {"a": 1}},
    ]
    events = happenings(lines)["events"]
    assert [(e["step"], e["sentence"]) for e in events] == [
        (2, "the gradient is NaN"),
        (4, "beta is doubled"),
        (6, "step 6, kind of tomorrow, factor 2.0"),
    ]


def test_an_end_without_a_begin_is_passed_over() -> None:
    assert happenings([line(9, "ends")])["findings"] == []


def test_thousands_of_events_are_counted_not_shown() -> None:
    lines = [{"step": s, "kind": "skipped_update", "sentence": "x" * 5000} for s in range(1000)]
    found = happenings(lines)
    assert len(found["events"]) == MOST
    assert found["more"] == [0, 1000 - MOST]
    assert all(len(e["sentence"]) < 1100 for e in found["events"])
