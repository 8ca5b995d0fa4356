"""The file itself: its size, its promises, and that it comes out the same."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.errors import RunFolderError
from groupwise.records import Rollout, TrainingGroup
from groupwise.records.metrics_file import MetricsFile
from groupwise.records.rollout_file import read_rollouts, write_rollouts
from groupwise.records.run_folder import RunFolder
from groupwise.report.page import LIMIT_BYTES, build, plain
from groupwise.report.reading import Described, read_run
from tests.report.conftest import without_advantages

NOTHING = Described(formula="")


def data_of(html: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    run: dict[str, Any] = json.loads(found[1])["runs"][0]
    return run


def longer(group: TrainingGroup, tokens: int) -> TrainingGroup:
    """The same group with responses of so many tokens."""

    def stretched(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.resize(array, tokens)

    def rollout(r: Rollout) -> Rollout:
        assert r.entropy_T is not None
        return replace(
            r,
            token_ids_T=stretched(r.token_ids_T),
            trainable_T=stretched(r.trainable_T),
            sampler_logprobs_T=stretched(r.sampler_logprobs_T),
            entropy_T=stretched(r.entropy_T),
            text="word " * tokens,
        )

    inner = replace(group.group, rollouts_G=tuple(map(rollout, group.group.rollouts_G)))
    assert group.reference_logprobs_GT is not None
    return replace(
        group,
        group=inner,
        advantages_GT=tuple(map(stretched, group.advantages_GT)),
        old_logprobs_GT=tuple(map(stretched, group.old_logprobs_GT)),
        reference_logprobs_GT=tuple(map(stretched, group.reference_logprobs_GT)),
    )


@pytest.fixture(scope="module")
def long(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """500 steps of 4 groups with 4 responses of 300 tokens: 2.4 million tokens."""
    run = tmp_path_factory.mktemp("long") / "run"
    shutil.copytree(finished, run, ignore=shutil.ignore_patterns("rollouts", "checkpoints", "model"))
    (run / "rollouts").mkdir()
    source = read_rollouts(RunFolder(finished).rollout_file(1))
    groups = [longer(group, 300) for group in (*source, source[0])]
    write_rollouts(RunFolder(run).rollout_file(1), groups, step=1)
    for step in range(2, 501):
        shutil.copy(RunFolder(run).rollout_file(1), RunFolder(run).rollout_file(step))
    (run / "metrics.jsonl").unlink()
    generator = np.random.default_rng(0)
    with MetricsFile(run / "metrics.jsonl") as file:
        for step in range(1, 501):
            file.append(step, {f"reward/part/{i}/mean": generator.normal() for i in range(80)})
    return run


def test_a_run_of_500_steps_stays_below_five_megabytes(long: Path) -> None:
    page = build([(read_run(long, NOTHING), None)])
    size = len(page.html.encode())
    assert 0.8 * LIMIT_BYTES < size < LIMIT_BYTES == 5_000_000
    data = data_of(page.html)
    assert len(data["table"]["step"]) == 2000
    assert len(data["metrics"]["series"]["reward/part/0/mean"]["y"]) == 500
    assert page.groups[0] == len(data["opened"]) >= 40
    assert any(
        f"tokens are shown of {len(data['opened'])} of 2,000 groups" in text for text in data["left_out"]
    )
    opened = {(group["step"], group["group"]) for group in data["opened"]}
    widest = max(range(3), key=lambda g: (data["table"]["spread"][g], -g))
    assert {(500, widest), (1, widest), (250, widest)} <= opened


@pytest.mark.long
def test_two_long_runs_share_the_page(long: Path) -> None:
    runs = [(read_run(long, NOTHING), None)] * 2
    page = build(runs)
    assert len(page.html.encode()) < LIMIT_BYTES
    assert page.groups[0] == page.groups[1] > 10


def test_the_same_run_gives_the_same_page(finished: Path) -> None:
    first, second = (build([(read_run(finished, NOTHING), None)]).html for _ in range(2))
    assert first == second


def test_a_run_that_learned_nothing_says_so_as_the_terminal_does(finished: Path, tmp_path: Path) -> None:
    assert data_of(build([(read_run(finished, NOTHING), None)]).html)["nothing_learned"] is None
    data = data_of(build([(read_run(without_advantages(finished, tmp_path), NOTHING), None)]).html)
    assert data["nothing_learned"] == "nothing from rewards: every advantage was 0, in every step"


@pytest.mark.long
def test_a_smaller_limit_is_held_too(long: Path) -> None:
    for limit in (1_000_000, 400_000):
        page = build([(read_run(long, NOTHING), None)], limit_bytes=limit)
        assert len(page.html.encode()) < limit
        assert any("curves have about" in text for text in data_of(page.html)["left_out"])


def test_hundreds_of_findings_with_long_texts_do_not_burst_it(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    long_text = "<" * 5000  # each takes six bytes in the page
    with (run / "health.jsonl").open("w") as file:
        for i in range(400):
            finding = {"check": f"c{i}", "kind": "k", "summary": long_text, "causes": [long_text] * 9}
            file.write(
                json.dumps({"step": i, "kind": "finding", "event": "begins", "finding": finding}) + "\n"
            )
    page = build([(read_run(run, NOTHING), None)])
    assert len(page.html.encode()) < LIMIT_BYTES
    found = data_of(page.html)["happenings"]
    assert len(found["findings"]) + found["more"][0] == 400
    assert 0 < len(found["findings"]) < 200
    assert page.groups[0] == 18, "the groups have their room all the same"


def test_no_reader_of_html_leaves_the_data(finished: Path) -> None:
    said = "</script><!-- <script> & \u2028 ' \""
    assert json.loads(plain({"x": said})) == {"x": said}
    assert not re.search(r"[<>&]", plain([said]))
    assert plain("half \ud800 pair") == '"half ? pair"'
    page = build([(read_run(finished, NOTHING), None)]).html
    assert page.count("</script>") == 2
    assert page.count("<script") == 2


def test_the_page_names_no_other_address(finished: Path) -> None:
    page = build([(read_run(finished, NOTHING), None)]).html
    frame = page.replace(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1], "")  # type: ignore[index]
    addresses = set(re.findall(r"(?:https?:)?//[\w.]+", re.sub(r"(?m)^\s*// .*$", "", frame)))
    assert addresses <= {"http://www.w3.org"}, "the name of a namespace, which nothing is fetched from"
    assert "default-src 'none'" in page
    assert "unsafe" not in page
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert word not in frame


def test_more_runs_than_can_be_told_apart(finished: Path) -> None:
    with pytest.raises(RunFolderError, match="shows up to 4 runs, and 5 were named"):
        build([(read_run(finished, NOTHING), None)] * 5)


def test_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="there is no run folder"):
        read_run(tmp_path / "nowhere", NOTHING)
    with pytest.raises(RunFolderError, match=r"has no manifest\.json"):
        read_run(tmp_path, NOTHING)
