"""Tools and formats of Chat Completions on the embedded model: what was asked for is what comes, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import openai
import pytest
from openai import OpenAI, pydantic_function_tool
from pydantic import BaseModel

from support.served import served
from ultrafast.engine.engine import Engine

MESSAGES: Any = [{"role": "user", "content": "How is the weather in Bern?"}]


class Weather(BaseModel):
    city: str
    sky: Literal["clear", "cloudy"]
    celsius: int


WEATHER = pydantic_function_tool(Weather)


@pytest.fixture(scope="module")
def client(embedded_model_path: Path) -> Iterator[OpenAI]:
    engine = Engine(str(embedded_model_path), threads=1, context=1024)
    with served(engine) as server, OpenAI(base_url=server.url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def ask(client: OpenAI) -> dict[str, Any]:
    (model,) = client.models.list()
    return {"model": model.id, "messages": MESSAGES, "max_tokens": 200, "temperature": 0}


def test_a_forced_call_fits_its_schema(client: OpenAI, ask: dict[str, Any]) -> None:
    how: Any = {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "Weather"}}}
    answer = client.chat.completions.parse(**ask, **how)
    assert answer.choices[0].finish_reason == "tool_calls"
    (call,) = answer.choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, Weather)
    with client.chat.completions.stream(**ask, **how) as stream:
        (streamed,) = stream.get_final_completion().choices[0].message.tool_calls
    assert json.loads(streamed.function.arguments) == json.loads(call.function.arguments)


def test_an_answer_fits_its_format(client: OpenAI, ask: dict[str, Any]) -> None:
    answer = client.chat.completions.parse(**ask, response_format=Weather, n=2, seed=1)
    assert all(isinstance(choice.message.parsed, Weather) for choice in answer.choices)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "strin"}}}},
            "response_format",
        ),
        (
            {
                "tools": [
                    {
                        "type": "function",
                        "function": {"name": "f", "strict": True, "parameters": {"properties": {"a": {"$ref": "#/b"}}}},
                    }
                ]
            },
            "tools",
        ),
    ],
)
def test_a_schema_that_cannot_be_kept_is_refused(
    client: OpenAI, ask: dict[str, Any], fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError, match="cannot be guaranteed") as refusal:
        client.chat.completions.create(**ask, **fields)
    assert refusal.value.param == param
