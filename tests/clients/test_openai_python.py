"""The `openai` package for Python: HTTP, event streams, one WebSocket, Pydantic models, its tool runner."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.lib.responses_tool_runner import RegisteredFunction, ResponsesToolRunner
from openai.lib.responses_websocket import ResponsesWebSocketLimits, ResponsesWebSocketSession
from openai.resources.responses.responses import ResponsesConnection
from openai.types.responses import Response
from pydantic import BaseModel

from support.client_servers import answering, call, prompt_of
from support.served import Served


class Weather(BaseModel):
    """The weather of a city."""

    city: Literal["Oslo", "Rome"]
    days: Literal[3, 7]


class Verdict(BaseModel):
    colour: Literal["red", "green", "blue"]
    is_warm: bool


TOOL = openai.pydantic_function_tool(Weather, name="weather")
FLAT_TOOL: Any = openai.pydantic_responses_function_tool(Weather, name="weather")
ASK: Any = [{"role": "user", "content": "Weather in Oslo?"}]
CALL = call("weather", city="Oslo", days=3)
LIMITS = ResponsesWebSocketLimits(
    max_lanes=4,
    max_events_per_lane=1024,
    max_events=4096,
    max_bytes_per_lane=1 << 24,
    max_bytes=1 << 25,
    max_response_bytes=None,
)


@contextmanager
def client_of(server: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=60) as client:
        yield client


def test_chat_with_a_tool_plain_and_streamed() -> None:
    with answering(CALL, "It is 3 degrees.") as server, client_of(server) as client:
        first = client.chat.completions.create(
            model="scripted",
            messages=ASK,
            tools=[TOOL],
            service_tier="ultrafast",  # type: ignore[arg-type]
        )
        choice = first.choices[0]
        assert (choice.finish_reason, first.service_tier, choice.message.content) == ("tool_calls", "ultrafast", None)
        assert choice.message.tool_calls is not None
        [made] = choice.message.tool_calls
        assert made.type == "function"
        assert (made.function.name, json.loads(made.function.arguments)) == ("weather", {"city": "Oslo", "days": 3})
        messages = [*ASK, choice.message, {"role": "tool", "tool_call_id": made.id, "content": "3 degrees"}]
        with client.chat.completions.stream(model="scripted", messages=messages, tools=[TOOL]) as stream:
            text = "".join(event.delta for event in stream if event.type == "content.delta")
            final = stream.get_final_completion()
        assert text == final.choices[0].message.content == "It is 3 degrees."
        assert "3 degrees" in prompt_of(server)
        assert "Oslo" in prompt_of(server)


def test_a_streamed_call_is_parsed() -> None:
    with answering(CALL) as server, client_of(server) as client:
        with client.chat.completions.stream(model="scripted", messages=ASK, tools=[TOOL]) as stream:
            kinds = {event.type for event in stream}
            message = stream.get_final_completion().choices[0].message
        assert "tool_calls.function.arguments.delta" in kinds
        assert message.tool_calls is not None
        assert message.tool_calls[0].function.parsed_arguments == Weather(city="Oslo", days=3)
        with client.responses.stream(model="scripted", input=ASK, tools=[FLAT_TOOL]) as events:
            kinds = {event.type for event in events}
            output = events.get_final_response().output
        assert {"response.function_call_arguments.delta", "response.function_call_arguments.done"} <= kinds
        assert [json.loads(item.arguments) for item in output if item.type == "function_call"] == [
            {"city": "Oslo", "days": 3}
        ]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_the_tool_runner_runs_to_the_end(is_streamed: bool) -> None:
    asked: list[Weather] = []

    def weather(arguments: Weather) -> str:
        asked.append(arguments)
        return f"{arguments.days} degrees"

    runner = ResponsesToolRunner(functions=[RegisteredFunction.from_tool(FLAT_TOOL, execute=weather)])
    with (
        answering(CALL, call("weather", city="Rome", days=7), "Rome is warmer.") as server,
        client_of(server) as client,
    ):
        final = runner.run(client, {"model": "scripted", "input": "Where is it warm?"}, max_steps=5, stream=is_streamed)
        assert final.output_text == "Rome is warmer."
        assert asked == [Weather(city="Oslo", days=3), Weather(city="Rome", days=7)]
        assert "3 degrees" in prompt_of(server)
        assert "7 degrees" in prompt_of(server)


def answer_of(socket: ResponsesConnection) -> tuple[Response, list[Any]]:
    """The next response of a socket, and its events."""
    events: list[Any] = []
    for event in socket:
        assert event.type != "error", event
        events.append(event)
        if event.type in ("response.completed", "response.incomplete", "response.failed"):
            return event.response, events
    raise AssertionError("closed")


def create(**fields: Any) -> dict[str, Any]:
    return {"type": "response.create", "model": "scripted", "store": False, **fields}


def test_turns_over_one_socket_send_new_items_only() -> None:
    with (
        answering(CALL, "It is 3 degrees.") as server,
        client_of(server) as client,
        client.responses.connect() as socket,
    ):
        socket.response.create(model="scripted", store=False, input=ASK, tools=[FLAT_TOOL], service_tier="ultrafast")
        first, events = answer_of(socket)
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert first.service_tier == "ultrafast"
        [made] = [item for item in first.output if item.type == "function_call"]
        result: Any = {"type": "function_call_output", "call_id": made.call_id, "output": "3 degrees"}
        socket.response.create(model="scripted", store=False, input=[result], previous_response_id=first.id)
        second, _ = answer_of(socket)
        assert second.output_text == "It is 3 degrees."
        assert second.previous_response_id == first.id
        for part in ("Weather in Oslo?", '"days": 3', "3 degrees"):
            assert part in prompt_of(server)
        socket.response.create(model="scripted", input="x", previous_response_id="resp_none")
        error = next(iter(socket))
        assert error.type == "error"
        assert error.to_dict()["error"]["code"] == "previous_response_not_found"


def test_lanes_of_a_session() -> None:
    with (
        answering("One.", "Two.") as server,
        client_of(server) as client,
        client.responses.connect(websocket_connection_options={"max_size": None}) as socket,
        ResponsesWebSocketSession(socket, limits=LIMITS) as session,
    ):
        lane = session.lane("left")
        lane.send(create(input="Hi"))
        first = lane.get_final_response()
        other = session.lane("right")
        other.send(create(input="And?", previous_response_id=first.id))
        second = other.get_final_response()
        assert (first.output_text, second.output_text) == ("One.", "Two.")
        assert "One." in prompt_of(server)


def test_the_async_client_on_a_socket() -> None:
    async def main() -> None:
        with answering("One.", "Two.") as server:
            async with (
                AsyncOpenAI(base_url=server.url, api_key="none", max_retries=0) as client,
                client.responses.connect() as socket,
            ):
                for text in ("One.", "Two."):
                    await socket.response.create(model="scripted", input="Hi")
                    async for event in socket:
                        assert event.type not in ("error", "response.failed"), event
                        if event.type == "response.completed":
                            break
                    assert event.response.output_text == text

    asyncio.run(main())


def test_errors_have_their_class_and_their_field() -> None:
    with answering("Hi.") as server, client_of(server) as client:
        with pytest.raises(openai.NotFoundError) as missing:
            client.responses.create(model="other", input="Hi")
        assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
        assert missing.value.request_id
        with pytest.raises(openai.BadRequestError) as wrong:
            client.chat.completions.create(model="scripted", messages=ASK, temperature=9)
        assert wrong.value.param == "temperature"


def test_the_embedded_model_keeps_to_models_and_tools(embedded: Served) -> None:
    """Whatever the model is worth, what it writes is what was asked for: the grammar sees to that."""
    with client_of(embedded) as client:
        question: Any = [{"role": "user", "content": "What colour is the sky, and is it warm?"}]
        parsed = client.responses.parse(model="smollm2-135m", input=question, text_format=Verdict, temperature=0)
        assert parsed.output_parsed is not None
        chat = client.chat.completions.parse(
            model="smollm2-135m", messages=question, response_format=Verdict, temperature=0
        )
        assert chat.choices[0].message.parsed == parsed.output_parsed
        forced = client.responses.parse(
            model="smollm2-135m",
            input=ASK,
            tools=[FLAT_TOOL],
            tool_choice="required",
            parallel_tool_calls=False,
            temperature=0,
            max_output_tokens=200,
        )
        [made] = [item for item in forced.output if item.type == "function_call"]
        assert isinstance(Weather.model_validate_json(made.arguments), Weather)
        with client.responses.connect() as socket:
            socket.response.create(model="smollm2-135m", input="Say hi.", max_output_tokens=5, temperature=0)
            answer, _ = answer_of(socket)
        assert answer.output_text
        assert answer.usage is not None
        assert 1 <= answer.usage.output_tokens <= 5
