"""The `anthropic` package on ``/v1/messages``: plain, streamed, tools, its tool runner, counting, errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic, beta_tool

from support.client_servers import answering, call, prompt_of
from support.served import Served

ASK: Any = [{"role": "user", "content": "Weather in Oslo?"}]
TOOL: Any = {
    "name": "weather",
    "description": "The weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


@contextmanager
def client_of(server: Served) -> Iterator[Anthropic]:
    with Anthropic(base_url=server.url.removesuffix("/v1"), api_key="none", max_retries=0, timeout=60) as client:
        yield client


def test_a_conversation_with_a_tool() -> None:
    with answering("Let me see. " + call("weather", city="Oslo"), "It is cold.") as server, client_of(server) as client:
        first = client.messages.create(model="scripted", max_tokens=500, messages=ASK, tools=[TOOL], system="Be brief.")
        assert first.stop_reason == "tool_use"
        text, use = first.content
        assert text.type == "text"
        assert use.type == "tool_use"
        assert (text.text.strip(), use.name, use.input) == ("Let me see.", "weather", {"city": "Oslo"})
        result = {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "3 degrees"}]}
        messages = [*ASK, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
        answer = client.messages.create(model="scripted", max_tokens=500, messages=messages, tools=[TOOL])
        assert (answer.content[0].type, answer.stop_reason) == ("text", "end_turn")
        assert answer.content[0].text == "It is cold."
        for part in ("Be brief.", "Oslo"):
            assert part in prompt_of(server, 0)
        assert "3 degrees" in prompt_of(server)


def test_streams_of_text_and_of_calls() -> None:
    with answering("Cold — 🥶.", call("weather", city="Oslo")) as server, client_of(server) as client:
        with client.messages.stream(model="scripted", max_tokens=500, messages=ASK) as stream:
            assert "".join(stream.text_stream) == "Cold — 🥶."
            final = stream.get_final_message()
        assert final.stop_reason == "end_turn"
        assert final.usage.output_tokens == len("Cold — 🥶.".encode())
        with client.messages.stream(model="scripted", max_tokens=500, messages=ASK, tools=[TOOL]) as stream:
            pieces = [event.partial_json for event in stream if event.type == "input_json"]
            final = stream.get_final_message()
        assert "".join(pieces) == '{"city": "Oslo"}'
        assert final.stop_reason == "tool_use"
        assert final.content[-1].type == "tool_use"
        assert final.content[-1].input == {"city": "Oslo"}


def test_the_tool_runner_runs_to_the_end() -> None:
    @beta_tool
    def weather(city: str) -> str:
        """The weather of a city.

        Args:
            city: its name.
        """
        return f"3 degrees in {city}"

    with answering(call("weather", city="Oslo"), call("weather", city="Bergen"), "Cold.") as server:
        with client_of(server) as client:
            runner = client.beta.messages.tool_runner(model="scripted", max_tokens=500, messages=ASK, tools=[weather])
            final = runner.until_done()
        assert final.content[0].type == "text"
        assert final.content[0].text == "Cold."
        for city in ("Oslo", "Bergen"):
            assert f"3 degrees in {city}" in prompt_of(server)


@pytest.mark.parametrize(("sent", "tier"), [({}, "default"), ({"extra_body": {"speed": "fast"}}, "fast")])
def test_the_speed_is_the_tier(sent: Any, tier: str) -> None:
    with answering("Hi.") as server, client_of(server) as client:
        answer = client.messages.create(model="scripted", max_tokens=50, messages=ASK, **sent)
        assert server.loop.engine.requests[-1].tier == tier  # type: ignore[attr-defined]
        assert answer.usage.to_dict()["speed"] == ("fast" if tier == "fast" else "standard")


def test_counting_and_models() -> None:
    with answering("Hi.") as server, client_of(server) as client:
        counted = client.messages.count_tokens(model="scripted", messages=ASK, tools=[TOOL])
        answer = client.messages.create(model="scripted", max_tokens=50, messages=ASK, tools=[TOOL])
        usage = answer.usage
        assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)
        assert [model.id for model in client.models.list()] == ["scripted"]


def test_errors_have_their_class() -> None:
    with answering("Hi.") as server, client_of(server) as client:
        with pytest.raises(anthropic.NotFoundError) as missing:
            client.messages.create(model="other", max_tokens=5, messages=ASK)
        assert missing.value.request_id
        with pytest.raises(anthropic.BadRequestError, match="temperature"):
            client.messages.create(model="scripted", max_tokens=5, messages=ASK, extra_body={"temperature": 9})


def test_the_embedded_model_answers_and_calls(embedded: Served) -> None:
    with client_of(embedded) as client:
        answer = client.messages.create(model="smollm2-135m", max_tokens=5, messages=ASK, extra_body={"temperature": 0})
        assert answer.content[0].type == "text"
        assert 1 <= answer.usage.output_tokens <= 5
        forced = client.messages.create(
            model="smollm2-135m",
            max_tokens=200,
            messages=ASK,
            extra_body={"temperature": 0},
            tools=[{**TOOL, "strict": True}],
            tool_choice={"type": "any"},
        )
        use = forced.content[-1]
        assert use.type == "tool_use"
        assert set(use.input) == {"city"}  # type: ignore[call-overload]
