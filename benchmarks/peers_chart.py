"""The README's picture of a comparison: decode and prompt speed of every engine as bars, in a plain SVG."""

from __future__ import annotations

from html import escape

from engines.task import TASKS
from peers_report import OURS, Comparison

_TASKS = ("decode_64", "prompt_512")
_WIDTH, _ROW, _BAR, _LABELS, _VALUES = 860, 26, 16, 230, 110
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600 }
.bar { fill: #8c959f }
.ours { fill: #0969da }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .bar { fill: #6e7681 } .ours { fill: #4493f8 } }
"""


def chart(comparison: Comparison) -> str:
    """The SVG; an engine without a figure for a task has no bar there."""
    parts: list[str] = []
    y = 10
    for task in _TASKS:
        y = _panel(parts, comparison, task, y)
    described = f"Tokens per second on {comparison.cpu_model}, {comparison.threads} threads: {comparison.model}"
    parts.append(f'<text x="10" y="{y + 14}">{escape(described)}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y + 28}" role="img">'
    return "\n".join([head, f"<title>{escape(described)}</title>", f"<style>{_STYLE}</style>", *parts, "</svg>", ""])


def _panel(parts: list[str], comparison: Comparison, task: str, y: int) -> int:
    speeds = {name: outcome.median(task) for name, outcome in comparison.outcomes.items()}
    rows = {name: speed for name, speed in speeds.items() if speed is not None}
    if not rows:
        return y
    parts.append(f'<text class="title" x="10" y="{y + 14}">{TASKS[task].title}, tokens per second</text>')
    y += _ROW
    longest = max(rows.values())
    for name, speed in rows.items():
        width = speed / longest * (_WIDTH - _LABELS - _VALUES)
        kind = "ours" if name == OURS else "bar"
        ratio = comparison.ratio(name, task)
        value = f"{speed:,.0f}" if name == OURS or ratio is None else f"{speed:,.0f}   ÷ {ratio:.1f}"
        title = escape(comparison.outcomes[name].entrant.title)
        parts.append(f'<text x="{_LABELS - 10}" y="{y + 13}" text-anchor="end">{title}</text>')
        parts.append(f'<rect class="{kind}" x="{_LABELS}" y="{y}" width="{width:.1f}" height="{_BAR}" rx="2"/>')
        parts.append(f'<text x="{_LABELS + width + 8:.1f}" y="{y + 13}">{value}</text>')
        y += _ROW
    return y + 12
