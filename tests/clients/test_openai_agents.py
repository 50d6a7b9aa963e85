"""`openai-agents`: an agent with two tools that takes ten steps, on Responses, on one WebSocket, and on Chat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import pytest
from agents import (
    Agent,
    Model,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIProvider,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic import BaseModel

from support.client_servers import answering, call, prompt_of
from support.served import Served

STEPS = 10


TIER = ModelSettings(extra_body={"service_tier": "ultrafast"})
set_tracing_disabled(True)  # traces would go to a service elsewhere


class Choice(BaseModel):
    colour: Literal["red", "green"]
    is_sure: bool


@asynccontextmanager
async def model_of(server: Served, kind: str) -> AsyncIterator[Model]:
    async with AsyncOpenAI(base_url=server.url, api_key="none", max_retries=0) as client:
        name = server.loop.engine.model_id
        if kind == "chat":
            yield OpenAIChatCompletionsModel(name, client)
        elif kind == "responses":
            yield OpenAIResponsesModel(name, client)
        else:
            provider = OpenAIProvider(openai_client=client, use_responses=True, use_responses_websocket=True)
            yield provider.get_model(name)
            await provider.aclose()


@pytest.mark.parametrize("kind", ["responses", "websocket", "chat"])
@pytest.mark.parametrize("is_streamed", [False, True], ids=["plain", "streamed"])
def test_an_agent_takes_ten_steps_with_two_tools(kind: str, is_streamed: bool) -> None:
    done: list[str] = []

    @function_tool
    def add(a: int, b: int) -> int:
        """The sum of two numbers."""
        done.append(f"{a}+{b}")
        return a + b

    @function_tool
    async def note(text: str) -> str:
        """Write something down."""
        done.append(text)
        return f"noted: {text}"

    steps = [call("add", a=i, b=1) if i % 2 else call("note", text=f"step {i}") for i in range(STEPS)]

    async def main(server: Served) -> str:
        async with model_of(server, kind) as model:
            agent = Agent(name="Clerk", instructions="Be exact.", model=model, tools=[add, note], model_settings=TIER)
            if not is_streamed:
                result = await Runner.run(agent, "Go.", max_turns=STEPS + 1)
                return str(result.final_output)
            streamed = Runner.run_streamed(agent, "Go.", max_turns=STEPS + 1)
            deltas = [event async for event in streamed.stream_events() if event.type == "raw_response_event"]
            assert len(deltas) > STEPS
            return str(streamed.final_output)

    with answering(*steps, "All done.") as server:
        assert asyncio.run(main(server)) == "All done."
        assert done == [f"{i}+1" if i % 2 else f"step {i}" for i in range(STEPS)]
        requests = server.loop.engine.requests  # type: ignore[attr-defined]
        assert len(requests) == STEPS + 1
        assert {request.tier for request in requests} == {"ultrafast"}
        last = prompt_of(server)
        assert [last.count(f"noted: step {i}") for i in range(0, STEPS, 2)] == [1] * (STEPS // 2)


def test_the_embedded_model_hands_over_typed_output(embedded: Served) -> None:
    async def main() -> object:
        async with model_of(embedded, "responses") as model:
            settings = ModelSettings(temperature=0, max_tokens=100)
            agent = Agent(name="Clerk", model=model, output_type=Choice, model_settings=settings)
            return (await Runner.run(agent, "Red or green?")).final_output

    assert isinstance(asyncio.run(main()), Choice)
