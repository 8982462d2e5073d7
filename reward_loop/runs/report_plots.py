"""The report's numbers as text and its plots as SVG.

Invariants: colours come from the page's CSS variables, so that one plot serves light and dark; every text in it is
escaped; the same numbers give the same characters. A plot is as wide as a phone and hardly scaled, so that its text
stays the size of the page's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

WIDTH = 340
_LEFT, _RIGHT, _TOP, _PLOT_HEIGHT, _BOTTOM = 44, 8, 18, 130, 24
_ROW_HEIGHT = 40
_MOST_TICKS = 6


@dataclass(frozen=True, slots=True)
class Bar:
    """`count` samples between `low` and `high`; both are the value itself where it is exact."""

    low: float
    high: float
    count: int

    @property
    def label(self) -> str:
        """The value, or the interval."""
        return show_number(self.low) if self.low == self.high else f"{show_number(self.low)} to {show_number(self.high)}"


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """Percentiles of seconds, as (name, value) from the lowest to the maximum."""

    name: str
    samples: int
    percentiles: tuple[tuple[str, float], ...]


def show_count(value: int) -> str:
    """1234567 -> 1,234,567."""
    return f"{value:,}"


def show_number(value: float | None) -> str:
    """Four significant digits; a dash for nothing."""
    if value is None:
        return "–"  # noqa: RUF001 (a dash)
    text = f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.4g}"
    return text.replace("-", "\N{MINUS SIGN}", 1) if text.startswith("-") else text


def show_share(part: int, whole: int) -> str:
    """A percentage that reads 0 % or 100 % only where it is exactly that."""
    if part in (0, whole):
        return "0 %" if part == 0 else "100 %"
    percent = min(max(100 * part / whole, 0.1), 99.9)
    return f"{percent:.1f} %"


def show_seconds(value: float) -> str:
    """Seconds in the unit that suits them."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size or unit == "µs":
            return f"{value / size:.3g} {unit}" if value < 1000 * size else f"{value:,.0f} {unit}"
    raise ValueError(f"{value} is not a number of seconds")


def distribution_svg(bars: Sequence[Bar], label: str) -> Markup:
    """A histogram (or one bar per exact value) of `bars`, which are in ascending order and not empty."""
    discrete = all(bar.low == bar.high for bar in bars)
    top = _nice_ceiling(max(bar.count for bar in bars))
    low, high = bars[0].low, bars[-1].high
    slot = (WIDTH - _LEFT - _RIGHT) / len(bars)
    base = _TOP + _PLOT_HEIGHT
    parts = [_grid_line(base - _PLOT_HEIGHT * step / 2, show_count(top * step // 2)) for step in (0, 1, 2)]
    for position, bar in enumerate(bars):
        width = min(slot * 0.72, 64) if discrete else max(slot - 1, 1)
        height = max(_PLOT_HEIGHT * bar.count / top, 1.5) if bar.count else 0
        x = _LEFT + slot * position + (slot - width) / 2
        parts.append(
            Markup('<rect class="mark" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="{}">').format(
                x, base - height, width, height, 2 if discrete else 0
            )
            + Markup("<title>{}: {}</title></rect>").format(bar.label, show_count(bar.count))
        )
        if discrete:
            parts.append(_text(x + width / 2, base + 16, show_number(bar.low)))
            if len(bars) <= _MOST_TICKS:
                parts.append(_text(x + width / 2, base - height - 5, show_count(bar.count), "value"))
    if not discrete:
        parts += [
            _text(_LEFT + (WIDTH - _LEFT - _RIGHT) * share, base + 16, show_number(low + (high - low) * share), anchor=at)
            for share, at in ((0.0, "start"), (0.5, "middle"), (1.0, "end"))
        ]
    return _svg(parts, base + _BOTTOM, label)


def latency_svg(rows: Sequence[LatencyRow], label: str) -> Markup:
    """One line per row from its lowest percentile to its maximum, a dot at each, on a logarithmic axis."""
    values = [value for row in rows for _, value in row.percentiles]
    first = math.floor(math.log10(min(values)))
    last = max(math.ceil(math.log10(max(values))), first + 1)
    left, right = 22, WIDTH - 22

    def x_of(value: float) -> float:
        return left + (right - left) * (math.log10(value) - first) / (last - first)

    base = _ROW_HEIGHT * len(rows) + 6
    step = math.ceil((last - first) / _MOST_TICKS)
    parts: list[Markup] = []
    for exponent in range(first, last + 1, step):
        x = x_of(10.0**exponent)
        parts.append(Markup('<line class="grid" x1="{0:.1f}" x2="{0:.1f}" y1="0" y2="{1}"/>').format(x, base))
        parts.append(_text(x, base + 16, show_seconds(10.0**exponent)))
    for position, row in enumerate(rows):
        y = _ROW_HEIGHT * position + 30
        ends = x_of(row.percentiles[0][1]), x_of(row.percentiles[-1][1])
        parts.append(_text(left, y - 13, _shortened(row.name), "name", "start"))
        parts.append(Markup('<line class="range" x1="{:.1f}" x2="{:.1f}" y1="{y}" y2="{y}"/>').format(*ends, y=y))
        for index, (name, value) in enumerate(row.percentiles):
            style = "mark" if index in (0, len(row.percentiles) - 1) else "mark faint"
            dot = Markup('<circle class="{}" cx="{:.1f}" cy="{}" r="{}">').format(style, x_of(value), y, 5 - index * 0.4)
            parts.append(dot + Markup("<title>{} {}: {}</title></circle>").format(row.name, name, show_seconds(value)))
    return _svg(parts, base + _BOTTOM, label)


def weight_svg(points: Sequence[tuple[int, float]], end: int, label: str) -> Markup:
    """A line of steps: each (place, weight) holds until the next place, the last one until `end`; 0 is in the picture."""
    weights = [weight for _, weight in points]
    low, high = min(0.0, *weights), max(0.0, *weights)
    first, base = points[0][0], _TOP + _PLOT_HEIGHT

    def x_of(place: int) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * (place - first) / max(end - first, 1)

    def y_of(weight: float) -> float:
        return base - _PLOT_HEIGHT * (weight - low) / ((high - low) or 1.0)

    parts = [_grid_line(y_of(weight), show_number(weight)) for weight in sorted({low, 0.0, high})]
    path = f"M{x_of(first):.1f} {y_of(weights[0]):.1f}"
    path += "".join(f"H{x_of(place):.1f}V{y_of(weight):.1f}" for place, weight in points[1:])
    parts.append(Markup('<path class="line" d="{}H{:.1f}"/>').format(path, x_of(end)))
    for place, weight in points:
        dot = Markup('<circle class="mark" cx="{:.1f}" cy="{:.1f}" r="3">').format(x_of(place), y_of(weight))
        parts.append(dot + Markup("<title>{}: {}</title></circle>").format(show_count(place), show_number(weight)))
    parts.append(_text(_LEFT, base + 16, show_count(first), anchor="start"))
    parts.append(_text(WIDTH - _RIGHT, base + 16, show_count(end), anchor="end"))
    return _svg(parts, base + _BOTTOM, label)


def curve_svg(points: Sequence[tuple[int, float]], label: str) -> Markup:
    """A line through (step, value), ascending and not empty; the axis begins where the values do."""
    values = [value for _, value in points]
    low, high = min(values), max(values)
    first, last, base = points[0][0], points[-1][0], _TOP + _PLOT_HEIGHT

    def x_of(step: int) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * (step - first) / max(last - first, 1)

    def y_of(value: float) -> float:
        return base - _PLOT_HEIGHT * ((value - low) / (high - low) if high > low else 0.5)

    parts = [_grid_line(y_of(value), show_number(value)) for value in sorted({low, high})]
    path = " ".join(f"{x_of(step):.1f},{y_of(value):.1f}" for step, value in points)
    parts.append(Markup('<polyline class="line" points="{}"/>').format(path))
    end = Markup('<circle class="mark" cx="{:.1f}" cy="{:.1f}" r="3">').format(x_of(last), y_of(values[-1]))
    parts.append(end + Markup("<title>{}: {}</title></circle>").format(show_count(last), show_number(values[-1])))
    parts.append(_text(_LEFT, base + 16, show_count(first), anchor="start"))
    parts.append(_text(WIDTH - _RIGHT, base + 16, show_count(last), anchor="end"))
    return _svg(parts, base + _BOTTOM, label)


def _svg(parts: Sequence[Markup], height: float, label: str) -> Markup:
    opening = Markup('<svg viewBox="0 0 {} {:.0f}" role="img" aria-label="{}">').format(WIDTH, height, label)
    return opening + Markup("").join(parts) + Markup("</svg>")


def _text(x: float, y: float, text: str, style: str = "tick", anchor: str = "middle") -> Markup:
    template = Markup('<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>')
    return template.format(style, x, y, anchor, text)


def _grid_line(y: float, label: str) -> Markup:
    line = Markup('<line class="grid" x1="{}" x2="{}" y1="{y:.1f}" y2="{y:.1f}"/>').format(_LEFT, WIDTH - _RIGHT, y=y)
    return line + _text(_LEFT - 6, y + 4, label, anchor="end")


def _nice_ceiling(count: int) -> int:
    """The smallest even 1, 2, 3, 4, 5, 6 or 8 times a power of ten that is not below `count`."""
    scale = int("1" + "0" * (len(str(count)) - 1))
    steps = (step * scale for step in (1, 2, 3, 4, 5, 6, 8, 10))
    return next(step for step in steps if step >= count and step % 2 == 0)


def _shortened(name: str) -> str:
    return name if len(name) <= 44 else name[:43] + "…"
