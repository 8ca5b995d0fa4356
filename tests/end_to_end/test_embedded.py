"""The main job on real weights: the embedded model learns within a few steps, from the example's own files."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import groupwise
from groupwise.records.rollout_file import read_rollouts
from groupwise.training.loop import Result
from groupwise.workbench.report import write_report
from tests.report.browser import Tab, browser, find_browser

CONFIG = Path(__file__).parents[2] / "examples" / "first_run" / "config.yaml"


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Tab | None]:
    """A tab of headless Chromium where there is one."""
    if find_browser() is None:
        yield None
        return
    with browser(tmp_path / "profile") as opened:
        yield opened


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_embedded_model_learns_to_add(tmp_path: Path, tab: Tab | None) -> None:
    changes = [
        "training.steps=6",
        "rollout.prompts_per_step=4",
        "rollout.group_size=12",
        "evaluate.prompts=20",
        "run.save_model=false",
        "run.sinks=[]",
        f"run.dir={tmp_path / 'run'}",
    ]
    result = groupwise.train(CONFIG, changes)
    rewards = result.series("reward/mean")
    # Of 6 x 16 rollouts, six steps took the reward from 0.01 to 0.4; a run that learns nothing stays there.
    assert rewards[0] < 0.2
    assert sum(rewards[-2:]) / 2 > rewards[0] + 0.08, rewards
    assert max(result.series("sampler/gap_abs_max")) < 1e-4, "sampler and trainer must agree on real weights"
    assert len(result.series("eval/pass@1")) == 2
    if tab is not None:
        _read_the_report(result, tab)


def _read_the_report(result: Result, tab: Tab) -> None:
    """The demo's report: its curves, one token of a group of the last step against the records, and no noise."""
    written = write_report([result.folder], result.folder / "report.html")
    assert written.path.stat().st_size < 5_000_000
    tab.open(written.path)
    drawn = tab.texts(".chart h3")
    assert {"Reward", "Right answers", "Entropy", "Length"} <= set(drawn)
    corners = tab.run("document.querySelector('.chart path.line').getAttribute('d').match(/[ML]/g).length")
    assert corners == len(result.series("reward/mean")) == 6
    groups = read_rollouts(result.folder / "rollouts" / "step-000006.parquet")
    chosen = next((g for g, entry in enumerate(groups) if not entry.zero_spread), 0)
    entry = groups[chosen]
    tab.run("document.querySelector('input[type=number]').focus()")
    tab.press("6")
    tab.click(f"tr[data-place='6/{chosen}'] button")
    tab.click(f"#tok-6-{chosen}-1-2")
    numbers = dict(tab.each(".readout dd", "[e.dataset.name, e.textContent]"))
    rollout = entry.group.rollouts_G[1]
    assert rollout.entropy_T is not None
    for name, value in {
        "advantage": entry.advantages_GT[1][2],
        "log-prob, sampler": rollout.sampler_logprobs_T[2],
        "entropy, nats": rollout.entropy_T[2],
    }.items():
        assert float(numbers[name]) == pytest.approx(float(value), rel=1e-6, abs=1e-9), name
    assert tab.complaints == []
    assert tab.requests == []
