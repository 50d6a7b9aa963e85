"""Tools, structured output and completions through the official OpenAI SDK, over a real server on a loopback port."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from openai import OpenAI, pydantic_function_tool
from pydantic import BaseModel

from support.marked_chat import marked_engine
from support.scripted_engine import ScriptedEngine, text_of, with_tiers
from support.served import served

USER: Any = {"role": "user", "content": "How is the weather in Bern?"}


class GetWeather(BaseModel):
    """Tells the weather of a city."""

    city: str
    days: int = 1


class Weather(BaseModel):
    city: str
    celsius: list[float]


TOOLS = [pydantic_function_tool(GetWeather)]
CALL = '<call GetWeather>{"city": "Bern", "days": 2}</call>'
REPORT = '{"city": "Bern", "celsius": [3.5, -1]}'


@contextmanager
def client_of(engine: Any) -> Iterator[OpenAI]:
    with served(engine) as server, OpenAI(base_url=server.url, api_key="none", max_retries=0) as client:
        yield client


def test_a_round_trip_of_calls() -> None:
    engine = marked_engine(CALL + CALL.replace("Bern", "Thun"), "Cold.")
    with client_of(engine) as client:
        messages: list[Any] = [USER]
        first = client.chat.completions.create(model="scripted", messages=messages, tools=TOOLS)
        message = first.choices[0].message
        assert first.choices[0].finish_reason == "tool_calls"
        assert message.content is None
        messages.append(message)
        for call in message.tool_calls:
            city = json.loads(call.function.arguments)["city"]
            messages.append({"role": "tool", "tool_call_id": call.id, "content": f"{city}: 3"})
        second = client.chat.completions.create(model="scripted", messages=messages, tools=TOOLS)
    assert second.choices[0].message.content == "Cold."
    assert second.choices[0].message.tool_calls is None
    _, called, *results = engine.chat.planned[-1].messages
    assert [c["function"]["name"] for c in called["tool_calls"]] == ["GetWeather"] * 2
    assert [(r["tool_call_id"], r["content"]) for r in results] == [
        (call["id"], f"{city}: 3") for call, city in zip(called["tool_calls"], ["Bern", "Thun"], strict=True)
    ]


def test_the_stream_helper_with_calls() -> None:
    """It parses the arguments of a strict tool itself, and raises on deltas that do not fit together."""
    engine = marked_engine("So: " + CALL + CALL.replace("Bern", "Zürich"))
    with (
        client_of(engine) as client,
        client.chat.completions.stream(model="scripted", messages=[USER], tools=TOOLS) as stream,
    ):
        events = list(stream)
        final = stream.get_final_completion()
    done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert [event.parsed_arguments for event in done] == [
        GetWeather(city="Bern", days=2),
        GetWeather(city="Zürich", days=2),
    ]
    assert [event.index for event in done] == [0, 1]
    assert final.choices[0].message.content == "So: "
    assert final.choices[0].finish_reason == "tool_calls"
    assert engine.chat.planned[0].tools[0].strict


def test_parsed_calls() -> None:
    with client_of(marked_engine(CALL)) as client:
        answer = client.chat.completions.parse(model="scripted", messages=[USER], tools=TOOLS)
    (call,) = answer.choices[0].message.tool_calls
    assert call.function.parsed_arguments == GetWeather(city="Bern", days=2)


def test_parsed_answers() -> None:
    engine = marked_engine(REPORT)
    with client_of(engine) as client:
        answer = client.chat.completions.parse(model="scripted", messages=[USER], response_format=Weather)
        assert answer.choices[0].message.parsed == Weather(city="Bern", celsius=[3.5, -1])
        with client.chat.completions.stream(model="scripted", messages=[USER], response_format=Weather) as stream:
            final = stream.get_final_completion()
        assert final.choices[0].message.parsed == answer.choices[0].message.parsed
        with pytest.raises(openai.LengthFinishReasonError):
            client.chat.completions.parse(model="scripted", messages=[USER], response_format=Weather, max_tokens=3)
    output = engine.chat.planned[0].output
    assert output.kind == "json_schema"
    assert output.schema["required"] == ["city", "celsius"]


def test_functions_of_older_programs() -> None:
    engine = marked_engine(CALL, "Cold.")
    function: Any = {"name": "GetWeather", "parameters": {"type": "object"}}
    with client_of(engine) as client:
        messages: list[Any] = [USER]
        first = client.chat.completions.create(model="scripted", messages=messages, functions=[function])
        assert first.choices[0].finish_reason == "function_call"
        messages += [first.choices[0].message, {"role": "function", "name": "GetWeather", "content": "3"}]
        second = client.chat.completions.create(model="scripted", messages=messages, functions=[function])
    assert second.choices[0].message.content == "Cold."
    assert engine.chat.planned[-1].messages[-1]["role"] == "tool"


def test_thoughts() -> None:
    with client_of(marked_engine("<think>Hm.</think>Cold.")) as client:
        answer = client.chat.completions.create(model="scripted", messages=[USER])
        assert answer.choices[0].message.model_extra == {"reasoning_content": "Hm."}
        assert answer.usage.completion_tokens_details.reasoning_tokens == 3
        deltas = [
            chunk.choices[0].delta
            for chunk in client.chat.completions.create(model="scripted", messages=[USER], stream=True)
        ]
    assert "".join((delta.model_extra or {}).get("reasoning_content", "") for delta in deltas) == "Hm."
    assert "".join(delta.content or "" for delta in deltas) == "Cold."


def test_a_bad_tool_is_named() -> None:
    bad: Any = [{"type": "function", "function": {"name": "no name"}}]
    with client_of(marked_engine(CALL)) as client, pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model="scripted", messages=[USER], tools=bad)
    assert error.value.param == "tools[0].function.name"


def test_completions() -> None:
    with client_of(ScriptedEngine()) as client:
        answer = client.completions.create(model="scripted", prompt=["Hi", "Ho"], max_tokens=9, echo=True, logprobs=1)
        assert [choice.text for choice in answer.choices] == ["Hi" + text_of(9), "Ho" + text_of(9)]
        assert answer.choices[1].logprobs.tokens[:3] == ["H", "o", "S"]
        assert answer.choices[1].logprobs.token_logprobs[0] is None
        assert answer.usage.completion_tokens == 18
        text, finish_reason, usage = "", None, None
        for chunk in client.completions.create(
            model="scripted", prompt="Hi", max_tokens=30, stream=True, stream_options={"include_usage": True}
        ):
            usage = chunk.usage
            for choice in chunk.choices:
                text += choice.text
                finish_reason = choice.finish_reason
    assert (text, finish_reason) == (text_of(30), "length")
    assert usage is not None
    assert usage.completion_tokens == 30


def test_the_sdk_tries_again_when_told_to() -> None:
    """A full tier is worth a second try, and that waits as long as the answer says."""
    engine = ScriptedEngine(tiers=with_tiers(flex={"slots": 1}), paced=True)
    with served(engine) as server, OpenAI(base_url=server.url, api_key="none", max_retries=0) as client:
        engine.allow(2)
        stream = client.chat.completions.create(
            model="scripted", messages=[USER], service_tier="flex", stream=True, max_tokens=50
        )
        next(iter(stream))
        with pytest.raises(openai.RateLimitError) as refusal:
            client.chat.completions.create(model="scripted", messages=[USER], service_tier="flex")
        headers = refusal.value.response.headers
        assert (headers["x-should-retry"], headers["x-ratelimit-remaining-requests"]) == ("true", "0")
        assert client._should_retry(refusal.value.response)
        assert client._parse_retry_after_header(headers) == int(headers["retry-after-ms"]) / 1000
        stream.response.close()
