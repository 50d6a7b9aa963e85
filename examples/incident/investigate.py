"""Map and reduce over a condensed log: each chunk gives evidence, word for word; the evidence gives a cause."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from examples.endpoint import Endpoint
from examples.incident.condense import Shape

_SHORTEST_QUOTE = 20  # characters; less is in any log

_MAP = (
    "You investigate an outage. Below are lines of the log, one of each kind, and how many there are like it. "
    "Quote the line that tells most about why requests began to fail, word for word. "
    "Then say in one sentence what it means, and from 0 to 100 how surely it is the cause."
)
_REDUCE = (
    "You investigate an outage. Below are the lines of evidence, the earliest first. "
    "Quote the one that is the root cause, from which the others follow: word for word. "
    "Then say in one or two sentences what happened."
)


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _quote(messages: Sequence[str], *, free: bool) -> dict[str, Any]:
    return {"type": "string", "maxLength": 200} if free else {"type": "string", "enum": list(messages)}


_MEANING = {"type": "string", "maxLength": 160}
_CONFIDENCE = {"type": "integer", "minimum": 0, "maximum": 100}


@dataclass(frozen=True)
class Finding:
    """What one chunk gave.

    Attributes:
        line: of the log, that the quote is from.
    """

    line: str
    meaning: str
    confidence: int


@dataclass
class Report:
    """What came of an investigation.

    Attributes:
        findings: whose quotes are in the log, in the order of the log.
        rejected: quotes that are not in the log, and answers that a limit cut.
        cause: the line of the log that the verdict quotes; None: it quotes none of the evidence.
        first_s: until the first finding whose quote is in the log; None: there was none.
        total_s: until the verdict.
    """

    findings: list[Finding] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    cause: str | None = None
    explanation: str = ""
    first_s: float | None = None
    total_s: float = 0.0


async def investigate(
    endpoint: Endpoint, pieces: Sequence[Sequence[Shape]], lines: Sequence[str], *, at_once: int, free: bool
) -> Report:
    """Ask about every piece, then about what that gave.

    Args:
        pieces: of the condensed log.
        lines: the whole log; evidence that is not in it, word for word, does not count.
        at_once: requests in flight.
        free: the model writes its quotes itself; otherwise the schema lists what it may quote, for small models.
    """
    start = time.perf_counter()
    report = Report()
    slots = asyncio.Semaphore(at_once)

    async def look(piece: Sequence[Shape]) -> None:
        quote = _quote([shape.message for shape in piece], free=free)
        schema = _object(quote=quote, meaning=_MEANING, confidence=_CONFIDENCE)
        async with slots:
            answer = await endpoint.json(_MAP, "\n".join(map(str, piece)), schema, max_tokens=240)
        said = _read(answer)
        line = source_of(said.get("quote", answer), lines)
        if line is None:
            report.rejected.append(said.get("quote", answer))
            return
        report.findings.append(Finding(line, said["meaning"], said["confidence"]))
        if report.first_s is None:
            report.first_s = time.perf_counter() - start

    await asyncio.gather(*map(look, pieces))
    report.findings.sort(key=lambda finding: lines.index(finding.line))
    if report.findings:
        evidence = [finding.line.split(" ", 1)[1] for finding in report.findings]
        schema = _object(quote=_quote(evidence, free=free), explanation={"type": "string", "maxLength": 300})
        answer = await endpoint.json(_REDUCE, "\n".join(evidence), schema, max_tokens=320)
        said = _read(answer)
        report.cause = source_of(said.get("quote", answer), [finding.line for finding in report.findings])
        report.explanation = said.get("explanation", "")
        if report.cause is None:
            report.rejected.append(said.get("quote", answer))
    report.total_s = time.perf_counter() - start
    return report


def source_of(quote: str, lines: Sequence[str]) -> str | None:
    """The first line that has the quote word for word; None: no line has, or it is too short to mean one."""
    quote = quote.strip()
    if len(quote) < _SHORTEST_QUOTE:
        return None
    return next((line for line in lines if quote in line), None)


def _read(answer: str) -> dict[str, Any]:
    """The object of an answer; empty where a limit cut it."""
    try:
        said = json.loads(answer)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
