"""The page for those who come from TRL answers every setting, as the command does."""

from __future__ import annotations

import re

import pytest

from groupwise.config.foreign import OTHERS, setting_for
from groupwise.config.keys import known_keys
from groupwise.config.run import RunConfig
from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs" / "from_trl.md").read_text(encoding="utf-8")
CHOSEN = ("low", "high", "dual", "bound")
"""Settings of surrogates."""


def rows(table: str) -> dict[str, tuple[str, str]]:
    """Their name to ours (a dotted key, or `none`) and what is said beside it."""
    found = re.search(rf"<!-- table: {table} -->\n(.*?)<!-- end -->", PAGE, flags=re.S)
    assert found is not None
    cells = [[cell.strip() for cell in line.strip(" |").split(" | ")] for line in found[1].splitlines()[2:]]
    return {
        name: (cell[1].strip("`"), cell[2].rstrip("|").strip() if len(cell) > 2 else "")
        for cell in cells
        for name in re.findall(r"`(\w+)`", cell[0])
    }


GRPO, TRAINER = rows("trl"), rows("trainer")


def test_every_setting_of_trls_own_has_its_row() -> None:
    theirs = (ROOT / "benchmarks" / "parity" / "trl_settings.txt").read_text(encoding="utf-8").split()
    assert len(theirs) > 70
    assert list(GRPO) == theirs


@pytest.mark.parametrize("name", [*GRPO, *TRAINER])
def test_a_row_names_a_setting_of_ours_or_says_why_there_is_none(name: str) -> None:
    ours, note = (GRPO | TRAINER)[name]
    if ours == "none":
        assert len(note) > 7
        assert name not in OTHERS
        return
    assert (
        ours in known_keys()
        or ours in RunConfig.model_fields
        or is_choice(ours)
        or ours in ("prompts.train", "prompts.held_out")
    )
    assert name == "model" or setting_for(name) == ours
    for other in re.findall(r"`((?:[a-z]+\.)+[a-z_]+)`", note):
        assert other in known_keys() or is_choice(other) or other.startswith("groupwise."), other


def is_choice(key: str) -> bool:
    return key.startswith("objective.surrogate.") and key.rsplit(".", 1)[-1] in CHOSEN


def test_every_name_that_the_command_knows_stands_in_the_page() -> None:
    of_scripts = {"lr", "gradient_checkpointing_kwargs", "attn_implementation", "lora_r", "lora_alpha"}
    of_others = {"max_prompt_length", "max_length"}  # removed from TRL's GRPO; of its DPO
    assert set(OTHERS) - set(GRPO) - set(TRAINER) == of_scripts | of_others
