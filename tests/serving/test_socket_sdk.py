"""WebSocket mode through the `openai` package: its connection, and the lanes that it offers on top."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI
from openai.lib.responses_websocket import (
    AsyncResponsesWebSocketSession,
    ResponsesWebSocketAccumulator,
    ResponsesWebSocketError,
    ResponsesWebSocketLimits,
    ResponsesWebSocketSession,
)
from openai.types.responses import Response

from support.marked_chat import marked_engine
from support.scripted_engine import ScriptedEngine
from support.served import Served, served

LIMITS = ResponsesWebSocketLimits(
    max_lanes=8,
    max_events_per_lane=1000,
    max_events=4000,
    max_bytes_per_lane=1 << 24,
    max_bytes=1 << 25,
    max_response_bytes=None,
)
TOOLS: list[Any] = [{"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}]


@contextmanager
def client_of(engine: Any) -> Iterator[tuple[OpenAI, Served]]:
    with (
        served(engine) as server,
        OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=30) as client,
    ):
        yield client, server


def final(connection: Any) -> Response:
    """The next response of a connection, as its events add up."""
    accumulator = ResponsesWebSocketAccumulator()
    text = ""
    for event in connection:
        accumulator.add_event(event)
        if event.type == "response.output_text.delta":
            text += event.delta
        if event.type in ("response.completed", "response.incomplete", "response.failed"):
            response = accumulator.get_final_response()
            assert response.output_text == text
            return response
    raise AssertionError("closed")


def test_an_agent_calls_a_tool_over_one_connection() -> None:
    engine = marked_engine('<call look>{"at": "sky"}</call>', "Blue.")
    with client_of(engine) as (client, _), client.responses.connect() as connection:
        connection.response.create(model="scripted", input="Which colour?", tools=TOOLS, store=False)
        asked = final(connection)
        (call,) = asked.output
        assert call.type == "function_call"
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "blue"}
        connection.response.create(
            model="scripted", input=[output], tools=TOOLS, store=False, previous_response_id=asked.id
        )
        assert final(connection).output_text == "Blue."


def test_events_are_dispatched_to_handlers() -> None:
    with client_of(ScriptedEngine("Fine.")) as (client, _), client.responses.connect() as connection:
        deltas: list[str] = []
        errors: list[Any] = []
        connection.on("response.output_text.delta", lambda event: deltas.append(event.delta))
        connection.on("error", errors.append)
        connection.on("response.completed", lambda _: connection.close())
        connection.response.create(model="none", input="Hi")
        connection.response.steer(input="stop", previous_response_id="resp_1")
        connection.response.create(model="scripted", input="Hi")
        connection.dispatch_events()
        assert "".join(deltas) == "Fine."
        assert [error.error.code for error in errors] == ["model_not_found"]


def test_lanes_of_a_session_run_side_by_side() -> None:
    engine = ScriptedEngine("Fine.", paced=True)
    with (
        client_of(engine) as (client, _),
        ResponsesWebSocketSession(client.responses.connect().enter(), limits=LIMITS) as session,
    ):
        lanes = [session.lane(name) for name in ("left", "right")]
        for lane in lanes:
            lane.send({"type": "response.create", "model": "scripted", "input": "Hi", "store": False})
        assert [lane.recv(timeout=30).type for lane in lanes] == ["response.created"] * 2
        engine.allow(None)
        answers = [lane.get_final_response(timeout=30) for lane in lanes]
        assert [answer.output_text for answer in answers] == ["Fine."] * 2
        lanes[0].send(
            {
                "type": "response.create",
                "model": "scripted",
                "input": "More",
                "store": False,
                "previous_response_id": answers[1].id,
            }
        )
        assert lanes[0].get_final_response(timeout=30).output_text == "Fine."
        session.default.send({"type": "response.create", "model": "scripted", "previous_response_id": "resp_x"})
        with pytest.raises(ResponsesWebSocketError) as refused:
            session.default.get_final_response(timeout=30)
        assert refused.value.event.error.code == "previous_response_not_found"


def test_the_asynchronous_client_too() -> None:
    async def turns(url: str) -> list[str]:
        async with (
            AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=30) as client,
            client.responses.connect() as connection,
            AsyncResponsesWebSocketSession(connection, limits=LIMITS) as session,
        ):
            lanes = [session.lane(name) for name in "abc"]
            for lane in lanes:
                await lane.send({"type": "response.create", "model": "scripted", "input": "Hi", "store": False})
            answers = await asyncio.gather(*(lane.get_final_response() for lane in lanes))
            return [answer.output_text for answer in answers]

    with served(ScriptedEngine("Fine.")) as server:
        assert asyncio.run(turns(server.url)) == ["Fine."] * 3
