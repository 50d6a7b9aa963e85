"""`langchain-openai`, on Chat Completions and on Responses."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr

from support.client_servers import answering, call, prompt_of
from support.served import Served

both_apis = pytest.mark.parametrize("uses_responses", [False, True], ids=["chat", "responses"])


class City(BaseModel):
    """A city and its country."""

    name: Literal["Oslo", "Rome"]
    country: Literal["Italy", "Norway"]


@tool
def degrees(city: str) -> str:
    """The temperature in a city."""
    return f"3 degrees in {city}"


def model_of(server: Served, uses_responses: bool, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(
        model=server.loop.engine.model_id,
        base_url=server.url,
        api_key=SecretStr("none"),
        max_retries=0,
        use_responses_api=uses_responses,
        **options,
    )


@both_apis
def test_invoke_and_stream(uses_responses: bool) -> None:
    with answering("Speed is a tier. 🚀") as server:
        model = model_of(server, uses_responses, service_tier="ultrafast")
        answer = model.invoke("Hi")
        assert answer.text == "Speed is a tier. 🚀"
        assert answer.response_metadata["service_tier"] == "ultrafast"
        assert answer.usage_metadata is not None
        assert answer.usage_metadata["output_tokens"] == len("Speed is a tier. 🚀".encode())
        pieces = list(model.stream("Hi"))
        assert "".join(piece.text for piece in pieces) == answer.text
        assert len(pieces) > 2


@both_apis
def test_a_tool_is_called_and_its_result_used(uses_responses: bool) -> None:
    with answering(call("degrees", city="Oslo"), "It is cold.") as server:
        model = model_of(server, uses_responses).bind_tools([degrees])
        asked = model.invoke("Is it cold in Oslo?")
        [made] = asked.tool_calls
        assert (made["name"], made["args"]) == ("degrees", {"city": "Oslo"})
        result = degrees.invoke(made)
        assert isinstance(result, ToolMessage)
        answer = model.invoke([HumanMessage("Is it cold in Oslo?"), asked, result])
        assert answer.text == "It is cold."
        assert "3 degrees in Oslo" in prompt_of(server)


@both_apis
def test_a_streamed_call_adds_up(uses_responses: bool) -> None:
    with answering(call("degrees", city="Oslo")) as server:
        whole: Any = None
        for piece in model_of(server, uses_responses).bind_tools([degrees]).stream("Is it cold in Oslo?"):
            whole = piece if whole is None else whole + piece
    assert isinstance(whole, AIMessage)
    assert [(made["name"], made["args"]) for made in whole.tool_calls] == [("degrees", {"city": "Oslo"})]


@both_apis
@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output(uses_responses: bool, method: Any) -> None:
    city = City(name="Oslo", country="Norway")
    script = call("City", **city.model_dump()) if method == "function_calling" else city.model_dump_json()
    with answering(script) as server:
        model = model_of(server, uses_responses).with_structured_output(City, method=method)
        assert model.invoke("The capital of Norway?") == city


@both_apis
def test_the_embedded_model_keeps_to_a_schema(embedded: Served, uses_responses: bool) -> None:
    model = model_of(embedded, uses_responses, temperature=0, max_tokens=200)
    answer = model.with_structured_output(City, method="json_schema").invoke("The capital of Norway?")
    assert isinstance(answer, City)
