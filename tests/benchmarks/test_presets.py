"""Every preset learns: the smoke task with its own objective."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import presets as benchmark
from groupwise.config import presets
from groupwise.workbench.smoke import Smoke

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.parametrize("name", presets.names())
def test_each_preset_raises_the_reward_of_the_smoke_task(name: str) -> None:
    smoke = benchmark.run(name, 0)
    assert smoke.last - smoke.first > benchmark.LEAST, smoke.sentence


def test_a_line_of_the_table_by_hand() -> None:
    # Quarters of four steps are one step each: 0.1 and 0.9, 0.3 and 0.7: means 0.2 and 0.8; rises 0.8 and 0.4.
    runs = [
        Smoke(rewards=[0.1, 0.0, 0.0, 0.9], seconds=2.0),
        Smoke(rewards=[0.3, 0.0, 0.0, 0.7], seconds=4.0),
    ]
    assert benchmark.table({"grpo": runs}) == (
        "| [grpo](../objectives/grpo.md) | 0.200 | 0.800 | +0.600 | +0.400 | 3 |"
    )


def test_the_page_has_a_line_for_every_preset() -> None:
    page = (ROOT / "docs/results/presets.md").read_text(encoding="utf-8")
    assert [name for name in presets.names() if f"| [{name}](" not in page] == []


@pytest.mark.parametrize("name", presets.names())
def test_a_preset_has_a_page_with_its_source_and_the_result_of_the_table(name: str) -> None:
    table = (ROOT / "docs/results/presets.md").read_text(encoding="utf-8")
    [row] = [line for line in table.splitlines() if line.startswith(f"| [{name}](")]
    first, last = row.split(" | ")[1:3]
    page = (ROOT / f"docs/objectives/{name}.md").read_text(encoding="utf-8")
    assert f"from {first} to {last}" in page, (
        "python benchmarks/presets.py was run anew: take its numbers over"
    )
    assert "arXiv" in page
    assert "When to choose it:" in page
