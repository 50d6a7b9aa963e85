"""What tiers.py measured, as a table for people and as JSON for programs (docs/benchmarks.md describes the fields)."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tier_cases.figures import Figure, Findings, percentile

UNITS = {"": (1.0, 2), "tokens/s": (1.0, 0), "ms": (1e3, 1), "s": (1.0, 2), "%": (1e2, 1), "count": (1.0, 0)}
"""Unit: by what a sample is multiplied to be shown in it, and with how many digits."""

_FEWEST_FOR_P95 = 20


@dataclass
class Results:
    """One run of tiers.py; the cases in the order they ran."""

    model: str
    cpu_model: str
    threads: int
    system: str
    cases: dict[str, Findings] = field(default_factory=dict)
    complete: bool = False

    @property
    def all_met(self) -> bool:
        """Whether every target was measured and met."""
        asked = [(figure, found) for found in self.cases.values() for figure in found.figures if figure.target]
        return self.complete and all(verdict(figure, found) == "met" for figure, found in asked)


def verdict(figure: Figure, found: Findings) -> str:
    """``met``, ``not met``, ``not measured``; nothing where nothing is asked."""
    if figure.target is None:
        return ""
    samples = found.samples.get(figure.key)
    if not samples:
        return "not measured"
    return "met" if figure.target.met(samples) else "not met"


def table(results: Results) -> str:
    """One row a figure."""
    return "\n".join(_lines(results))


def document(results: Results) -> str:
    """JSON with every sample."""
    about = {name: getattr(results, name) for name in ("model", "cpu_model", "threads", "system", "complete")}
    cases = {name: _case(found) for name, found in results.cases.items()}
    return json.dumps({**about, "cases": cases}, indent=1, allow_nan=False) + "\n"


def _lines(results: Results) -> Iterator[str]:
    threads = f"{results.threads} thread{'s' * (results.threads != 1)}"
    yield f"{results.model} on {results.cpu_model}, {threads}, {results.system}"
    for name, found in results.cases.items():
        yield ""
        heading = f"{name} ({found.seconds:.0f} s)"
        yield f"{heading:58}{'':>9}{'median':>9}{'p95':>9}   {'lowest to highest':22}{'tries':>6}   target"
        yield from (_row(figure, found) for figure in found.figures)
        yield from (f"  {key}: {_fact(value)}" for key, value in found.facts.items())
        if found.error:
            yield f"  ended early: {found.error}"
    if not results.complete:
        yield "\nnot complete: what is missing above was not measured, the rest in fewer tries"


def _row(figure: Figure, found: Findings) -> str:
    scale, digits = UNITS[figure.unit]
    unit = "" if figure.unit == "count" else figure.unit
    samples = found.samples.get(figure.key, [])
    if not samples:
        return f"{figure.title:58}{unit:>9}{'-':>9}{'':52}{_target(figure)}{verdict(figure, found)}".rstrip()

    def shown(value: float) -> str:
        return f"{value * scale:,.{digits}f}"

    p95 = shown(percentile(samples, 0.95)) if len(samples) >= _FEWEST_FOR_P95 else ""
    spread = f"({shown(min(samples))} to {shown(max(samples))})"
    numbers = f"{shown(statistics.median(samples)):>9}{p95:>9}   {spread:22}{len(samples):6}"
    return f"{figure.title:58}{unit:>9}{numbers}   {_target(figure)}{verdict(figure, found)}".rstrip()


def _target(figure: Figure) -> str:
    if figure.target is None:
        return ""
    scale, _ = UNITS[figure.unit]
    limit = f"{figure.target.limit * scale:g}"
    return f"{f'{figure.target.statistic} {figure.target.relation} {limit}':18}"


def _fact(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_fact(inner)}" for key, inner in sorted(value.items()))
    return str(value)


def _case(found: Findings) -> dict[str, Any]:
    return {
        "seconds": found.seconds,
        "error": found.error,
        "facts": found.facts,
        "figures": {figure.key: _figure(figure, found) for figure in found.figures},
    }


def _figure(figure: Figure, found: Findings) -> dict[str, Any]:
    samples = [sample if math.isfinite(sample) else None for sample in map(float, found.samples.get(figure.key, []))]
    known = [sample for sample in samples if sample is not None]
    return {
        "title": figure.title.strip(),
        "target": figure.target and asdict(figure.target),
        "verdict": verdict(figure, found) or None,
        "median": statistics.median(known) if known else None,
        "p95": percentile(known, 0.95) if known else None,
        "low": min(known, default=None),
        "high": max(known, default=None),
        "samples": samples,
    }
