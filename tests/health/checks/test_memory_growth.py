"""Memory that grows with the batches, told apart from memory that leaks."""

from groupwise.health.checks.memory_growth import memory_growth
from tests.health.series import FACTS, ever, history, kinds, rising, wobble

STEPS = 80


def climbing(values: list[float]) -> list[float]:
    """The largest so far, as a peak is."""
    return [max(values[: i + 1]) for i in range(len(values))]


def test_a_leak_is_told_from_growth_with_length() -> None:
    # Case k05: memory grew to many times the start, and nothing leaked: responses became longer.
    tokens = rising(1000, 9000, STEPS)
    grown = {
        "memory/peak_rss_mb": [2000 + t for t in tokens],
        "tokens/generated": tokens,
        "length/max": tokens,
    }
    (found,) = memory_growth(history(STEPS, grown), FACTS)
    assert (found.kind, str(found.severity)) == ("longer", "info")
    # 50 of 79 rises of 8000 / 79 tokens and as many megabytes each.
    assert abs(found.evidence["rise with larger batches"] - 50 * 8000 / 79) < 1e-6
    assert found.evidence["rise without"] == 0
    # The same memory, with batches that are alike.
    leaking = {**grown, "tokens/generated": wobble(1000, 100, STEPS), "length/max": 32.0}
    (found,) = memory_growth(history(STEPS, leaking), FACTS)
    assert (found.kind, str(found.severity)) == ("leak", "warning")
    assert abs(found.evidence["rise without"] - 50 * 8000 / 79) < 1e-6
    assert "5063 of them in steps that needed no more" in found.summary  # 50 * 8000 / 79 = 5063.3


def test_one_of_both_tells_of_larger_batches() -> None:
    tokens = rising(1000, 9000, STEPS)
    for name in ("tokens/generated", "length/max"):
        grown = {"memory/peak_rss_mb": [2000 + t for t in tokens], name: tokens}
        assert kinds(memory_growth(history(STEPS, grown), FACTS)) == [("longer", "info")]
    alone = {"memory/peak_rss_mb": [2000 + t for t in tokens]}
    assert memory_growth(history(STEPS, alone), FACTS) == []  # nothing says whether batches grew


def test_a_leak_behind_responses_that_grow() -> None:
    # A new longest response every tenth step, and 100 MB more at every step.
    longest = climbing([100.0 + 10 * (i // 10) for i in range(STEPS)])
    run = {"memory/peak_rss_mb": [2000.0 + 100 * i for i in range(STEPS)], "length/max": longest}
    (found,) = memory_growth(history(STEPS, run), FACTS)
    # Steps 31 to 80 of 1 to 80: of 50 rises, those of steps 31, 41, 51, 61 and 71 come with a longer response.
    assert (found.kind, found.evidence["rise without"]) == ("leak", 4500)
    assert found.evidence["rise with larger batches"] == 500


def test_healthy_memory_is_silent() -> None:
    same = {"tokens/generated": wobble(1000, 100, STEPS), "length/max": 32.0}
    # Warming up, then flat with steps of a few megabytes.
    flat = climbing([500.0 * i for i in range(10)] + [5000.0 + 2 * i for i in range(STEPS - 10)])
    assert ever(memory_growth, STEPS, {"memory/peak_rss_mb": flat, **same}) == []
    # One evaluation that needs 3 GB more, once.
    once = [2000.0] * 40 + [5000.0] * (STEPS - 40)
    assert ever(memory_growth, STEPS, {"memory/peak_rss_mb": once, **same}) == []
    # Much in megabytes and little of what the run has.
    large = [100_000.0 + 20 * i for i in range(STEPS)]
    assert ever(memory_growth, STEPS, {"memory/peak_rss_mb": large, **same}) == []


def test_a_resumed_run_warms_up_again() -> None:
    # The second process, from step 60 on, starts at 500 MB and takes what it needs in its first steps.
    peaks = [4000.0] * 60 + climbing([500.0 + 60 * i for i in range(60)])
    same = {"tokens/generated": wobble(1000, 100, 120), "length/max": 32.0}
    found = ever(
        memory_growth,
        119,
        {
            "memory/peak_rss_mb": peaks[:119],
            **{k: v[:119] if isinstance(v, list) else v for k, v in same.items()},
        },
    )
    assert found == []  # 59 steps of the second process are fewer than 10 + 50
    assert kinds(memory_growth(history(120, {"memory/peak_rss_mb": peaks, **same}), FACTS)) == [
        ("leak", "warning")
    ]
