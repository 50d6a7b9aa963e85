"""The official OpenAI SDK against a real server on a loopback port."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from support.scripted_engine import ScriptedEngine, text_of
from support.served import Served, served

MESSAGES = [{"role": "system", "content": "Be quick."}, {"role": "user", "content": "Hi 🚀"}]


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served(ScriptedEngine(num_slots=8)) as server:
        yield server


@pytest.fixture
def client(server: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.url, api_key="none", max_retries=0) as client:
        yield client


def prompt_tokens(server: Served, messages=MESSAGES) -> int:
    return len(server.loop.engine.encode_prompt(messages))


def test_models(client: OpenAI) -> None:
    models = list(client.models.list())
    assert [m.id for m in models] == ["scripted"]
    assert client.models.retrieve("scripted").owned_by == "ultrafast"
    with pytest.raises(openai.NotFoundError) as refusal:
        client.models.retrieve("other")
    assert refusal.value.code == "model_not_found"
    assert refusal.value.param == "model"


def test_chat(client: OpenAI, server: Served) -> None:
    answer = client.chat.completions.create(
        model="scripted", messages=MESSAGES, max_tokens=30, service_tier="priority", logprobs=True, top_logprobs=3
    )
    choice = answer.choices[0]
    assert choice.message.content == text_of(30)
    assert choice.finish_reason == "length"
    assert answer.service_tier == "fast"
    assert answer.usage.prompt_tokens == prompt_tokens(server)
    assert answer.usage.completion_tokens == 30
    assert answer.usage.total_tokens == prompt_tokens(server) + 30
    assert bytes(b for entry in choice.logprobs.content for b in entry.bytes) == text_of().encode()[:30]
    assert all(len(entry.top_logprobs) == 3 for entry in choice.logprobs.content)
    assert answer._request_id.startswith("req_")


def test_chat_streamed(client: OpenAI, server: Served) -> None:
    with client.chat.completions.create(
        model="scripted", messages=MESSAGES, max_tokens=60, stream=True, stream_options={"include_usage": True}
    ) as stream:
        chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text_of(60)
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert all(c.usage is None for c in chunks[:-1])
    assert chunks[-1].choices == []
    assert chunks[-1].usage.prompt_tokens == prompt_tokens(server)
    assert chunks[-1].usage.completion_tokens == 60
    assert {(c.id, c.created, c.model, c.service_tier) for c in chunks} == {
        (chunks[0].id, chunks[0].created, "scripted", "default")
    }


def test_chat_stream_helper(client: OpenAI) -> None:
    with client.chat.completions.stream(model="scripted", messages=MESSAGES, n=3) as stream:
        final = stream.get_final_completion()
    assert [c.message.content for c in final.choices] == [text_of()] * 3
    assert [c.index for c in final.choices] == [0, 1, 2]


def test_responses(client: OpenAI, server: Served) -> None:
    answer = client.responses.create(
        model="scripted", instructions="Be quick.", input="Hi 🚀", metadata={"a": "b"}, service_tier="flex"
    )
    assert answer.output_text == text_of()
    assert answer.status == "completed"
    assert answer.completed_at is not None
    assert answer.service_tier == "flex"
    assert answer.metadata == {"a": "b"}
    assert answer.instructions == "Be quick."
    assert answer.usage.input_tokens == prompt_tokens(server)
    assert answer.usage.output_tokens == len(text_of().encode())


def test_responses_cut_by_the_limit(client: OpenAI) -> None:
    answer = client.responses.create(model="scripted", input="Hi", max_output_tokens=12)
    assert answer.status == "incomplete"
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert answer.output_text == text_of(12)
    assert answer.completed_at is None


@pytest.mark.parametrize(("limit", "status"), [(None, "completed"), (10, "incomplete")])
def test_responses_stream_helper(client: OpenAI, limit: int | None, status: str) -> None:
    """The helper itself raises on events out of order, changed ids and deltas without an item."""
    extra = {} if limit is None else {"max_output_tokens": limit}
    with client.responses.stream(model="scripted", input=MESSAGES, service_tier="fast", **extra) as stream:
        events = list(stream)
        final = stream.get_final_response() if limit is None else events[-1].response
    types = [event.type for event in events]
    deltas = types.count("response.output_text.delta")
    assert types == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * deltas,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        f"response.{status}",
    ]
    assert deltas >= 1
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == text_of(limit)
    assert final.output_text == text_of(limit)
    assert final.status == status
    assert final.service_tier == "fast"


def test_responses_logprobs(client: OpenAI) -> None:
    answer = client.responses.create(
        model="scripted", input="Hi", max_output_tokens=5, top_logprobs=2, include=["message.output_text.logprobs"]
    )
    logprobs = answer.output[0].content[0].logprobs
    assert [entry.token for entry in logprobs] == list(text_of(5))
    assert [len(entry.top_logprobs) for entry in logprobs] == [2] * 5


@pytest.mark.parametrize("tier", [None, "auto", "default", "scale", "flex", "priority", "fast", "ultrafast"])
def test_every_tier_of_the_table(client: OpenAI, server: Served, tier: str | None) -> None:
    concrete = {None: "default", "auto": "default", "scale": "default", "priority": "fast"}.get(tier, tier)
    answer = client.responses.create(model="scripted", input="Hi", service_tier=tier)
    assert answer.service_tier == concrete
    assert server.loop.engine.requests[-1].tier == concrete


def test_an_unknown_tier_is_refused_with_the_list(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="auto, default, scale, flex, priority, fast, ultrafast") as error:
        client.responses.create(model="scripted", input="Hi", service_tier="warp")
    assert error.value.param == "service_tier"


def test_async_client_two_hundred_at_once(server: Served) -> None:
    async def main() -> None:
        async with AsyncOpenAI(base_url=server.url, api_key="none", max_retries=0) as client:

            async def ask(index: int) -> None:
                limit = 1 + index % 40
                if index % 2:
                    answer = await client.chat.completions.create(
                        model="scripted", messages=MESSAGES, max_completion_tokens=limit
                    )
                    assert answer.choices[0].message.content == text_of(limit)
                else:
                    text = ""
                    stream = await client.responses.create(
                        model="scripted", input="Hi", max_output_tokens=limit, stream=True
                    )
                    async for event in stream:
                        if event.type == "response.output_text.delta":
                            text += event.delta
                    assert text == text_of(limit)

            async with asyncio.timeout(60):
                await asyncio.gather(*(ask(index) for index in range(200)))

    asyncio.run(main())
    assert server.loop.stats()["running"] == server.loop.stats()["waiting"] == 0


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_cut_stream_frees_its_slot_within_100_ms(api: str) -> None:
    engine = ScriptedEngine(paced=True)
    with served(engine) as server, OpenAI(base_url=server.url, api_key="none", max_retries=0) as client:
        engine.allow(5)
        if api == "chat":
            stream = client.chat.completions.create(model="scripted", messages=MESSAGES, stream=True)
        else:
            stream = client.responses.create(model="scripted", input="Hi", stream=True)
        next(iter(stream))
        server.wait_for(lambda stats: stats["running"] == 1)
        stream.response.close()
        assert server.wait_for(lambda stats: stats["running"] == 0) < 0.1
        stats = server.loop.stats()
        assert stats["free_blocks"] + stats["cached_blocks"] == stats["num_blocks"]


def test_a_client_that_gives_up_waiting_frees_its_slot() -> None:
    engine = ScriptedEngine(paced=True)
    with (
        served(engine) as server,
        OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=0.3) as client,
    ):
        with pytest.raises(openai.APITimeoutError):
            client.chat.completions.create(model="scripted", messages=MESSAGES)
        assert server.wait_for(lambda stats: stats["running"] == stats["waiting"] == 0) < 0.1
