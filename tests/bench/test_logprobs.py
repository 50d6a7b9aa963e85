"""Log-probabilities: asked for and read back by every API, and anything at all in their place."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.served import Served, served
from ultrafast.bench.client.call import Ask, Call, TokenChance
from ultrafast.bench.client.client import Client
from ultrafast.bench.client.clock import RunClock
from ultrafast.bench.client.endpoint import Api, Endpoint
from ultrafast.bench.client.logprobs import chances_of
from ultrafast.engine.engine import Engine

CHAT = b"""{"content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": [
    {"token": "a", "logprob": -0.5}, {"token": "\\ufffd", "logprob": -1e99, "bytes": [240, 159]}]}]}"""


@pytest.fixture(scope="module")
def tiny(tiny_model_path: Path) -> Iterator[Served]:
    with served(Engine(str(tiny_model_path), threads=1)) as server:
        yield server


@pytest.mark.parametrize("api", ["chat", "completions", "responses", "socket"])
def test_they_are_those_of_the_engine(tiny: Served, api: Api) -> None:
    async def main() -> Call:
        async with Client(Endpoint(tiny.url, tiny.loop.engine.model_id, api), RunClock(), timeout_s=60) as client:
            return await client.call(Ask("abc", max_tokens=5, temperature=0, top_logprobs=3), id="1")

    call = asyncio.run(main())
    prompt = "abc" if api == "completions" else [{"role": "user", "content": "abc"}]
    expected = tiny.loop.engine.generate(prompt, max_tokens=5, logprobs=3).logprobs
    assert [token.logprob for token in call.logprobs] == pytest.approx([entry.logprob for entry in expected])
    assert all(len(token.top) == 3 and token.top[token.token] == token.logprob for token in call.logprobs)


def test_parts_of_characters_have_names_and_what_cannot_be_is_finite() -> None:
    assert chances_of(msgspec.Raw(CHAT)) == [TokenChance("a", -0.5, {"a": -0.5, "\\xf0\\x9f": -9999.0})]


JSON = st.recursive(st.none() | st.floats() | st.text(), lambda inner: st.lists(inner)).map(msgspec.json.encode)
COLUMNS = st.sampled_from(["content", "tokens", "token_logprobs", "top_logprobs"])


@given(st.binary() | JSON)
def test_anything_else_is_none_at_all(raw: bytes) -> None:
    assert chances_of(msgspec.Raw(raw)) == []


@given(st.dictionaries(COLUMNS, st.lists(st.text() | st.none() | st.integers(-5, 5))))
def test_columns_of_any_length_are_read_as_far_as_they_go(columns: dict[str, object]) -> None:
    for chance in chances_of(msgspec.Raw(msgspec.json.encode(columns))):
        assert math.isfinite(chance.logprob)
