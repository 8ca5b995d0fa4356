import random

import pytest

from groupwise.health.trend import trend


def test_a_line_by_hand() -> None:
    # 1, 3, 2, 4 at -1.5, -0.5, 0.5, 1.5: slope (-1.5 - 1.5 + 1 + 6) / 5 = 0.8 about the mean 2.5, so 1.3 to 3.7.
    # Residuals -0.3, 0.9, -0.9, 0.3: squares 1.8; error sqrt(1.8 / 2 / 5) = 0.4243; score 1.886.
    found = trend([1.0, 3.0, 2.0, 4.0])
    assert (found.start, found.end) == (pytest.approx(1.3), pytest.approx(3.7))
    assert found.change == pytest.approx(2.4)
    assert found.score == pytest.approx(1.8856, abs=1e-4)
    assert not found.rises


def test_known_errors_count_where_they_are_larger() -> None:
    # Errors of 1 each: sqrt(5) / 5 = 0.447 > 0.4243, so the score is 0.8 / 0.447 = 1.789.
    assert trend([1.0, 3.0, 2.0, 4.0], [1.0] * 4).score == pytest.approx(1.7889, abs=1e-4)
    assert trend([1.0, 3.0, 2.0, 4.0], [0.1] * 4).score == pytest.approx(1.8856, abs=1e-4)


def test_few_points_need_more() -> None:
    assert trend([1.0, 2.0, 3.0]).rises  # exactly on a line
    assert trend([3.0, 2.0, 1.0]).falls
    # 1, 2.2, 3: slope 1, residuals -1/15, 2/15, -1/15; error sqrt(6 / 225 / 1 / 2) = 0.1155; score 8.66 < 12.71
    assert trend([1.0, 2.2, 3.0]).score == pytest.approx(8.66, abs=0.01)
    assert not trend([1.0, 2.2, 3.0]).rises
    assert trend([1.0, 9.0]).score == 0
    assert trend([5.0] * 9).score == 0


def test_noise_alone_is_rarely_sure() -> None:
    random.seed(1)
    sure = sum(trend([random.gauss(0, 1) for _ in range(50)]).rises for _ in range(500))
    assert sure == 0
    assert trend([0.02 * i + random.gauss(0, 0.2) for i in range(50)]).rises
