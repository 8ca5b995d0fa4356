import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest

from groupwise.errors import RunFolderError
from groupwise.records.metrics_file import (
    METRICS,
    MetricsFile,
    comparable,
    nothing_learned,
    read_metrics,
)
from tests.contracts.documentation import undocumented


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_one_line_per_step_with_the_step_first_and_names_sorted(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsFile(path) as file:
        file.append(1, {"reward/mean": 0.1 + 0.2, "clip/low_fraction": 0})
        # Handed to the system at once: another reader sees the line while the file is open.
        assert (
            path.read_text() == '{"step": 1, "clip/low_fraction": 0.0, "reward/mean": 0.30000000000000004}\n'
        )
        file.append(2, {"reward/mean": np.float32(0.1)})
    assert read_metrics(path) == [
        {"step": 1, "clip/low_fraction": 0.0, "reward/mean": 0.30000000000000004},
        {"step": 2, "reward/mean": 0.10000000149011612},  # float32 0.1 as a double
    ]


def test_values_that_are_not_finite_survive_as_strict_json(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsFile(path) as file:
        file.append(1, {"a": math.nan, "b": math.inf, "c": -math.inf, "d": -0.0})

    def refuse(constant: str) -> float:
        raise AssertionError(f"{constant} is not JSON")

    assert json.loads(path.read_text(), parse_constant=refuse) == {
        "step": 1,
        "a": "NaN",
        "b": "Infinity",
        "c": "-Infinity",
        "d": -0.0,
    }
    (row,) = read_metrics(path)
    assert math.isnan(row["a"])
    assert (row["b"], row["c"]) == (math.inf, -math.inf)
    assert math.copysign(1, row["d"]) == -1


def test_a_torn_last_line_is_left_out_and_said(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.jsonl", '{"step": 1, "a": 1.0}\n', '{"step": 2, "a": 2.0}\n', '{"step": 3, "a": 3.'
    )
    with pytest.warns(UserWarning, match="cut short") as caught:
        rows = read_metrics(path)
    assert [row["step"] for row in rows] == [1, 2]
    (said,) = (str(warning.message) for warning in caught)
    assert said.startswith(f"{path}, line 3 was cut short after 19 characters")
    assert said.endswith("the 2 lines before it are whole")
    assert caught[0].filename == __file__  # blamed on whoever reads


def test_appending_after_a_torn_line_starts_clean(tmp_path: Path) -> None:
    path = write(tmp_path / "m.jsonl", '{"step": 1, "a": 1.0}\n', '{"step": 2, "a"')
    with MetricsFile(path) as file:
        file.append(2, {"a": 5.0})
    assert path.read_text() == '{"step": 1, "a": 1.0}\n{"step": 2, "a": 5.0}\n'
    assert len(read_metrics(path)) == 2


def test_a_last_line_that_only_lacks_its_line_break_is_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "m.jsonl", '{"step": 1, "a": 1.0}')
    assert read_metrics(path) == [{"step": 1, "a": 1.0}]
    with MetricsFile(path) as file:
        file.append(2, {})
    assert path.read_text() == '{"step": 1, "a": 1.0}\n{"step": 2}\n'


def test_a_file_cut_anywhere_gives_whole_lines_only(tmp_path: Path) -> None:
    whole = tmp_path / "whole.jsonl"
    with MetricsFile(whole) as file:
        for step in (1, 2, 3):
            file.append(step, {"reward/mean": step / 3, "kl/token_mean": math.nan})
    data = whole.read_bytes()
    rows = [line["reward/mean"] for line in read_metrics(whole)]
    for end in range(len(data) + 1):
        path = tmp_path / "cut.jsonl"
        path.write_bytes(data[:end])
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            kept = [line["reward/mean"] for line in read_metrics(path)]
        whole_lines = data[:end].count(b"\n")
        assert bool(said) == (len(kept) == whole_lines and not data[:end].endswith(b"\n") and end > 0)
        assert kept == rows[: len(kept)]
        assert len(kept) >= whole_lines


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("not json", "line 2: not a line of metrics"),
        ("[1, 2]", "line 2: not a line of metrics"),
        ('{"a": 1.0}', "line 2: not a line of metrics \\(it has no step\\)"),
        ('{"step": 2, "a": NaN}', "line 2: .*NaN outside quotes is not JSON"),
        ('{"step": 2, "a": "high"}', "line 2"),
        ('{"step": 2, "a": true}', "line 2"),
        ('{"step": 2, "a": null}', "line 2"),
        ("", "line 2"),
    ],
)
def test_a_bad_line_in_the_middle_is_named(tmp_path: Path, line: str, why: str) -> None:
    path = write(tmp_path / "m.jsonl", '{"step": 1}\n', line + "\n", '{"step": 3}\n')
    with pytest.raises(RunFolderError, match=why):
        read_metrics(path)


def test_wrong_values_are_named_and_nothing_is_written(tmp_path: Path) -> None:
    with MetricsFile(tmp_path / "m.jsonl") as file:
        for values, why in (
            ({"a": "high"}, "metric a is 'high'"),
            ({"a": None}, "metric a is None"),
            ({"step": 1.0}, "'step'"),
        ):
            with pytest.raises(ValueError, match=why):
                file.append(1, values)  # type: ignore[arg-type]
    assert (tmp_path / "m.jsonl").read_text() == ""


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"m\.jsonl cannot be written"):
        MetricsFile(tmp_path / "no" / "m.jsonl")
    with pytest.raises(RunFolderError, match="there is no metrics file"):
        read_metrics(tmp_path / "m.jsonl")
    with pytest.raises(RunFolderError, match="cannot be read"):
        read_metrics(tmp_path)


def test_only_what_the_clock_and_the_machine_decide_is_left_out_of_comparisons() -> None:
    values = {
        "step": 1.0,
        "reward/mean": 1.0,
        "time/step_seconds": 2.0,
        "memory/peak_rss_mb": 3.0,
        "tokens/per_second": 4.0,
        "tokens/generated": 5.0,
        "eval/pass@1": 6.0,
    }
    assert comparable(values) == {
        "step": 1.0,
        "reward/mean": 1.0,
        "tokens/generated": 5.0,
        "eval/pass@1": 6.0,
    }


def test_names_without_a_meaning_are_found() -> None:
    assert (
        undocumented(
            [
                *("step", "reward/mean", "reward/part/exact/mean", "reward/part/my/own/std", "eval/pass@1"),
                *("reward/logged/share", "reward/logged/my own"),
            ]
        )
        == []
    )
    assert undocumented(
        ["reward/mea", "reward/part//mean", "reward/part/exact/max", "reward/means", "grad/norm"]
    ) == [
        "reward/mea",
        "reward/means",
        "reward/part//mean",
        "reward/part/exact/max",
    ]


def test_every_meaning_is_one_sentence() -> None:
    for name, meaning in METRICS.items():
        assert meaning.endswith("."), name
        assert "\n" not in meaning, name
        assert meaning[0].isupper(), name


def test_nothing_learned_is_told_by_advantages() -> None:
    flat = [{"step": 0, "eval/pass@1": 0.5}, {"step": 1, "advantage/mean": 0.0, "advantage/std": 0.0}]
    assert nothing_learned(flat) == "nothing from rewards: every advantage was 0, in every step"
    assert nothing_learned([*flat, {"step": 2, "advantage/mean": 0.0, "advantage/std": 0.2}]) is None
    assert nothing_learned([*flat, {"step": 2, "advantage/std": math.nan}]) is None
    assert nothing_learned([]) is None
    unscored = [{"step": 0, "eval/length_mean": 4.0}, {"step": 1, "length/mean": 4.0}]
    assert str(nothing_learned(unscored)).startswith("nothing: no rollout had a reward, as when")
    assert nothing_learned([*unscored, {"step": 2, "length/mean": 4.0, "reward/mean": 0.5}]) is None
    assert nothing_learned([{"step": 1, "dpo/loss": 0.7, "length/mean": 4.0}]) is None
