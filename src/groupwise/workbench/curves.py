"""A line chart as SVG, without a plotting library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 760, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 190, 14, 44
# Told apart by people who see colours differently (Okabe and Ito 2008), then by dashes.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8b4513", "#555555", "#b8a800")
_DASHES = ("", "6 3", "2 3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line with a band around it."""

    name: str
    """For the legend."""
    points: Sequence[tuple[float, float, float, float]]
    """x, y, and the band's lower and upper edge there."""


def chart(curves: Sequence[Curve], *, x_label: str, y_label: str) -> str:
    """The curves as the text of an SVG file, readable on a light and a dark page.

    Args:
        curves: in the order of the legend.
        x_label: under the horizontal axis.
        y_label: beside the vertical axis.
    """
    points = [point for curve in curves for point in curve.points] or [(0.0, 0.0, 0.0, 0.0)]
    xs = _ticks(min(p[0] for p in points), max(p[0] for p in points))
    ys = _ticks(min(p[2] for p in points), max(p[3] for p in points))
    inner_w, inner_h = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def at(x: float, y: float) -> str:
        across = _LEFT + inner_w * (x - xs[0]) / (xs[-1] - xs[0])
        return f"{across:.1f},{_TOP + inner_h * (1 - (y - ys[0]) / (ys[-1] - ys[0])):.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'font-family="sans-serif" font-size="12" role="img" aria-label="{escape(y_label)} by {escape(x_label)}">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
    ]
    for y in ys:
        left, right = at(xs[0], y), at(xs[-1], y)
        parts.append(f'<polyline points="{left} {right}" stroke="#ddd" fill="none"/>')
        parts.append(
            f'<text x="{_LEFT - 8}" y="{float(left.split(",")[1]) + 4}" text-anchor="end">{y:g}</text>'
        )
    for x in xs:
        across = at(x, ys[0]).split(",")[0]
        parts.append(f'<text x="{across}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{x:g}</text>')
    parts.append(
        f'<text x="{_LEFT + inner_w / 2}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(x_label)}</text>'
    )
    parts.append(
        f'<text transform="translate(14 {_TOP + inner_h / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text>"
    )
    for i, curve in enumerate(curves):
        colour, dash = _COLOURS[i % len(_COLOURS)], _DASHES[i // len(_COLOURS) % len(_DASHES)]
        line = " ".join(at(x, y) for x, y, _, _ in curve.points)
        upper = [at(x, high) for x, _, _, high in curve.points]
        lower = [at(x, low) for x, _, low, _ in reversed(curve.points)]
        style = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
        parts.append(f'<polygon points="{" ".join(upper + lower)}" fill="{colour}" opacity="0.12"/>')
        parts.append(f'<polyline points="{line}" {style} fill="none"/>')
        top, beside = _TOP + 12 + 18 * i, _WIDTH - _RIGHT + 14
        parts.append(f'<polyline points="{beside},{top - 4} {beside + 22},{top - 4}" {style} fill="none"/>')
        parts.append(f'<text x="{beside + 28}" y="{top}">{escape(curve.name)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from at most `low` to at least `high`."""
    if not high > low:
        low, high = low - 0.5, high + 0.5
    raw = (high - low) / about
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]
