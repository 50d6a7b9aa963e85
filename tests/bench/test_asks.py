"""What is sent for an `Ask`, in each API's words."""

from __future__ import annotations

from typing import Any

import pytest

from ultrafast.bench.client.bodies import Dialect, body_of
from ultrafast.bench.client.call import Ask
from ultrafast.bench.client.endpoint import Api, Endpoint
from ultrafast.errors import ConfigError

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
LOOK = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}
NAMED = {"type": "function", "function": {"name": "look"}}
COUNTED = {"include_usage": True, "continuous_usage_stats": True}


def sent(api: Api, ask: Ask, dialect: Dialect | None = None, tier: str | None = None) -> dict[str, Any]:
    return body_of(ask, Endpoint("http://host/v1", "m", api, tier), dialect or Dialect())


def test_a_field_that_is_not_given_is_not_sent() -> None:
    ask = Ask("Hi")
    stream = {"model": "m", "stream": True}
    assert sent("chat", ask) == {
        **stream, "messages": [{"role": "user", "content": "Hi"}], "stream_options": COUNTED
    }  # fmt: skip
    assert sent("completions", ask) == {**stream, "prompt": "Hi", "stream_options": COUNTED}
    assert sent("responses", ask) == {**stream, "input": "Hi"}
    assert sent("socket", ask) == {"type": "response.create", "model": "m", "input": "Hi"}


def test_every_field() -> None:
    ask = Ask(
        "Hi",
        max_tokens=5,
        temperature=0.0,
        seed=1,
        reasoning_effort="low",
        tools=[LOOK],
        tool_choice=NAMED,
        json_schema=SCHEMA,
        extra={"top_p": 0.5},
        tags={"never": "sent"},
    )
    chat = sent("chat", ask, tier="fast")
    form = {"name": "answer", "schema": SCHEMA, "strict": True}
    assert chat == {
        "model": "m",
        "service_tier": "fast",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": COUNTED,
        "max_tokens": 5,
        "temperature": 0.0,
        "seed": 1,
        "reasoning_effort": "low",
        "tools": [LOOK],
        "tool_choice": NAMED,
        "response_format": {"type": "json_schema", "json_schema": form},
        "top_p": 0.5,
    }
    assert sent("responses", ask, tier="fast") == {
        "model": "m",
        "service_tier": "fast",
        "input": "Hi",
        "stream": True,
        "max_output_tokens": 5,
        "temperature": 0.0,
        "reasoning": {"effort": "low"},
        "tools": [{"type": "function", "name": "look", "parameters": SCHEMA, "strict": False}],
        "tool_choice": {"type": "function", "name": "look"},
        "text": {"format": {"type": "json_schema", **form}},
        "top_p": 0.5,
    }


def test_a_conversation_with_tools_as_items() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    picture = {"type": "image_url", "image_url": {"url": "data:x"}}
    item = {"type": "function_call_output", "call_id": "d", "output": "already an item"}
    messages = [
        {"role": "system", "content": "Be good."},
        {"role": "user", "content": [{"type": "text", "text": "Look"}, picture]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {
            "role": "tool",
            "tool_call_id": "c",
            "content": [{"type": "text", "text": "bl"}, {"type": "text", "text": "ue"}],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "Blue."}]},
        item,
    ]
    assert sent("responses", Ask(messages))["input"] == [
        {"role": "system", "content": "Be good."},
        {"role": "user", "content": [
            {"type": "input_text", "text": "Look"}, {"type": "input_image", "image_url": "data:x"}
        ]},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "blue"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Blue."}]},
        item,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "ask",
    [
        Ask([{"role": "user", "content": "Hi"}]),
        Ask("Hi", tools=[LOOK]),
        Ask("Hi", json_schema=SCHEMA),
        Ask("Hi", reasoning_effort="low"),
    ],
)
def test_what_completions_cannot_say(ask: Ask) -> None:
    with pytest.raises(ConfigError, match=r"the Completions API takes a text, and no .*: ask by chat or responses"):
        sent("completions", ask)


def test_servers_that_refuse_a_word_get_another() -> None:
    plain = Dialect()
    assert plain.without("no such model") is None
    older = plain.without("Unknown parameter: 'stream_options.continuous_usage_stats'.")
    assert older == Dialect(counts=False)
    assert sent("chat", Ask("Hi"), older)["stream_options"] == {"include_usage": True}
    oldest = older.without("stream_options: extra fields not permitted")
    assert oldest == Dialect(counts=False, usage=False)
    assert "stream_options" not in sent("chat", Ask("Hi"), oldest)
    assert oldest.without("stream_options: extra fields not permitted") is None
    newer = plain.without("'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.")
    assert newer == Dialect(limit="max_completion_tokens")
    assert sent("chat", Ask("Hi", max_tokens=3), newer)["max_completion_tokens"] == 3
