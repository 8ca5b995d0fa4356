import math

import pytest

from groupwise.health.history import History, Series


def test_a_window_of_a_metric_and_the_latest_value() -> None:
    history = History([{"step": 1, "a": 1.0}, {"step": 2, "a": math.nan, "b": 5.0}, {"step": 3, "a": 3.0}])
    assert history.all("a") == Series((1, 3), (1.0, 3.0))  # NaN is left out
    assert history.last("a", 1) == Series((3,), (3.0,))
    assert history.first("a", 1) == Series((1,), (1.0,))
    assert (history.now("a"), history.now("b"), history.step) == (3.0, None, 3)
    assert history.last("c", 4).values == ()
    assert math.isnan(history.last("c", 4).mean)
    history.add({"step": 4, "a": math.inf})
    assert history.now("a") is None
    assert history.line["a"] == math.inf


def test_statistics_of_a_window() -> None:
    series = Series((1, 2, 3, 4), (1.0, 2.0, 3.0, 10.0))
    assert (series.mean, series.median) == (4.0, 2.5)
    assert series.since(3) == Series((3, 4), (3.0, 10.0))
    assert series.since(9).values == ()


def test_labels_in_names() -> None:
    history = History(
        [{"step": 1, "reward/part/a b/mean": 1.0, "reward/part/c/std": 1.0, "reward/mean": 1.0}]
    )
    assert history.labels("reward/part/{label}/mean") == ["a b"]


def test_a_line_without_a_step_is_refused() -> None:
    with pytest.raises(KeyError):
        History([{"a": 1.0}])
