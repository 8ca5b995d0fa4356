"""Links out of a run folder are refused, links within it are not."""

from pathlib import Path

import pytest

from groupwise.errors import RunFolderError
from groupwise.records.links import refuse_links


def test_a_link_that_leads_out_is_named(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "samples").mkdir(parents=True)
    (tmp_path / "elsewhere").write_text("mine")
    (run / "notes.txt").symlink_to(tmp_path / "elsewhere")  # no name of ours
    (run / "samples" / "step-000001.md").write_text("here")
    (run / "samples" / "first.md").symlink_to(run / "samples" / "step-000001.md")
    refuse_links(run, ["config.yaml"])
    for place in (run / "config.yaml", run / "samples" / "step-000002.md"):
        place.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(RunFolderError, match=f"{place} is a link that leads out of the run folder"):
            refuse_links(run, ["config.yaml"])
        place.unlink()


def test_a_folder_that_is_not_there_is_passed_over(tmp_path: Path) -> None:
    refuse_links(tmp_path / "nowhere", ["config.yaml"])
