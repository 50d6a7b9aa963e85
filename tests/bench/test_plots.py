"""Plots: what is drawn is what was measured, in the page's colours, whatever the names and numbers."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ultrafast.bench.statistics import Estimate
from ultrafast.report import plots
from ultrafast.report.plots import Line, Row, Span

INF, NAN = math.inf, math.nan
numbers = st.floats(-1e12, 1e12) | st.sampled_from([0.0, INF, NAN, 1e-300])
names = st.text(max_size=60) | st.sampled_from(["_hidden", "$x$", "$\\frac{", "fast", "#000001", "日本語", ""])


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def colours(svg: str) -> set[str]:
    return set(re.findall(r"(?:fill|stroke): (var\(--[a-z0-9-]+\)|#[0-9a-f]+)", svg))


def spans_drawn(svg: str) -> dict[str, list[tuple[float, float]]]:
    """Left and right ends of the filled rectangles in the plot, by colour."""
    found: dict[str, list[tuple[float, float]]] = {}
    for path, colour in re.findall(r'<path d="([^"]+)"[^>]*style="fill: (var\(--[a-z0-9-]+\))"', svg):
        across = [float(x) for x in re.findall(r"[ML] ([\d.]+) [\d.]+", path)]
        found.setdefault(colour, []).append((min(across), max(across)))
    return found


def test_tiers_have_their_colours_everywhere() -> None:
    curves = [Line(name, [1, 2], [1, 2]) for name in ("fast", "m · ultrafast", "standard", "fast, warm", "other")]
    svg = plots.lines(curves, x="x", y="y")
    for variable in ("tier-fast", "tier-ultrafast", "tier-default", "series-1"):
        assert f"var(--{variable})" in colours(svg)
    assert "var(--series-2)" not in colours(svg)
    assert "var(--tier-fast)" in colours(plots.bars({"a": {"fast": Estimate(1, 0.5, 2, 3)}}, x="x"))
    assert "var(--tier-flex)" in colours(plots.distribution({"flex": [1.0, 2.0]}, x="x"))


def test_a_model_whose_name_has_the_word_of_a_tier_is_no_tier() -> None:
    svg = plots.lines([Line("fast-model · flex", [1, 2], [1, 2])], x="x", y="y")
    assert "var(--tier-fast)" not in colours(svg)


def test_every_colour_is_the_pages() -> None:
    for svg in (
        plots.lines([Line(str(i), [1, 10], [1, 2], [0, 1], [2, 3]) for i in range(9)], x="x", y="y", log_x=True),
        plots.distribution({str(i): [1, 2, INF] for i in range(9)}, x="x"),
        plots.bars({"a": {str(i): Estimate(i, i - 1, i + 1, 5) for i in range(9)}}, x="x"),
        plots.timeline([Row("a", [Span(i, i + 1, str(i)) for i in range(9)])]),
    ):
        # Clipping and invisible frames keep black and white, which are never seen.
        assert all(colour.startswith("var(") for colour in colours(svg)), colours(svg)


def test_text_is_text_in_the_font_of_the_page() -> None:
    svg = plots.lines([Line("fast", [1, 2], [1, 2])], x="streams", y="tokens/s")
    assert {"fast", "streams", "tokens/s"} <= set(texts(svg))
    assert not re.search("font(-family)?:", svg)
    assert svg.startswith('<svg role="img" aria-label="tokens/s over streams: fast" viewBox=')
    assert "<metadata" not in svg
    assert "<style" not in svg


def test_chosen_loads_are_the_ticks() -> None:
    svg = plots.lines([Line("a", [1, 16, 64], [1, 2, 3])], x="x", y="y", log_x=True)
    assert {"1", "16", "64"} <= set(texts(svg))
    assert "10" not in texts(svg)


def test_a_timeline_is_to_scale() -> None:
    svg = plots.timeline([Row("r", [Span(0, 1, "model"), Span(1, 3, "tools"), Span(4, 5, "model")])])
    drawn = spans_drawn(svg)
    (first, third), (second,) = sorted(drawn["var(--series-1)"])[-2:], sorted(drawn["var(--series-2)"])[-1:]
    second_wide = third[1] - third[0]
    assert second_wide > 50
    assert first[1] - first[0] == pytest.approx(second_wide, rel=0.01)
    assert second[1] - second[0] == pytest.approx(2 * second_wide, rel=0.01)
    assert third[0] - second[1] == pytest.approx(second_wide, rel=0.02)


def test_what_never_ended_is_said() -> None:
    svg = plots.bars({"a": {"x": Estimate(NAN, -INF, INF, 0), "y": Estimate(INF, 1, INF, 3)}}, x="seconds")
    assert {"not measured", "never"} <= set(texts(svg))


@given(
    names=st.lists(names, min_size=1, max_size=4, unique=True),
    values=st.lists(numbers, max_size=5),
    log=st.booleans(),
)
@settings(max_examples=8, deadline=None)
def test_any_names_and_numbers_are_drawn(names: list[str], values: list[float], log: bool) -> None:
    values_known = [value for value in values if not math.isnan(value)]
    estimates = {name: Estimate(value, value, value, 1) for name, value in zip(names, values, strict=False)}
    for svg in (
        plots.lines([Line(name, values, values) for name in names], x=names[0], y=names[0], log_x=log, log_y=log),
        plots.distribution(dict.fromkeys(names, values_known), x=names[0], log_x=log),
        plots.bars({names[0]: estimates}, x=names[0]),
        plots.timeline([Row(name, [Span(0, 1, name)]) for name in names]),
    ):
        ET.fromstring(svg.replace("xlink:", ""))
