"""Requests to `/v1/responses`, and what comes of them."""

from __future__ import annotations

import asyncio
from typing import Any

from support.asgi import Answer, client_of
from support.marked_chat import marked_engine
from support.response_events import check_events
from support.scripted_engine import ScriptedEngine

PATH = "/v1/responses"
WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "weather",
    "description": "of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": True,
}
CLOCK = {"type": "function", "name": "clock", "parameters": {"type": "object"}, "strict": False}


def ask(input: Any = "Hi", **fields: Any) -> dict[str, Any]:
    return {"model": "scripted", "input": input, **fields}


def post(body: dict[str, Any] | bytes, engine: Any = None) -> Answer:
    async def main() -> Answer:
        async with asyncio.timeout(30), client_of(engine or ScriptedEngine()) as client:
            return await client.post(PATH, body)

    return asyncio.run(main())


def refused(body: dict[str, Any] | bytes, engine: Any = None) -> dict[str, Any]:
    answer = post(body, engine)
    assert answer.status == 400, answer.body
    return answer.error


def planned(body: dict[str, Any], engine: Any = None) -> Any:
    engine = engine or marked_engine("fine")
    answer = post(body, engine)
    assert answer.status == 200, answer.body
    return engine.chat.planned[-1]


def streamed(body: dict[str, Any], engine: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    answer = post({**body, "stream": True}, engine)
    assert answer.status == 200, answer.body
    frames = answer.events()
    assert all(name == event["type"] for name, event in frames)
    events = [event for _, event in frames]
    return events, check_events(events)
