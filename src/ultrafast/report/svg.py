"""From a matplotlib figure to SVG that belongs to its page: the page's colours and fonts, no ids to collide."""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from ultrafast.report.page import legible

INK, SOFT, GRID = "#000001", "#000002", "#000003"
"""Stand for the page's colours while matplotlib draws, which knows no variables."""

_TIERS = {"#000011": "flex", "#000012": "default", "#000013": "fast", "#000014": "ultrafast"}
_SERIES = [f"#00002{number}" for number in range(1, 7)]
_VARIABLES = {
    INK: "var(--ink)",
    SOFT: "var(--soft)",
    GRID: "var(--line)",
    **{colour: f"var(--tier-{tier})" for colour, tier in _TIERS.items()},
    **{colour: f"var(--series-{number})" for number, colour in enumerate(_SERIES, 1)},
}
_TIER_OF_WORD = {tier: colour for colour, tier in _TIERS.items()}
_TIER_OF_WORD |= {word: _TIER_OF_WORD[tier] for word, tier in (("standard", "default"), ("priority", "fast"))}
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "ultrafast",
    "text.parse_math": False,
    "axes.unicode_minus": True,
    "font.size": 8.5,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.0,
    "xtick.major.size": 3.0,
    "ytick.major.size": 0.0,
    "xtick.minor.size": 0.0,
    "ytick.minor.size": 0.0,
}


class Inks:
    """Hands out colours: a tier its own, any other name the next in line."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}
        self._others = 0

    def of(self, name: str) -> tuple[str, int]:
        """The colour, and how many names before had it as well."""
        words = re.findall(r"\w+", name.rpartition("·")[2].lower())
        colour = next((_TIER_OF_WORD[word] for word in words if word in _TIER_OF_WORD), None)
        if colour is None:
            colour = _SERIES[self._others % len(_SERIES)]
            self._others += 1
        nth = self._used.get(colour, 0)
        self._used[colour] = nth + 1
        return colour, nth


@contextmanager
def drawing() -> Iterator[None]:
    """matplotlib's settings for all that is drawn and turned into SVG within."""
    with mpl.rc_context(_SETTINGS), warnings.catch_warnings():
        # Text is measured in a font that lacks some scripts, but drawn in the reader's.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def to_svg(figure: Figure, label: str) -> str:
    """An ``<svg>`` element.

    Args:
        label: what it shows, for those who cannot see it.
    """
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    raw = file.getvalue()
    raw = raw[raw.index("<svg") :]
    raw = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", raw, flags=re.DOTALL)
    salt = hashlib.sha256(raw.encode("utf-8", "replace")).hexdigest()[:8]
    kept = set(re.findall(r"(?:url\(#|href=\"#)([^\")]+)", raw))
    raw = re.sub(r"<[a-z][^>]*>", lambda tag: _tag(tag.group(), kept, salt), raw)
    size = re.search(r'viewBox="[^"]*"', raw)
    assert size
    head = f'<svg role="img" aria-label="{escape(legible(label))}" {size.group()}>'
    return head + re.sub(r"\s*\n\s*", "\n", raw[raw.index(">") + 1 :]).strip()


def _tag(tag: str, kept: set[str], salt: str) -> str:
    tag = re.sub(r' id="([^"]*)"', lambda own: f' id="{salt}-{own[1]}"' if own[1] in kept else "", tag)
    tag = re.sub(r'(url\(#|href="#)', rf"\g<1>{salt}-", tag)
    tag = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", tag)  # matplotlib 3.9
    tag = re.sub(r"font-family: [^;\"]*;? ?", "", tag)
    return re.sub(r"#0000\d\d", lambda colour: _VARIABLES.get(colour.group(), colour.group()), tag)
