"""Streams of every format: whole characters whatever the token borders, and nothing of a stop string, ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.asgi import client_of
from support.scripted_engine import ScriptedEngine

WRITING = "🇯🇵🇧🇷 👩‍👩‍👧‍👦 नमस्ते क्षत्रिय e\u0301o\u0302\u0323 ก็ ﷽ 𝔘𝔩𝔱𝔯𝔞 \u202eabc\u202c 速い"

Event = tuple[str | None, Any]


def chat_pieces(events: list[Event]) -> list[str]:
    chunks = [data for _, data in events if data != "[DONE]"]
    return [choice["delta"].get("content", "") for chunk in chunks for choice in chunk["choices"]]


def completion_pieces(events: list[Event]) -> list[str]:
    return [choice["text"] for _, data in events if data != "[DONE]" for choice in data["choices"]]


def response_pieces(events: list[Event]) -> list[str]:
    return [data["delta"] for name, data in events if name == "response.output_text.delta"]


def message_pieces(events: list[Event]) -> list[str]:
    return [data["delta"]["text"] for name, data in events if name == "content_block_delta"]


Format = tuple[str, dict[str, Any], str | None, Callable[[list[Event]], list[str]]]
CONVERSATION = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2000}
FORMATS: dict[str, Format] = {
    "chat": ("/v1/chat/completions", CONVERSATION, "stop", chat_pieces),
    "completions": ("/v1/completions", {"prompt": "Hi", "max_tokens": 2000}, "stop", completion_pieces),
    "responses": ("/v1/responses", {"input": "Hi"}, None, response_pieces),
    "messages": ("/v1/messages", CONVERSATION, "stop_sequences", message_pieces),
}


def stream(format: Format, script: str, stops: list[str]) -> list[str]:
    """The pieces of text that a client gets of an engine that makes one byte a token."""
    path, ask, stop, pieces = format

    async def ask_for_it() -> list[Event]:
        async with client_of(ScriptedEngine(script)) as client:
            body = {"model": "scripted", "stream": True, **ask} | ({stop: stops} if stop and stops else {})
            answer = await client.post(path, body)
            assert answer.status == 200, answer.body
            return answer.events()

    return [piece for piece in pieces(asyncio.run(ask_for_it())) if piece]


@pytest.mark.parametrize("name", FORMATS)
def test_characters_arrive_whole(name: str) -> None:
    assert "".join(stream(FORMATS[name], WRITING, [])) == WRITING


@pytest.mark.parametrize("name", [name for name, (_, _, stop, _) in FORMATS.items() if stop])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_no_stop_string_leaks(name: str, data: st.DataObject) -> None:
    """Of up to 40 characters, over many tokens, with starts of it that lead nowhere before."""
    stop = data.draw(st.text("ab🇯🇵क्e\u0301", min_size=1, max_size=40))
    before = data.draw(st.lists(st.one_of(st.sampled_from(WRITING.split()), st.just(stop[:-1])), max_size=5))
    script = " ".join(before) + " " + stop + " and more"
    received = "".join(stream(FORMATS[name], script, [stop]))
    assert received == script[: script.index(stop)]
