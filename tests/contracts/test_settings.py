"""A setting that is taken and then ignored is worse than one that is refused (case l04)."""

from pathlib import Path

import groupwise
from groupwise.config.keys import known_keys
from tests.contracts.documentation import unread_settings

SOURCE = Path(groupwise.__file__).parent


def test_every_setting_is_read_by_something() -> None:
    assert unread_settings(SOURCE, known_keys()) == []


def test_a_setting_that_nothing_reads_is_found(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("def f(config):\n    return config.rollout.group_size\n")
    assert unread_settings(tmp_path, ["rollout.group_size", "rollout.ignored"]) == ["rollout.ignored"]
