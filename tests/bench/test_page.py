"""The page of a report: all text escaped, nothing from outside, and a real browser finds nothing to complain of."""

from __future__ import annotations

import functools
import html
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from support.browser import CHROMIUM, visit
from ultrafast.bench.statistics import Estimate
from ultrafast.errors import ConfigError
from ultrafast.report import plots
from ultrafast.report.page import Page
from ultrafast.report.plots import Line, Row, Span

HOSTILE = (
    "</svg><script>alert('x')</script> \"&amp; <img src=http://example.org/x onerror=alert(1)> $\\frac{1$ \x00 é \ud800"
)
VOID = {"meta", "link", "img", "br", "hr", "input"}

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH")


@functools.cache
def full_page(word: str = "smollm2-135m") -> Page:
    """A page with every kind of part, with that word wherever text goes; not to be added to."""
    tiers = ("flex", "default", "fast", "ultrafast")
    random = np.random.default_rng(0)
    page = Page(f"Speed of {word}", {"Endpoint": word, word: "16 at once"})
    for tone in ("good", "bad", "neutral"):
        page.verdict(f"Fast is faster: {word}", tone)
    page.section(word).text(word)
    page.table(["tier", "n", word], [[tier, "400", word] for tier in tiers], note=word)
    page.table(["empty"], [])
    samples = {f"{word} · {tier}": random.lognormal(0, 1, 50) for tier in tiers}
    page.figure(plots.distribution({**samples, "never": [math.inf] * 3}, x=f"{word} (s)", log_x=True), word)
    curves = [Line(f"{word} · {tier}", [1, 4, 16], [3, 2, 1], [2, 1, 0.5], [4, 3, 2]) for tier in tiers]
    page.figure(plots.lines(curves, x=word, y=word, log_x=True, log_y=True), word)
    estimates = {tier: Estimate(number, number - 0.5, number + 1, 9) for number, tier in enumerate(tiers, 1)}
    page.figure(plots.bars({word: estimates, "10,000 tokens in": estimates}, x=word), word)
    page.figure(plots.timeline([Row(word, [Span(0, 1, "model"), Span(1, 3, word)]), Row("b", [])]), word)
    return page


class Tags(HTMLParser):
    """Every element with its attributes, and whether those that must end do so, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.all: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_text_cannot_become_markup() -> None:
    harmless, hostile = (Tags(full_page(word).html()) for word in ("word", HOSTILE))
    assert not harmless.open
    assert not hostile.open
    kinds = [{tag for tag, _ in tags.all} for tags in (harmless, hostile)]
    assert kinds[0] == kinds[1]
    assert "script" not in kinds[0]
    assert "img" not in kinds[0]
    for tag, attributes in hostile.all:
        assert not any(name.startswith("on") for name in attributes), tag


def test_nothing_comes_from_outside() -> None:
    page = full_page().html()
    assert "default-src 'none'" in html.unescape(page)
    assert "url(http" not in page
    assert "@import" not in page
    for tag, attributes in Tags(page).all:
        for name in ("src", "href", "xlink:href", "action", "srcset"):
            assert (attributes.get(name) or "#").startswith(("#", "data:,")), tag


def test_ids_are_unique_and_references_lead_somewhere() -> None:
    page = Page("t", {})
    page.figure(plots.timeline([Row("again", [Span(0, 1, "model")])]), "a")
    page.figure(plots.lines([Line("again", [1, 2], [1, 2])], x="x", y="y"), "b")
    text = page.html()
    ids = re.findall(r' id="([^"]+)"', text)
    references = set(re.findall(r'(?:url\(|href=")#([^")]+)', text))
    assert references
    assert len(ids) == len(set(ids))
    assert references == set(ids)


def test_figures_stand_to_the_right_and_words_do_not() -> None:
    page = Page("t", {})
    page.table(["tier", "median", "said"], [["fast", "281 ms (274 to 290)", "yes"], ["flex", "needs 3 more", "9"]])
    text = page.html()
    assert '<th scope="row">fast</th><td class="figures">281 ms (274 to 290)</td><td>yes</td>' in text
    assert '<th scope="col">tier</th><th scope="col" class="figures">median</th><th scope="col">said</th>' in text


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError):
        Page("t", {}).table(["a", "b"], [["1"]])


def test_page_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    full_page(HOSTILE).write(path)
    assert path.read_text("utf-8").endswith("</html>\n")
    with pytest.raises(ConfigError, match="cannot be written"):
        full_page().write(tmp_path / "no" / "a.html")


def test_same_page_same_bytes() -> None:
    assert full_page().html() == full_page.__wrapped__().html()


@needs_chromium
def test_a_browser_has_nothing_to_complain_of(tmp_path: Path) -> None:
    paths = [tmp_path / "plain.html", tmp_path / "hostile.html"]
    full_page().write(paths[0])
    full_page(HOSTILE).write(paths[1])
    for path, light, dark in zip(paths, visit(paths), visit(paths, dark=True, width=390), strict=True):
        for seen in (light, dark):
            assert seen.complaints == []
            assert seen.requests == [path.as_uri()]
            assert seen.overflow <= 0
            assert "seconds" in seen.texts
        assert light.brightness > 0.8
        assert dark.brightness < 0.3


@needs_chromium
def test_a_browser_would_complain(tmp_path: Path) -> None:
    path = tmp_path / "bad.html"
    path.write_text(full_page().html().replace("<h1>", '<img src="http://127.0.0.1:9/x.png"><script>1</script><h1>'))
    loose = tmp_path / "loose.html"
    loose.write_text(re.sub("<meta http-equiv[^>]*>", "", path.read_text()))
    refused, asked = visit([path, loose])
    assert any("Content Security Policy" in complaint for complaint in refused.complaints)
    assert "http://127.0.0.1:9/x.png" in asked.requests
    assert asked.complaints
