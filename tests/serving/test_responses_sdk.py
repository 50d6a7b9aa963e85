"""The Responses API through the `openai` package, over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel

from support.marked_chat import marked_engine
from support.served import Served, served

THINKING = '<think>Let me see.</think>It is <call get_weather>{"city": "Oslo", "days": 3}</call><call now>{}</call>'


class GetWeather(BaseModel):
    """The weather of a city."""

    city: str
    days: int


class Now(BaseModel):
    """The time."""


TOOLS = [openai.pydantic_function_tool(GetWeather, name="get_weather"), openai.pydantic_function_tool(Now, name="now")]
FLAT = [{"type": "function", **tool["function"]} for tool in TOOLS]


@contextmanager
def client_of(*scripts: str, **options: Any) -> Iterator[tuple[OpenAI, Any, Served]]:
    engine = marked_engine(*scripts, **options)
    with (
        served(engine) as server,
        OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=30) as client,
    ):
        yield client, engine, server


def test_the_stream_helper_follows_thoughts_text_and_calls() -> None:
    with (
        client_of(THINKING) as (client, _, _),
        client.responses.stream(model="scripted", input="Hi", tools=FLAT) as stream,
    ):
        kinds = []
        snapshots: dict[str, str] = {}
        for event in stream:
            kinds.append(event.type)
            if event.type in ("response.output_text.delta", "response.function_call_arguments.delta"):
                snapshots[event.item_id] = event.snapshot
        final = stream.get_final_response()
    assert final.status == "completed"
    thought, message, weather, now = final.output
    assert thought.type == "reasoning"
    assert thought.content is not None
    assert [part.text for part in thought.content] == ["Let me see."]
    assert message.type == "message"
    assert weather.type == now.type == "function_call"
    assert weather.parsed_arguments == {"city": "Oslo", "days": 3}
    assert list(snapshots.values()) == ["It is ", weather.arguments, now.arguments]
    assert final.output_text == "It is "
    assert kinds[0] == "response.created"
    assert kinds.count("response.output_item.done") == 4
    assert final.usage is not None
    assert final.usage.output_tokens_details.reasoning_tokens == len("Let me see.")


def test_parse_reads_arguments_and_text() -> None:
    with client_of(THINKING, '{"city": "Rome", "days": 1}') as (client, engine, _):
        called = client.responses.parse(model="scripted", input="Hi", tools=FLAT)
        calls = [item for item in called.output if item.type == "function_call"]
        assert [json.loads(call.arguments) for call in calls] == [{"city": "Oslo", "days": 3}, {}]
        assert calls[0].parsed_arguments is not None
        formatted = client.responses.parse(model="scripted", input="Hi", text_format=GetWeather)
        assert formatted.output_parsed == GetWeather(city="Rome", days=1)
        output = engine.chat.planned[-1].output
        assert (output.kind, output.schema["required"]) == ("json_schema", ["city", "days"])
        assert formatted.text is not None
        assert formatted.text.format is not None
        assert formatted.text.format.type == "json_schema"


def test_the_stream_helper_parses_text() -> None:
    with (
        client_of('{"city": "Rome", "days": 1}') as (client, _, _),
        client.responses.stream(model="scripted", input="Hi", text_format=GetWeather) as stream,
    ):
        parsed = [event.parsed for event in stream if event.type == "response.output_text.done"]
        assert parsed == [GetWeather(city="Rome", days=1)]
        assert stream.get_final_response().output_parsed == parsed[0]


def test_an_agent_loop_goes_on_by_id_and_by_items() -> None:
    scripts = ['<call now>{"step": 1}</call>', '<call now>{"step": 2}</call>', "Done."]
    for by_id in (True, False):
        with client_of(*scripts) as (client, engine, _):
            conversation: list[Any] = [{"role": "user", "content": "Go."}]
            sent, previous = conversation, openai.omit
            while True:
                answer = client.responses.create(
                    model="scripted",
                    input=sent,
                    tools=FLAT,
                    previous_response_id=previous,
                    store=by_id,
                )
                calls = [item for item in answer.output if item.type == "function_call"]
                if not calls:
                    break
                outputs = [
                    {"type": "function_call_output", "call_id": call.call_id, "output": "fine"} for call in calls
                ]
                if by_id:
                    sent, previous = outputs, answer.id
                else:
                    conversation += answer.output
                    conversation += outputs
            assert answer.output_text == "Done."
            roles = [message["role"] for message in engine.chat.planned[-1].messages]
            assert roles == ["user", "assistant", "tool", "assistant", "tool"]


def test_stored_responses_by_their_methods() -> None:
    with client_of("Yes.") as (client, _, _):
        response = client.responses.create(model="scripted", input="Hi", metadata={"k": "v"})
        again = client.responses.retrieve(response.id)
        assert (again.output_text, again.metadata) == ("Yes.", {"k": "v"})
        items = [{"role": "user", "content": f"{index}"} for index in range(45)]
        long = client.responses.create(model="scripted", input=items)
        listed = list(client.responses.input_items.list(long.id, order="asc", limit=20))
        assert [item.content[0].text for item in listed] == [f"{index}" for index in range(45)]
        counted = client.responses.input_tokens.count(model="scripted", input=items)
        assert long.usage is not None
        assert counted.input_tokens == long.usage.input_tokens
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.cancel(response.id)
        assert caught.value.code == "response_not_active"
        client.responses.delete(response.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(response.id)
        with pytest.raises(openai.BadRequestError) as gone:
            client.responses.create(model="scripted", input="x", previous_response_id=response.id)
        assert gone.value.code == "previous_response_not_found"


def test_a_stream_can_be_cancelled_by_its_id() -> None:
    with client_of("Hello there", paced=True) as (client, engine, server):
        engine.allow(3)
        seen = []
        for event in client.responses.create(model="scripted", input="Hi", stream=True):
            seen.append(event)
            if event.type == "response.output_text.delta":
                created = seen[0]
                assert created.type == "response.created"
                assert client.responses.cancel(created.response.id).status == "cancelled"
        last = seen[-1]
        assert last.type == "response.incomplete"
        assert last.response.status == "cancelled"
        server.wait_for(lambda stats: not stats["running"])


def test_a_failure_in_mid_stream_is_raised() -> None:
    with client_of("Hello there", paced=True) as (client, engine, _):
        engine.allow(2)
        stream = client.responses.create(model="scripted", input="Hi", stream=True)

        def read() -> None:
            for event in stream:
                if event.type == "response.output_text.delta":
                    engine.fail_next = ValueError("no")
                    engine.allow(None)

        with pytest.raises(openai.APIError, match="engine failed"):
            read()


def test_many_conversations_at_once_stay_apart() -> None:
    with client_of("Yes.", num_slots=4) as (client, engine, _):
        failures = []

        def converse(name: str) -> None:
            previous = openai.omit
            for turn in range(5):
                answer = client.responses.create(model="scripted", input=f"{name}{turn}", previous_response_id=previous)
                previous = answer.id
            items = client.responses.input_items.list(previous, order="asc", limit=100)
            texts = [item.content[0].text for item in items if getattr(item, "role", "") == "user"]
            if texts != [f"{name}{turn}" for turn in range(5)]:
                failures.append(texts)

        threads = [threading.Thread(target=converse, args=(name,)) for name in "abcdef"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not failures
        assert len(engine.requests) == 30
