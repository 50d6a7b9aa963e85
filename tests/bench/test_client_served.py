"""The client against our own server: the same answer by every API, tiers, tools, thoughts, turns that continue."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.marked_chat import marked_engine
from support.scripted_engine import ScriptedEngine, text_of, with_tiers
from support.served import Served, served
from ultrafast.bench.client.call import Ask, Call, Outcome, ToolCall
from ultrafast.bench.client.client import Client
from ultrafast.bench.client.clock import RunClock
from ultrafast.bench.client.endpoint import Api, Endpoint
from ultrafast.engine.engine import Engine
from ultrafast.errors import PromptTooLong

APIS: list[Api] = ["chat", "completions", "responses", "socket"]
MESSAGE_APIS: list[Api] = ["chat", "responses", "socket"]
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def tiny(tiny_model_path: Path) -> Iterator[Served]:
    with served(Engine(str(tiny_model_path), threads=1)) as server:
        yield server


def calls_of(server: Served, api: Api, *asks: Ask, tier: str | None = None) -> list[Call]:
    """One after another, on one client."""

    async def main() -> list[Call]:
        model = server.loop.engine.model_id
        async with Client(Endpoint(server.url, model, api, tier), RunClock(), timeout_s=60) as client:
            return [await client.call(ask, id=str(n)) for n, ask in enumerate(asks)]

    return asyncio.run(main())


def call_of(server: Served, api: Api, ask: Ask, tier: str | None = None) -> Call:
    (call,) = calls_of(server, api, ask, tier=tier)
    return call


def test_every_api_tells_the_same(tiny: Served) -> None:
    ask = Ask("Speed is", max_tokens=24, temperature=0, seed=1)
    calls = {api: call_of(tiny, api, ask, "ultrafast") for api in APIS}
    for call in calls.values():
        assert (call.outcome, call.error, call.status) == (Outcome.OK, None, 200)
        assert (call.tier_served, call.model_served) == ("ultrafast", tiny.loop.engine.model_id)
        assert call.output_tokens == 24
        assert sum(chunk.tokens for chunk in call.chunks) == pytest.approx(24, abs=1)
        assert call.finish_reason == "length"
        assert call.prompt_tokens
        assert call.response_id
    assert len({calls[api].text for api in MESSAGE_APIS}) == 1
    assert len({calls[api].prompt_tokens for api in MESSAGE_APIS}) == 1


@pytest.mark.parametrize("api", APIS)
def test_our_server_counts_and_times(tiny: Served, api: Api) -> None:
    call = call_of(tiny, api, Ask("Speed is", max_tokens=40, temperature=0))
    assert call.token_source == ("chunks" if api in ("chat", "completions") else "estimated")
    assert sum(chunk.tokens for chunk in call.chunks) == pytest.approx(
        40, abs=1
    )  # the last one may be half a character
    server = call.server
    assert server.queue_s is not None
    assert server.prefill_s is not None
    assert server.decode_s is not None
    assert call.e2e_s is not None
    assert 0 < server.queue_s + server.prefill_s + server.decode_s <= call.e2e_s
    assert server.drafted_tokens is not None


def test_completions_are_what_the_engine_says(tiny: Served, tiny_model_path: Path) -> None:
    with Engine(str(tiny_model_path), threads=1) as alone:
        wanted = alone.generate("Speed is", max_tokens=9).text
    assert call_of(tiny, "completions", Ask("Speed is", max_tokens=9, temperature=0)).text == wanted


@pytest.mark.parametrize("api", MESSAGE_APIS)
def test_an_answer_keeps_a_schema(tiny: Served, api: Api) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["n"],
        "additionalProperties": False,
    }
    call = call_of(tiny, api, Ask("A number", max_tokens=60, temperature=0, json_schema=schema))
    assert call.outcome is Outcome.OK
    if call.finish_reason == "stop":
        assert set(json.loads(call.text)) == {"n"}
    assert call.text.lstrip().startswith("{")


@pytest.mark.parametrize("api", MESSAGE_APIS)
def test_thoughts_and_tools(api: Api) -> None:
    with served(marked_engine('<think>Well.</think>I look.<call look>{"at": "sky"}</call>', "Blue.")) as server:
        conversation: list[dict[str, Any]] = [{"role": "user", "content": "What colour is the sky?"}]
        asked = call_of(server, api, Ask(conversation, tools=[LOOK]))
        assert (asked.thoughts, asked.text, asked.finish_reason) == ("Well.", "I look.", "tool_calls")
        (call,) = asked.tool_calls
        assert (call.name, call.arguments) == ("look", '{"at": "sky"}')
        assert {chunk.kind for chunk in asked.chunks} == {"thought", "answer", "tool"}
        assert asked.reasoning_tokens
        conversation += [said(asked.text, call), {"role": "tool", "tool_call_id": call.id, "content": "blue"}]
        answered = call_of(server, api, Ask(conversation, tools=[LOOK]))
        assert (answered.text, answered.finish_reason) == ("Blue.", "stop")
        planned = server.loop.engine.chat.planned[-1].messages  # type: ignore[attr-defined]
        assert [message["role"] for message in planned] == ["user", "assistant", "tool"]


def said(text: str, call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {
        "role": "assistant",
        "content": text,
        "tool_calls": [{"id": call.id, "type": "function", "function": function}],
    }


@pytest.mark.parametrize("api", ["responses", "socket"])
def test_a_turn_continues_another(api: Api) -> None:
    async def main(url: str) -> Sequence[Call]:
        async with Client(Endpoint(url, "scripted", api), RunClock()) as client:
            first = await client.call(Ask("A"), id="1")
            rest = Ask([{"role": "user", "content": "B"}], extra={"previous_response_id": first.response_id})
            return first, await client.call(rest, id="2")

    with served(marked_engine("One.", "Two.")) as server:
        first, second = asyncio.run(main(server.url))
        assert (first.text, second.text) == ("One.", "Two.")
        assert bytes(server.loop.engine.requests[-1].prompt_ids).decode() == "<user>A<assistant>One.<user>B"  # type: ignore[attr-defined]


@pytest.mark.parametrize("api", APIS)
def test_refusals(api: Api) -> None:
    """A prompt that is too long, a value out of range, and a tier without room."""
    tiers = with_tiers(flex={"slots": 1, "queue": 0})
    with served(ScriptedEngine(paced=True, tiers=tiers)) as server:

        async def main() -> tuple[Call, Call]:
            endpoint = Endpoint(server.url, "scripted", api, "flex")
            async with Client(endpoint, RunClock()) as one, Client(endpoint, RunClock()) as other:
                waiting = asyncio.create_task(one.call(Ask("Hi", max_tokens=20), id="1"))
                await asyncio.to_thread(server.wait_for, lambda stats: stats["running"] == 1)
                refused = await other.call(Ask("Hi", max_tokens=20), id="2")
                server.loop.engine.allow(None)  # type: ignore[attr-defined]
                return await waiting, refused

        served_one, refused = asyncio.run(main())
        assert (served_one.outcome, served_one.text, served_one.tier_served) == (Outcome.OK, text_of(20), "flex")
        assert (refused.outcome, refused.status) == (Outcome.REFUSED, 429)
        assert refused.error
        wrong, long, fine = calls_of(
            server, api, Ask("Hi", temperature=7.5), Ask("x" * 100_000), Ask("Hi", max_tokens=3)
        )  # fmt: skip
        assert (wrong.outcome, wrong.status) == (Outcome.ERROR, 400)
        assert "temperature" in (wrong.error or "")
        assert (long.outcome, long.status) == (Outcome.ERROR, 400)
        assert fine.text == text_of(3)


@pytest.mark.parametrize("api", APIS)
def test_a_failure_of_the_engine_in_the_middle(api: Api) -> None:
    engine = ScriptedEngine(paced=True)
    with served(engine) as server:

        async def main() -> Call:
            async with Client(Endpoint(server.url, "scripted", api), RunClock()) as client:
                asked = asyncio.create_task(client.call(Ask("Hi", max_tokens=20), id="1"))
                await asyncio.to_thread(server.wait_for, lambda stats: stats["running"] == 1)
                engine.fail_next = PromptTooLong("the engine fails here")
                engine.allow(None)
                return await asked

        call = asyncio.run(main())
        assert call.outcome is Outcome.ERROR
        assert call.error
