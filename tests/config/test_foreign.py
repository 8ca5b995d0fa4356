from __future__ import annotations

from pathlib import Path

import pytest

from groupwise.config import load
from groupwise.config.foreign import OTHERS, setting_for
from groupwise.config.keys import known_keys
from groupwise.config.run import RunConfig
from groupwise.errors import ConfigError


def test_every_name_of_ours_exists() -> None:
    keys = known_keys()
    sections = set(RunConfig.model_fields)
    for ours in OTHERS.values():
        inside_a_choice = ours.startswith("objective.surrogate.")  # settings of clip
        with_entries = any(key.startswith(f"{ours}.") for key in keys)
        assert ours in keys or ours in sections or inside_a_choice or with_entries, ours
        if inside_a_choice:
            load({}, [f"{ours}={1.5 if ours.endswith('dual') else 0.25}"])


@pytest.mark.parametrize("theirs", OTHERS)
def test_each_is_answered_with_our_name(theirs: str) -> None:
    with pytest.raises(ConfigError, match=rf"unknown key {theirs}; did you mean {OTHERS[theirs]}\?"):
        load({theirs: 1})
    with pytest.raises(ConfigError, match=f"key=value, for example {OTHERS[theirs]}="):
        load({}, [f"--{theirs.replace('_', '-')}=1"])


def test_half_precision_is_offered_where_it_works() -> None:
    with pytest.raises(
        ConfigError, match=r"did you mean model\.precision\? \(bfloat16 or float32; the weights stay"
    ):
        load({"bf16": True})


def test_bare_words() -> None:
    assert setting_for("num_generations") == "rollout.group_size"
    assert setting_for("num_generation") == "rollout.group_size"
    assert setting_for("lerning_rate") == "training.learning_rate"
    assert setting_for("xyzzy") is None


def test_a_base_folder_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("run: {base: data}\n")
    assert load(tmp_path / "config.yaml").base == tmp_path / "data"
    assert load(tmp_path / "config.yaml", [f"run.base={tmp_path}"]).base == tmp_path
    assert load(tmp_path / "config.yaml", ["run.base=null"]).base == tmp_path
