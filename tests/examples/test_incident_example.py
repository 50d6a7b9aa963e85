"""The incident: a log with its cause, what is left of it for a model, and what of a model's evidence counts."""

from __future__ import annotations

import argparse
import asyncio
import json

import pytest

from examples.endpoint import endpoints, options
from examples.incident.condense import Shape, chunks, condense, shape_of
from examples.incident.investigate import Report, investigate, source_of
from examples.incident.log import make_log
from support.client_servers import answering


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("num_lines", [1000, 4000])
def test_a_log_has_its_chain_in_order(seed: int, num_lines: int) -> None:
    incident = make_log(seed, num_lines=num_lines)
    assert len(incident.lines) == num_lines
    clocks = [line.split(" ")[1] for line in incident.lines]
    assert clocks == sorted(clocks)
    places = [incident.lines.index(line) for line in incident.chain]
    assert places == sorted(places)
    assert incident.cause == incident.chain[0]
    assert incident == make_log(seed, num_lines=num_lines)


def test_a_log_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="1,000"):
        make_log(0, num_lines=999)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_sent_has_every_kind_of_line_once(seed: int) -> None:
    incident = make_log(seed)
    shapes = condense(incident.lines)
    assert sum(shape.count for shape in shapes) == len(incident.lines)
    assert len(shapes) < 50
    assert set(incident.chain) <= {shape.line for shape in shapes}
    assert len({shape_of(shape.line) for shape in shapes}) == len(shapes)


def test_copying_what_is_sent_is_quoting_the_log() -> None:
    shape = Shape("2026-03-14 02:00:01.000 INFO a: b 7", 3)
    assert str(shape).splitlines()[0] in shape.line


@pytest.mark.parametrize(("count", "size"), [(28, 8), (1, 8), (8, 8), (9, 8), (100, 7)])
def test_chunks_are_even(count: int, size: int) -> None:
    shapes = [Shape(str(number), 1) for number in range(count)]
    pieces = chunks(shapes, size)
    assert [shape for piece in pieces for shape in piece] == shapes
    lengths = [len(piece) for piece in pieces]
    assert max(lengths) <= size
    assert max(lengths) - min(lengths) <= 1


def test_a_quote_is_in_the_log_word_for_word_or_it_is_none() -> None:
    lines = ["2026-03-14 02:00:01 ERROR db: connection refused, no slot left", "2026-03-14 02:00:02 INFO x: fine"]
    assert source_of(" ERROR db: connection refused, no slot", lines) == lines[0]
    assert source_of("ERROR db: connections refused, no slot", lines) is None
    assert source_of("02:00:0", lines) is None  # in both: too short to mean one
    assert source_of("", lines) is None


def asked(url: str) -> argparse.Namespace:
    return options("x", "y").parse_args(["--url", url, "--tier", "default"])


@pytest.mark.parametrize("free", [False, True])
def test_evidence_that_is_not_in_the_log_is_rejected(free: bool) -> None:
    incident = make_log(1)
    pieces = chunks(condense(incident.lines), 10)
    invented = "2026-03-14 02:15:00.000 INFO deploy: search-index 9.9.9 rolled out"
    answers = [
        json.dumps({"quote": invented, "meaning": "A rollout.", "confidence": 99}),
        json.dumps({"quote": incident.cause.split(" ", 1)[1], "meaning": "Debug logs.", "confidence": 70}),
        '{"quote": "search-index: volume /var',
        json.dumps({"quote": incident.cause[11:], "explanation": "Logs filled the disk."}),
    ]

    async def main(url: str) -> Report:
        async with endpoints(asked(url)) as (endpoint,):
            return await investigate(endpoint, pieces, incident.lines, at_once=1, free=free)

    with answering(*answers) as server:
        report = asyncio.run(main(server.url))
        grammars = [request.grammar for request in server.loop.engine.requests]  # type: ignore[attr-defined]
    assert len(pieces) == 3
    assert [finding.line for finding in report.findings] == [incident.cause]
    assert report.rejected == [invented, answers[2]]
    assert report.cause == incident.cause
    assert report.first_s is not None
    assert 0 < report.first_s <= report.total_s
    assert all((pieces[0][0].message in (grammar or "")) == (not free) for grammar in grammars[:1])


def test_a_verdict_that_quotes_no_evidence_is_none() -> None:
    incident = make_log(0)
    other = next(line for line in incident.lines if "mailer" in line)
    found = json.dumps({"quote": incident.chain[1], "meaning": "Full.", "confidence": 10})
    verdict = json.dumps({"quote": other, "explanation": "Mail."})

    async def main(url: str) -> Report:
        async with endpoints(asked(url)) as (endpoint,):
            return await investigate(endpoint, [condense(incident.lines)], incident.lines, at_once=1, free=True)

    with answering(found, verdict) as server:
        report = asyncio.run(main(server.url))
    assert report.cause is None
    assert report.rejected == [other]
