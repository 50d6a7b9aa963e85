"""Plots of a report: SVG to put into a `Page`, drawn by matplotlib, coloured and set by the style sheet of the page.

Text stays text, and colours are the page's variables, so that one plot does for light, dark and paper. The same data
gives the same bytes. Names with the word of a service tier have the tier's colour everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import XAxis, YAxis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter
from numpy.typing import ArrayLike, NDArray

from ultrafast.report.estimate import Estimate
from ultrafast.report.page import legible
from ultrafast.report.svg import GRID, INK, SOFT, Inks, drawing, to_svg

Floats = NDArray[np.float64]

_WIDTH = 8.0  # inches; the page scales it to its own width
_MARKERS = "osD^v<>"
_DASHES: tuple[tuple[float, Sequence[float]] | None, ...] = (None, (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))


@dataclass(frozen=True, slots=True)
class Line:
    """One curve; `low` and `high` bound a band around it. Points that are not finite are left out, and so are those
    that a logarithmic axis cannot show."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """What went on from one time to another, in seconds; spans of one kind share a colour."""

    start_s: float
    end_s: float
    kind: str


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a timeline."""

    name: str
    spans: Sequence[Span]


def lines(curves: Sequence[Line], *, x: str, y: str, log_x: bool = False, log_y: bool = False) -> str:
    """Curves over a common axis; `x` and `y` name the quantities, with units."""
    with drawing():
        figure, axes = _axes(3.6)
        inks, handles, widths = Inks(), list[Artist](), list[float]()
        for number, curve in enumerate(curves):
            colour, nth = inks.of(curve.name)
            at, height = np.asarray(curve.x, dtype=float), np.asarray(curve.y, dtype=float)
            shown = _drawable(at, log_x) & _drawable(height, log_y)
            widths += at[shown].tolist()
            dash, marker = _DASHES[nth % len(_DASHES)], _MARKERS[number % len(_MARKERS)]
            style: dict[str, Any] = {"color": colour, "linestyle": dash, "marker": marker}
            axes.plot(at, np.where(shown, height, np.nan), **style)
            if curve.low is not None and curve.high is not None:
                low, high = (np.where(shown & np.isfinite(end), end, np.nan) for end in (curve.low, curve.high))
                axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
            handles.append(Line2D([], [], **style))
        _scale(axes.yaxis, log_y and bool(widths))
        _scale(axes.xaxis, log_x and bool(widths))
        if not log_y:
            axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        if log_x:  # what was chosen to be measured, rather than powers of ten
            _ticks_at(axes, widths)
        axes.set(xlabel=legible(x), ylabel=legible(y))
        names = [curve.name for curve in curves]
        _legend(figure, handles, names)
        return to_svg(figure, f"{y} over {x}: {', '.join(names)}")


def distribution(samples: Mapping[str, ArrayLike], *, x: str, log_x: bool = False) -> str:
    """The share of samples at or below each value. What never ended (``inf``) keeps a curve below 100 %."""
    with drawing():
        figure, axes = _axes(3.2)
        inks, handles, drawn = Inks(), list[Artist](), 0
        for name, values in samples.items():
            colour, nth = inks.of(name)
            ordered = np.sort(np.asarray(values, dtype=float))
            finite = ordered[_drawable(ordered, log_x)]
            drawn += len(finite)
            below = int((ordered <= 0).sum()) if log_x else 0
            share = np.arange(below, below + len(finite) + 1) / max(1, len(ordered))
            dash = _DASHES[nth % len(_DASHES)]
            if len(finite):
                axes.step([finite[0], *finite], share, where="post", color=colour, linestyle=dash)
            handles.append(Line2D([], [], color=colour, linestyle=dash))
        _scale(axes.xaxis, log_x and drawn > 0)
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
        axes.set(xlabel=legible(x), ylabel="share at or below")
        _legend(figure, handles, list(samples))
        return to_svg(figure, f"Distribution of {x}: {', '.join(samples)}")


def bars(groups: Mapping[str, Mapping[str, Estimate]], *, x: str) -> str:
    """Estimates as bars with their intervals, by group (down the side) and series (by colour)."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    with drawing():
        figure, axes = _axes(0.9 + 0.26 * sum(map(len, groups.values())) + 0.2 * len(groups))
        inks = Inks()
        styles = {name: inks.of(name) for name in names}
        at, centres = 0.0, []
        for group in groups.values():
            start = at
            for name, estimate in group.items():
                _bar(axes, at, estimate, styles[name])
                at += 1
            centres.append((start + at - 1) / 2)
            at += 0.8
        _scale(axes.xaxis, False)
        axes.set_ylim(at - 1.2, -0.6)
        axes.set_yticks(centres, [_short(name) for name in groups])
        axes.tick_params(axis="y", pad=6, colors=INK)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(legible(x))
        handles = [Patch(facecolor=colour, alpha=_opacity(nth)) for colour, nth in styles.values()]
        _legend(figure, handles, names)
        return to_svg(figure, f"{x}, by {', '.join(groups)}: {', '.join(names)}")


def timeline(rows: Sequence[Row]) -> str:
    """What went on when, row by row, in seconds."""
    kinds = list(dict.fromkeys(span.kind for row in rows for span in row.spans))
    with drawing():
        figure, axes = _axes(0.9 + 0.3 * len(rows))
        inks = Inks()
        colours = {kind: inks.of(kind)[0] for kind in kinds}
        for number, row in enumerate(rows):
            for kind in kinds:
                spans = [(span.start_s, span.end_s - span.start_s) for span in row.spans if span.kind == kind]
                axes.broken_barh(spans, (number - 0.35, 0.7), facecolor=colours[kind], linewidth=0)
        axes.set_yticks(range(len(rows)), [_short(row.name) for row in rows])
        axes.tick_params(axis="y", pad=6, colors=INK)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(left=min([0.0, *(span.start_s for row in rows for span in row.spans)]))
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("seconds")
        _legend(figure, [Patch(facecolor=colours[kind]) for kind in kinds], kinds)
        return to_svg(figure, f"Timeline of {', '.join(row.name for row in rows)}, in seconds: {', '.join(kinds)}")


def _axes(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH, height), layout="constrained", facecolor="none")
    axes = figure.add_subplot(facecolor="none")
    axes.set_axisbelow(True)
    axes.grid(color=GRID, linewidth=0.6)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(SOFT)
    axes.tick_params(colors=SOFT)
    axes.xaxis.label.set_color(SOFT)
    axes.yaxis.label.set_color(SOFT)
    return figure, axes


def _drawable(values: Floats, log: bool) -> NDArray[np.bool_]:
    return np.isfinite(values) & (values > 0) if log else np.isfinite(values)


def _scale(axis: XAxis | YAxis, log: bool) -> None:
    if log:
        (axis.axes.set_xscale if isinstance(axis, XAxis) else axis.axes.set_yscale)("log")
        low, high = axis.get_view_interval()
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1000 * low else (1,)))
        axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _ticks_at(axes: Axes, values: Sequence[float]) -> None:
    chosen = sorted(set(values))
    if 1 < len(chosen) <= 12:
        axes.set_xticks(chosen)
        axes.minorticks_off()


def _bar(axes: Axes, at: float, estimate: Estimate, style: tuple[str, int]) -> None:
    if not math.isfinite(estimate.value):
        axes.annotate(
            "never" if estimate.value > 0 else "not measured",
            (0, at),
            (4, 0),
            textcoords="offset points",
            va="center",
            color=SOFT,
            xycoords=axes.get_yaxis_transform(),
        )
        return
    colour, nth = style
    axes.barh(at, estimate.value, height=0.84, color=colour, alpha=_opacity(nth), linewidth=0)
    if estimate.is_bounded:
        reach = [[max(0.0, estimate.value - estimate.low)], [max(0.0, estimate.high - estimate.value)]]
        axes.errorbar(estimate.value, at, xerr=reach, color=INK, elinewidth=1.0, capsize=2.5, capthick=1.0)


def _opacity(nth: int) -> float:
    return max(0.25, 1 - 0.3 * nth)


def _legend(figure: Figure, handles: Sequence[Artist], names: Sequence[str]) -> None:
    if not names:
        return
    shown = [_short(name) for name in names]
    columns = max(1, min(len(shown), 100 // (max(map(len, shown)) + 7)))
    figure.legend(handles, shown, loc="outside upper left", ncols=columns, frameon=False, labelcolor=INK)


def _short(name: str) -> str:
    name = legible(name)
    return name if len(name) <= 44 else name[:43] + "…"
