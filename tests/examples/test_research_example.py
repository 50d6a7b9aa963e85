"""The note: what code reads in filings and quotes, which facts count, and what is computed from them."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples.endpoint import endpoints, options
from examples.research.__main__ import DATA, read_key
from examples.research.note import METRICS, NUM_PARTS, Fact, Note, Writer, check, foreign_numbers
from examples.research.sources import Filing, Market, amount, read_filing, read_market
from support.client_servers import answering

FILING = Filing("A plc", "A", 600, {1: "Revenue was $5.0 million, after $4.0 million.", 2: "Income was $1 million."})
MARKET = Market(10.0, 11.0, 10.5, 3.0)
FUZZ = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def test_the_samples_are_whole_and_marked_as_what_they_are() -> None:
    filings = [read_filing(path) for path in sorted(DATA.glob("*.txt"))]
    key = read_key(DATA / "key.json")
    assert key is not None
    assert {filing.ticker for filing in filings} == set(key)
    for filing in filings:
        assert "synthetic" in filing.text
        assert set(key[filing.ticker]) == set(METRICS)
        cited = [citation.split(" ", 1)[1] for citation in filing.citations]
        assert set(key[filing.ticker].values()) <= set(cited)
        assert abs(read_market(DATA / "quotes.csv", filing).move) > 0.01


@pytest.mark.parametrize(
    ("citation", "fact"),
    [
        ("[1] $5.0 million", Fact("$5.0 million", 1)),
        ("[2] $1 million", Fact("$1 million", 2)),
        ("[2] $5.0 million", None),  # in another paragraph
        ("[1] $5", None),  # the beginning of another figure
        ("[1] $5.1 million", None),
        ("[3] $1 million", None),
        ("$5.0 million", None),
        ("", None),
    ],
)
def test_a_fact_has_its_source_or_is_none(citation: str, fact: Fact | None) -> None:
    assert check(json.dumps({"citation": citation}), FILING) == fact


@pytest.mark.parametrize("answer", ["", "{", "[]", "null", '{"citation": 5}', '{"citation": "[1] $5.0 mil'])
def test_an_answer_that_is_not_whole_is_no_fact(answer: str) -> None:
    assert check(answer, FILING) is None


@pytest.mark.parametrize(
    ("figure", "dollars"),
    [("$412.6 million", 412.6e6), ("$1.62 billion", 1.62e9), ("$96,400 thousand", 96.4e6), ("$12", 12.0)],
)
def test_amounts(figure: str, dollars: float) -> None:
    assert amount(figure) == pytest.approx(dollars)


@pytest.mark.parametrize("figure", ["412.6 million", "$", "$5 trillion", "$5.0 million, after"])
def test_what_is_no_amount(figure: str) -> None:
    with pytest.raises(ValueError, match="no amount"):
        amount(figure)


def test_numbers_of_the_models_own_are_found() -> None:
    assert foreign_numbers("Revenue rose 25.0% to $5.0 million.", "growth: +25.0%, revenue: $5.0 million") == []
    assert foreign_numbers("Revenue rose 26% in 2 years.", "growth: +25.0%") == ["26", "2"]


def test_the_market_is_computed(tmp_path: Path) -> None:
    quotes = tmp_path / "quotes.csv"
    quotes.write_text(
        "time,ticker,price,volume\n09:50,A,10,100\n09:55,A,8,300\n09:55,B,99,1\n10:00,A,9,1000\n10:05,A,10,3000\n",
        encoding="utf-8",
    )
    market = read_market(quotes, FILING)
    assert (market.before, market.last, market.average, market.volume_ratio) == (8.0, 10.0, 9.75, 10.0)
    assert market.move == pytest.approx(0.25)


@FUZZ
@given(st.one_of(st.text(), st.from_regex(r"\A(Company: A\nTicker: [^\n]*\nReleased: [\d:]*\n(\[\d+\] .*\n)*)\Z")))
def test_any_text_is_a_filing_or_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    with suppress(ValueError):
        assert read_filing(path).paragraphs


_CELL = st.one_of(st.sampled_from(["09:00", "10:30", "A", "-1", "0", "5", "nan", "inf", "1e400", '"', ""]), st.text())


@FUZZ
@given(st.lists(st.lists(_CELL, max_size=5).map(",".join)).map("\n".join), st.booleans())
def test_any_csv_is_quotes_or_refused(tmp_path: Path, rows: str, with_head: bool) -> None:
    path = tmp_path / "quotes.csv"
    head = "time,ticker,price,volume\n09:00,A,5,7\n" if with_head else ""
    path.write_bytes((head + rows).encode("utf-8", "surrogatepass"))
    with suppress(ValueError):
        market = read_market(path, FILING)
        assert market.before > 0
        assert market.average > 0


def note_of(*answers: str) -> Note:
    async def main(url: str) -> Note:
        async with endpoints(options("x", "y").parse_args(["--url", url, "--tier", "default"])) as (endpoint,):
            return await Writer(endpoint, free=True, at_once=1).write(FILING, MARKET)

    with answering(*answers) as server:
        return asyncio.run(main(server.url))


def cite(citation: str) -> str:
    return json.dumps({"citation": citation})


def test_a_whole_note_has_all_its_parts() -> None:
    comment = json.dumps({"sentence": "Revenue rose by 25.0%."})
    note = note_of(*map(cite, ["[1] $5.0 million", "[1] $4.0 million", "[2] $1 million", "[1] $5.0 million"]), comment)
    assert list(note.facts) == list(METRICS)
    assert (note.figures["growth"], note.figures["margin"]) == ("+25.0%", "20.0%")
    assert note.figures["move since the filing"] == "+10.0%"
    assert note.comment == "Revenue rose by 25.0%."
    assert note.rejected == []
    assert len(note.ready) == NUM_PARTS
    assert note.ready == sorted(note.ready)


def test_what_rests_on_a_rejected_fact_is_not_there() -> None:
    comment = json.dumps({"sentence": "Margins are 31% now."})
    note = note_of(*map(cite, ["[1] $5.5 million", "[1] $4.0 million", "[2] $1 million", "[1] $5.0 million"]), comment)
    assert "revenue" not in note.facts
    assert "growth" not in note.figures
    assert "margin" not in note.figures
    assert note.comment == ""
    assert [said.split(":")[0] for said in note.rejected] == ["revenue", "comment"]
    assert len(note.ready) == NUM_PARTS - 4
