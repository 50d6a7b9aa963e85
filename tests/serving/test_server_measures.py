"""What the server says of its own work: token counts with every chunk, and the times and drafts of a whole answer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from websockets.sync.client import connect

from support.asgi import Answer, client_of
from support.scripted_engine import ScriptedEngine, with_tiers
from support.served import served
from ultrafast.serving.wire.usage import measured
from ultrafast.types import Timings, Usage

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"
COUNTED = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
FIELDS = {"queue_ms", "prefill_ms", "decode_ms", "drafted_tokens", "accepted_tokens"}


def body_of(path: str, **fields: Any) -> dict[str, Any]:
    asked = {CHAT: {"messages": [{"role": "user", "content": "Hi"}]}, COMPLETIONS: {"prompt": "Hi"}}
    return {"model": "scripted", **asked.get(path, {"input": "Hi"}), **fields}


def post(path: str, engine: ScriptedEngine | None = None, **fields: Any) -> Answer:
    async def main() -> Answer:
        async with asyncio.timeout(30), client_of(engine or ScriptedEngine()) as client:
            return await client.post(path, body_of(path, **fields))

    return asyncio.run(main())


def chunks_of(path: str, **fields: Any) -> list[dict[str, Any]]:
    answer = post(path, **fields)
    assert answer.status == 200, answer.body
    return [data for _, data in answer.events()[:-1]]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("n", [1, 3])
def test_every_chunk_says_how_many_tokens_there_are(path: str, n: int) -> None:
    chunks = chunks_of(path, n=n, max_tokens=33, **COUNTED)
    told, last = [chunk["usage"] for chunk in chunks[:-1]], chunks[-1]["usage"]
    assert last["completion_tokens"] == told[-1]["completion_tokens"] == 33 * n
    text = 0  # a token is a byte here, so that the text tells how many there are; held back: halves of characters
    for chunk, usage in zip(chunks, told, strict=False):
        text += sum(len((c.get("text") or c.get("delta", {}).get("content") or "").encode()) for c in chunk["choices"])
        assert text <= usage["completion_tokens"] <= text + 3 * n
        assert usage["prompt_tokens"] == last["prompt_tokens"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_a_prompt_counts_once_however_many_choices() -> None:
    chunks = chunks_of(COMPLETIONS, prompt=["Hi", "Ho!"], n=2, max_tokens=2, **COUNTED)
    assert {chunk["usage"]["prompt_tokens"] for chunk in chunks} == {5}


def test_opening_chunks_have_no_tokens() -> None:
    chunks = chunks_of(CHAT, n=2, max_tokens=5, **COUNTED)
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks[:2]] == [0, 0]
    assert chunks[2]["usage"]["completion_tokens"] > 0


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    ("options", "usages"),
    [
        ({}, {"absent"}),
        ({"continuous_usage_stats": True}, {"absent"}),
        ({"include_usage": True}, {"null"}),
        ({"include_usage": True, "continuous_usage_stats": False}, {"null"}),
    ],
)
def test_who_does_not_ask_for_counts_gets_none(path: str, options: dict[str, bool], usages: set[str]) -> None:
    chunks = chunks_of(path, max_tokens=5, stream=True, stream_options=options)
    told = chunks[:-1] if "include_usage" in options else chunks
    assert {"absent" if "usage" not in chunk else "null" if chunk["usage"] is None else "there" for chunk in told} == (
        usages
    )
    assert not any("ultrafast" in chunk for chunk in told)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("value", [1, "true", [], {}])
def test_other_than_a_flag_is_refused_by_its_field(path: str, value: Any) -> None:
    answer = post(path, stream=True, stream_options={"continuous_usage_stats": value})
    assert (answer.status, answer.error["param"]) == (400, "stream_options.continuous_usage_stats")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, RESPONSES])
def test_an_answer_ends_with_what_was_measured(path: str, stream: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if stream and path != RESPONSES else {}
    answer = post(path, stream=stream, **options)
    last = answer.events()[-1 if path == RESPONSES else -2][1] if stream else answer.json()
    said = last.get("response", last)["ultrafast"]
    assert set(said) == FIELDS
    assert all(said[name] >= 0 for name in FIELDS)


def test_the_terminal_event_over_a_socket_has_it_too() -> None:
    with served(ScriptedEngine()) as server, connect(f"ws://127.0.0.1:{server.port}{RESPONSES}") as socket:
        for number in range(2):
            socket.send(json.dumps({"type": "response.create", **body_of(RESPONSES, max_output_tokens=5 + number)}))
            events = [json.loads(socket.recv())]
            while not events[-1]["type"].startswith(("response.completed", "response.incomplete")):
                events.append(json.loads(socket.recv()))
            assert events[0]["response"]["ultrafast"] is None
            assert set(events[-1]["response"]["ultrafast"]) == FIELDS


def test_drafts_are_counted_over_all_choices() -> None:
    prediction = {"type": "content", "content": "Spend"}  # of the script's "Speed" four bytes are right
    said = post(CHAT, n=2, max_tokens=5, prediction=prediction).json()["ultrafast"]
    assert (said["drafted_tokens"], said["accepted_tokens"]) == (10, 8)


def test_a_warm_up_without_work_has_nothing_to_tell() -> None:
    assert post(RESPONSES, input=[], generate=False).json()["ultrafast"] is None


def test_waiting_is_told_apart_from_working() -> None:
    """Of two requests for one slot, the engine holding still for a while: one waits for its slot, one for its token."""
    engine = ScriptedEngine(tiers=with_tiers(default={"slots": 1}), paced=True)
    pause_s = 0.02

    async def main() -> list[dict[str, Any]]:
        async with asyncio.timeout(30), client_of(engine) as client:
            asked = [asyncio.create_task(client.post(CHAT, body_of(CHAT, max_tokens=20))) for _ in range(2)]
            while (client.loop.stats()["running"], client.loop.stats()["waiting"]) != (1, 1):
                await asyncio.sleep(0.001)
            await asyncio.sleep(pause_s)
            engine.allow(None)
            return [(await answer).json()["ultrafast"] for answer in asked]

    said = asyncio.run(main())
    assert max(answer["queue_ms"] for answer in said) >= pause_s * 1e3
    assert max(answer["prefill_ms"] for answer in said) >= pause_s * 1e3


class FakeStream:
    """What `measured` reads of a stream."""

    def __init__(self, submitted: float, timings: Timings, usage: Usage) -> None:
        self.submitted = submitted
        self.timings = timings
        self.usage = usage


def test_phases_of_several_choices_add_up_to_the_whole() -> None:
    streams = [
        FakeStream(10.0, Timings(10.001, 10.2, 10.7, 11.0), Usage(3, 5, 0, 2, 1)),
        FakeStream(10.0, Timings(10.002, 10.5, 10.6, 13.0), Usage(3, 5, 0, 1, 0)),
    ]
    said = measured(streams)  # type: ignore[arg-type]
    assert said == {
        "queue_ms": pytest.approx(200),
        "prefill_ms": pytest.approx(400),
        "decode_ms": pytest.approx(2400),
        "drafted_tokens": 4,
        "accepted_tokens": 3,
    }
