import re
from pathlib import Path

import pytest

from groupwise.records.document import TABLES, fill
from groupwise.records.metrics_file import METRICS
from groupwise.records.rollout_schema import SCHEMA

PAGE = Path(__file__).parents[2] / "docs" / "records.md"


def test_the_page_holds_what_the_code_says() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert fill(page) == page, "run: python -m groupwise.records.document docs/records.md"


def test_every_metric_and_column_stands_in_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name in [*METRICS, *SCHEMA.names]:
        assert f"| `{name}` |" in page, name


def test_a_stale_page_is_noticed_and_mended() -> None:
    page = PAGE.read_text(encoding="utf-8")
    stale = re.sub(r"\| `reward/mean` \|.*\n", "", page)
    assert stale != page
    assert fill(stale) == page


def test_a_page_without_a_place_for_a_table_is_refused() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name in TABLES:
        with pytest.raises(ValueError, match=f"has 0 places for the table '{name}'"):
            fill(page.replace(f"<!-- table: {name} -->", ""))
