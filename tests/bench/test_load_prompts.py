"""Prompts: their length, what they share and what not."""

from __future__ import annotations

import json

import pytest

from ultrafast.bench.load.material import CATEGORIES, Category
from ultrafast.bench.load.prompts import Gauge, Writer
from ultrafast.traces import BLOCK_TOKENS


def common(one: str, other: str) -> int:
    """Characters that both begin with."""
    differ = (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differ, min(len(one), len(other)))


GAUGE = Gauge(4.2, 30.0, True)


@pytest.mark.parametrize("category", CATEGORIES)
@pytest.mark.parametrize("tokens", [64, 1000, 10_000])
def test_prompts_have_the_length_that_the_gauge_says(category: Category, tokens: int) -> None:
    prompt = Writer(category, GAUGE).prompt(7, tokens)
    assert len(prompt) == GAUGE.length(tokens) == round((tokens - 30) * 4.2)


def test_a_gauge_finds_ratio_and_overhead() -> None:
    gauge = Gauge.of((400, 30 + 100), (1200, 30 + 300))
    assert (gauge.characters, gauge.overhead, gauge.is_measured) == (4.0, 30.0, True)
    assert not Gauge.of((400, 100), (1200, 100)).is_measured  # an endpoint that counts nothing of use


def test_prompts_differ_from_the_start_unless_asked() -> None:
    writer = Writer("prose", GAUGE, seed=3)
    prompts = [writer.prompt(number, 200) for number in range(50)]
    assert max(common(prompts[0], other) for other in prompts[1:]) < 14
    assert prompts == [Writer("prose", GAUGE, seed=3).prompt(number, 200) for number in range(50)]
    assert prompts[0] != Writer("prose", GAUGE, seed=4).prompt(0, 200)


def test_a_shared_prefix_is_shared() -> None:
    writer = Writer("code", GAUGE, shared_tokens=100)
    one, other = writer.prompt(1, 400), writer.prompt(2, 400)
    assert 420 <= common(one, other) < 440
    assert len(one) == GAUGE.length(400)


def test_blocks_of_a_trace_are_shared_where_their_ids_are() -> None:
    writer = Writer("prose", GAUGE)
    one, other = writer.prompt(1, 2000, (5, 6, 7, 8)), writer.prompt(2, 2000, (5, 6, 9, 10))
    block = round(BLOCK_TOKENS * 4.2)
    assert 2 * block <= common(one, other) < 2 * block + 20
    assert len(one) == len(other) == GAUGE.length(2000)


def test_json_is_json() -> None:
    lines = Writer("json", Gauge()).prompt(1, 2000).split("\n\n")[0][15:].splitlines()[:-1]
    assert len(lines) > 20
    assert all(isinstance(json.loads(line), dict) for line in lines)


def test_code_compiles() -> None:
    text = Writer("code", Gauge()).prompt(1, 2000)[15:]
    compile(text[: text.rindex("\n\n", 0, -100)], "code", "exec")


@pytest.mark.parametrize("category", CATEGORIES)
def test_even_the_shortest_prompts_are_not_alike(category: Category) -> None:
    writer = Writer(category, Gauge(overhead=60, is_measured=True))
    assert len({writer.prompt(number, 8) for number in range(50)}) == 50
