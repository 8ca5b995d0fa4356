import re
from pathlib import Path

import pytest
import yaml

from groupwise import registry
from groupwise.config import load
from groupwise.config.rewards import SCORERS
from groupwise.rewards import build
from groupwise.rewards.document import fill, scorers_table

PAGE = Path(__file__).parents[2] / "docs" / "rewards" / "index.md"


def test_the_table_has_every_scorer_with_its_formula_columns_and_settings(tmp_path: Path) -> None:
    table = scorers_table(tmp_path).splitlines()
    assert len(table) == 2 + len(registry.names(SCORERS))
    assert (
        "| `length` | -`alpha` * max(0, length - `target`), length in `unit` | `completion_ids`, where known | "
        "`target: 256`, `alpha: 0.001`, `unit: tokens` |"
    ) in table
    assert (
        "| `keywords` | keywords found / keywords; 0 for more than `max_words` words | column `keywords`, where "
        "known | `words: []`, `max_words: null` |"
    ) in table
    (tmp_path / "exact.md").write_text("x")
    assert "| [`exact`](exact.md) |" in scorers_table(tmp_path)


def test_a_page_without_a_place_for_the_table_is_an_error(tmp_path: Path) -> None:
    marks = "<!-- table: scorers -->\nold\n<!-- end -->\n"
    assert fill(marks, tmp_path) == marks.replace("old\n", scorers_table(tmp_path))
    for page in ("", marks * 2):
        with pytest.raises(ValueError, match="places for the table of scorers"):
            fill(page, tmp_path)


def test_what_the_page_shows_works() -> None:
    text = PAGE.read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    namespace: dict[str, object] = {}
    exec(code, namespace)
    right = namespace["right"]
    said = ["it is 5", "5.05", "it is five", ""]
    assert right(said, ["5"] * 4) == [1.0, 0.0, 0.0, 0.0]  # type: ignore[operator]
    assert right(said, ["5"] * 4, tolerance=0.1) == [1.0, 1.0, 0.0, 0.0]  # type: ignore[operator]
    (shown,) = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    loaded = load(yaml.safe_load(shown), base=PAGE.parent)
    assert build(loaded.config.rewards, base=loaded.base).labels == ("numeric", "format")
