from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path

import pytest

from groupwise.errors import RunFolderError
from groupwise.records.metrics_file import MetricsFile
from groupwise.records.run_folder import RunFolder, create, write_manifest
from groupwise.workbench.compare import drawn
from groupwise.workbench.comparison import (
    Comparison,
    Outcome,
    outcome_of,
    read_outcome,
    write_outcome,
)


def outcome(variant: str, seed: int, final: float, **rest: object) -> Outcome:
    given: dict[str, object] = {"seconds": 10.0, "tokens": 1000, "findings": [], **rest}
    return Outcome(variant=variant, seed=seed, metric="eval/pass@1", curve=[(0, 0.1), (10, final)], **given)  # type: ignore[arg-type]


def comparison(**finals: list[float]) -> Comparison:
    outcomes = {name: [outcome(name, i, x) for i, x in enumerate(values)] for name, values in finals.items()}
    return Comparison(metric="eval/pass@1", outcomes=outcomes, wanted=sum(map(len, outcomes.values())))


def test_the_area_is_the_mean_height() -> None:
    # From 0 to 10 the line rises from 0.1 to 0.5 (mean 0.3), then for 30 steps it stays: (10 x 0.3 + 30 x 0.5) / 40.
    curve = [(0, 0.1), (10, 0.5), (40, 0.5)]
    found = Outcome(variant="x", seed=0, metric="m", curve=curve, seconds=1, tokens=1, findings=[])
    assert found.area == pytest.approx(0.45)
    assert found.final == 0.5


def test_a_difference_is_of_pairs_with_the_same_seed() -> None:
    # Differences 0.10, 0.12, 0.14 whatever the seeds do: mean 0.12, half 4.30265 x 0.02 / sqrt(3) = 0.0497.
    found = comparison(base=[0.1, 0.5, 0.3], other=[0.2, 0.62, 0.44]).difference("other")
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((0.12, 0.0703, 0.1697), abs=1e-4)


def test_what_is_within_noise_is_said() -> None:
    found = comparison(
        base=[0.1, 0.5, 0.3], better=[0.2, 0.62, 0.44], noisy=[0.3, 0.5, 0.2], worse=[0.0, 0.39, 0.2]
    )
    said = found.sentences()
    assert said[1:] == [
        "better: +12.0% [+7.0%, +17.0%] against the base over 3 seeds: better by more than the noise.",
        "noisy: +3.3% [-34.6%, +41.3%] against the base over 3 seeds: within noise.",
        "worse: -10.3% [-11.8%, -8.9%] against the base over 3 seeds: worse by more than the noise.",
        # 1 - 0.95^3 = 0.1426
        "Of 3 comparisons 2 lie outside the noise; were nothing different at all, at least one would in 14% of such "
        "studies.",
    ]


def test_equal_runs_are_no_difference_and_one_seed_is_no_evidence() -> None:
    assert "within noise" in comparison(base=[0.1, 0.2], same=[0.1, 0.2]).sentences()[1]
    single = comparison(base=[0.1], other=[0.9])
    assert (
        single.sentences()[1] == "other: +80.0% against the base with one seed, which says nothing of noise."
    )
    assert single.data()["differences"]["other"] == {"value": pytest.approx(0.8), "low": None, "high": None}
    json.dumps(single.data(), allow_nan=False)


def test_differences_that_are_all_the_same_say_nothing_of_noise() -> None:
    found = comparison(base=[0.25, 0.5, 0.0], other=[0.5, 0.75, 0.25])
    assert found.sentences()[1] == (
        "other: +25.0% [+25.0%, +25.0%] against the base over 3 seeds: the same in each, which says nothing of noise; "
        "measure more prompts, or take more seeds."
    )


def test_of_a_length_more_is_not_better() -> None:
    base, other = (
        [
            Outcome(
                **{**asdict(outcome(name, i, value)), "metric": "eval/length_mean"}  # type: ignore[arg-type]
            )
            for i, value in enumerate(values)
        ]
        for name, values in (("base", [9.0, 8.0, 7.0]), ("other", [19.0, 18.5, 17.0]))
    )
    found = Comparison(metric="eval/length_mean", outcomes={"base": base, "other": other}, wanted=6)
    assert found.sentences()[1].endswith("against the base over 3 seeds: higher by more than the noise.")


def test_a_metric_without_a_value_is_said_and_kept_as_null() -> None:
    """The mean reward where no held-out response got one."""
    found = comparison(base=[0.1, math.nan], other=[0.9, 0.8])
    assert "eval/pass@1 has no value in some run, so it cannot be compared" in found.sentences()[1]
    kept = json.loads(json.dumps(found.data(), allow_nan=False))
    assert kept["runs"][1]["curve"] == [[0, 0.1], [10, None]]
    assert "nan" in found.table()
    assert "nan" not in drawn(found)


def test_the_table() -> None:
    outcomes = {
        "base": [outcome("base", i, 0.3 + 0.1 * i, findings=["truncation"] if i else []) for i in range(3)],
        "x": [outcome("x", 0, 0.5), outcome("x", 1, 0.2, failure="the loss stays non-finite")],
        "y": [outcome("y", 0, 0.5, failure="no")],
    }
    found = Comparison(metric="eval/pass@1", outcomes=outcomes, wanted=9)
    assert found.table().splitlines() == [
        "| variant | runs | last eval/pass@1 | area under its curve | against the base | seconds | tokens | findings |",
        "|---|---|---|---|---|---|---|---|",
        "| base | 3 | 40.0% [30.0%, 50.0%] | 25.0% [20.0%, 30.0%] |  | 10 | 1,000 | truncation in 2 |",
        "| x | 1 of 2 | 50.0% | 30.0% | +20.0% | 10 | 1,000 | none |",
        "| y | 0 of 1 | | | | | | none |",
    ]
    assert found.sentences()[-3:] == [
        "x, seed 1, ended early: the loss stays non-finite.",
        "y, seed 0, ended early: no.",
        "3 of 9 runs have not ended yet.",
    ]


def test_an_outcome_is_read_from_a_run_and_kept(tmp_path: Path) -> None:
    folder = create(tmp_path / "run", overwrite=False)
    write_manifest(folder, seed=1, command=["x"], data_files={})
    with MetricsFile(folder.metrics_file) as file:
        file.append(0, {"eval/pass@1": 0.2})
        for step in (1, 2):
            line = {"time/step_seconds": 3.0, "time/evaluate_seconds": 1.0, "tokens/generated": 50.0}
            file.append(step, line | ({"eval/pass@1": 0.4} if step == 2 else {}))
    found = outcome_of(folder, variant="v", seed=1, metric="eval/pass@1")
    assert (found.curve, found.seconds, found.tokens, found.findings) == ([(0, 0.2), (2, 0.4)], 4.0, 100, [])
    write_outcome(found, tmp_path / "v.json")
    assert read_outcome(tmp_path / "v.json") == found
    with pytest.raises(RunFolderError, match=r"has no metric eval/reward_mean; it has eval/pass@1"):
        outcome_of(RunFolder(folder.path), variant="v", seed=1, metric="eval/reward_mean")
    for text in ("{", "[]", '{"curve": [[1]]}', '{"curve": [], "strange": 1}'):
        (tmp_path / "v.json").write_text(text)
        with pytest.raises(RunFolderError, match="not what a comparison writes"):
            read_outcome(tmp_path / "v.json")
    assert math.isfinite(found.area)
