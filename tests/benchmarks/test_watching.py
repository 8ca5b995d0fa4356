"""What watching costs, from numbers worked out by hand."""

import pytest

from benchmarks.watching import cost, page

MACHINE = {"processor": "Some CPU", "vectors": [], "cores": 2, "memory_gb": 24.0}


def test_shares_by_hand() -> None:
    # Steps of 10 and 20 s without: 2 % and 4 % more with (median 3 %), metrics 1 % and 1 %, lines 0.1 % and 0.3 %.
    bare = [
        {"seconds": 10.0, "write": 0.01, "watch: metrics": 0.1},
        {"seconds": 20.0, "write": 0.06, "watch: metrics": 0.2},
    ]
    watched = [{"seconds": 10.2, "write": 0.102}, {"seconds": 20.8, "write": 0.416}]
    found = cost([(watched, bare)])
    assert found == pytest.approx(
        {
            "seconds": 15.0,
            "checks, rollout files and sinks (paired)": 0.03,
            "metrics (timed)": 0.01,
            "metrics.jsonl (timed)": 0.002,
            "all": 0.042,
            "written and checked (timed in the run as it is)": 0.015,
        }
    )
    text = page(
        found,
        [{}, {}],
        {
            "steps": 3,
            "machine": MACHINE,
            "source": "s",
        },
    )
    assert "| all | 4.20% |" in text
    assert "All of it is NOT below 3% of a step." in text
