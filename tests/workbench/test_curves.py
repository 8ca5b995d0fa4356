from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from groupwise.workbench.curves import Curve, chart

SVG = "{http://www.w3.org/2000/svg}"


def test_points_lie_where_they_should() -> None:
    # The axes run from 0 to 10 and from 0 to 1: x from 62 to 570, y from 296 down to 14.
    curve = Curve(name="a < b", points=[(0, 0.0, 0.0, 0.0), (5, 0.5, 0.25, 1.0), (10, 1.0, 1.0, 1.0)])
    tree = ElementTree.fromstring(chart([curve], x_label="step & more", y_label="share"))
    lines = [e.get("points") for e in tree.iter(f"{SVG}polyline") if e.get("stroke-width") == "2"]
    assert lines[0] == "62.0,296.0 316.0,155.0 570.0,14.0"
    (band,) = tree.iter(f"{SVG}polygon")
    assert band.get("points") == "62.0,296.0 316.0,14.0 570.0,14.0 570.0,14.0 316.0,225.5 62.0,296.0"
    texts = [e.text for e in tree.iter(f"{SVG}text")]
    assert {"a < b", "step & more", "share", "0", "10"} <= set(texts)


@pytest.mark.parametrize("value", [0.0, 1e-9, 3e6, -5.0])
def test_a_flat_line_can_be_drawn(value: float) -> None:
    text = chart([Curve(name="x", points=[(0, value, value, value)])], x_label="x", y_label="y")
    ElementTree.fromstring(text)
    assert not re.search(r"nan|inf", text.replace("sans-serif", ""))


def test_many_curves_differ() -> None:
    curves = [Curve(name=str(i), points=[(0, i, i, i), (1, i, i, i)]) for i in range(12)]
    tree = ElementTree.fromstring(chart(curves, x_label="x", y_label="y"))
    looks = [
        (e.get("stroke"), e.get("stroke-dasharray"))
        for e in tree.iter(f"{SVG}polyline")
        if e.get("stroke-width")
    ]
    assert len(set(looks)) == 12
