"""Outlines say of a file what its groups say of themselves."""

from pathlib import Path

import pytest

from groupwise.errors import RunFolderError
from groupwise.records import StopReason
from groupwise.records.rollout_file import read_rollouts, write_rollouts
from groupwise.records.rollout_outline import read_outlines
from tests.records.examples import two_groups, with_critic_and_greedy


def test_an_outline_is_what_the_groups_hold(tmp_path: Path) -> None:
    path = tmp_path / "step-000003.parquet"
    first, *others = two_groups()
    groups = [with_critic_and_greedy(first), *others]
    write_rollouts(path, groups, step=3)
    outlines = read_outlines(path)
    assert [o.group for o in outlines] == list(range(len(groups)))
    for outline, entry in zip(outlines, groups, strict=True):
        rollouts = entry.group.rollouts_G
        assert outline.prompt_id == entry.group.prompt.id
        assert outline.responses_G == tuple(r.text for r in rollouts)
        assert outline.rewards_G == tuple(v.reward for v in entry.group.verdicts_G)
        assert outline.lengths_G == tuple(len(r.token_ids_T) for r in rollouts)
        assert outline.truncated_G == tuple(r.stop_reason is StopReason.LENGTH for r in rollouts)


def test_some_groups_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "step-000003.parquet"
    groups = two_groups()
    write_rollouts(path, groups, step=3)
    wanted = [len(groups) - 1, 0]
    read = read_rollouts(path, groups=wanted)
    assert [g.group.prompt.id for g in read] == [groups[i].group.prompt.id for i in sorted(wanted)]
    assert read_rollouts(path, groups=[]) == []


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "step-000001.parquet").write_text("no")
    with pytest.raises(RunFolderError, match="cannot be read as Parquet"):
        read_outlines(tmp_path / "step-000001.parquet")
