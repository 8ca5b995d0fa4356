from __future__ import annotations

from benchmarks import study
from groupwise.workbench.comparison import Comparison, Outcome


def test_the_task() -> None:
    assert study.row("491750") == {"prompt": "491750=", "answer": "014579"}
    train, held_out = study.numbers()
    assert len(held_out) == study.HELD_OUT
    assert len(set(train) | set(held_out)) == 10_000


def test_the_page_holds_the_table_and_what_is_within_noise() -> None:
    outcomes = {
        name: [
            Outcome(
                variant=name,
                seed=seed,
                metric="eval/pass@1",
                curve=[(0, 0.25), (60, final + seed / 100)],
                seconds=30.0,
                tokens=1000,
                findings=[],
            )
            for seed in range(3)
        ]
        for name, final in (("base", 0.5), ("objective=ppo", 0.5))
    }
    found = Comparison(metric="eval/pass@1", outcomes=outcomes, wanted=6)
    page = study.page(found, 3)
    assert found.table() in page
    assert "objective=ppo: +0.0% [+0.0%, +0.0%] against the base over 3 seeds: within noise." in page
    assert "25.0% before training" in page
    assert "The 6 runs took 3 minutes" in page
