"""Between two turns on one connection: what the next one is sure to begin with is computed before it comes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.scripted_engine import ScriptedEngine, with_tiers
from support.served import Served, served
from support.socket_client import RawSocket, Talk, connections, frame_of, talk, whole
from support.tiny import write_tiny_model
from ultrafast.engine.engine import Engine
from ultrafast.engine.tiers import FLEX
from ultrafast.serving.ahead import compute_shared_start
from ultrafast.serving.wire import socket

TOOL = {
    "type": "function",
    "name": "look",
    "parameters": {
        "type": "object",
        "properties": {"where": {"enum": ["up"]}},
        "required": ["where"],
        "additionalProperties": False,
    },
    "strict": True,
}
FIELDS: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_output_tokens": 64}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(Engine(write_tiny_model(tmp_path / "tiny.gguf", context=4096), threads=1)) as server:
        yield server


def look_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "AHEAD_AFTER_S", 0.0)


def looked_ahead(server: Served) -> int:
    """Requests of that kind that have come to their end."""
    return sum(lane.served for lane in server.loop.snapshot().lanes if lane.tier == FLEX)


def cached_in_second_turn(client: Talk, server: Served, *, ahead: bool) -> tuple[int, dict[str, Any]]:
    salt = f"ahead {ahead}"
    first = client.turn("Look!", tools=[TOOL], tool_choice="required", cache_salt=salt, **FIELDS)
    (call,) = first["output"]
    assert call["arguments"] == '{"where": "up"}'
    if ahead:
        server.wait_for(lambda _: looked_ahead(server) == 1)
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "a cloud"}
    second = client.turn(
        [result], previous_response_id=first["id"], tools=[TOOL], tool_choice="required", cache_salt=salt, **FIELDS
    )
    return second["usage"]["input_tokens_details"]["cached_tokens"], second


def test_the_head_of_a_tools_result_is_computed_while_the_tool_runs(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    with talk(server.port) as client:
        without, plain = cached_in_second_turn(client, server, ahead=False)
    look_ahead(monkeypatch)
    with talk(server.port) as client:
        with_it, ahead = cached_in_second_turn(client, server, ahead=True)
    assert with_it > without
    assert with_it < ahead["usage"]["input_tokens"]
    assert ahead["output"][0]["arguments"] == plain["output"][0]["arguments"]


def test_the_head_of_the_users_next_words_too(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    look_ahead(monkeypatch)
    with talk(server.port) as client:
        first = client.turn("Hi", **FIELDS)
        server.wait_for(lambda _: looked_ahead(server) == 1)
        second = client.turn("And?", previous_response_id=first["id"], **FIELDS)
    known = first["usage"]["input_tokens"] + first["usage"]["output_tokens"]
    assert second["usage"]["input_tokens_details"]["cached_tokens"] > known


def test_it_gives_way_to_the_turn_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    look_ahead(monkeypatch)
    engine = ScriptedEngine("One.", paced=True)
    with served(engine) as server, talk(server.port) as client:
        engine.allow(4)
        first = client.turn("A")
        server.wait_for(lambda stats: stats["running"] == 1)
        ahead = engine.requests[-1]
        assert (bytes(ahead.prompt_ids).decode(), ahead.tier) == ("<user>A<assistant>One.<user>", FLEX)
        client.create("B", previous_response_id=first["id"])
        server.wait_for(lambda _: len(engine.requests) == 3)
        server.wait_for(lambda stats: stats["running"] + stats["waiting"] == 1)
        engine.allow(4)
        assert whole(client.events(), None)["status"] == "completed"


@pytest.mark.parametrize("vanishes", [False, True])
def test_it_ends_with_the_connection(vanishes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    look_ahead(monkeypatch)
    engine = ScriptedEngine("One.", paced=True)
    with served(engine) as server:
        engine.allow(4)
        if vanishes:
            with RawSocket(server.port) as client:
                client.send(frame_of())
                server.wait_for(lambda stats: len(engine.requests) == 2 and stats["running"] == 1)
        else:
            with talk(server.port) as polite:
                polite.turn("A")
                server.wait_for(lambda stats: len(engine.requests) == 2 and stats["running"] == 1)
        server.wait_for(lambda stats: stats["running"] + stats["waiting"] == 0)
        server.wait_for(lambda _: not connections(server))


def test_without_room_it_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    look_ahead(monkeypatch)
    tried = []

    async def look(*arguments: Any, **named: Any) -> Any:
        stream = await compute_shared_start(*arguments, **named)
        tried.append(stream)
        return stream

    monkeypatch.setattr(socket, "compute_shared_start", look)
    engine = ScriptedEngine("One.", tiers=with_tiers(flex={"slots": 0}))
    with served(engine) as server, talk(server.port) as client:
        client.turn("A")
        server.wait_for(lambda _: tried == [None])
    assert len(engine.requests) == 1


def test_what_goes_wrong_in_it_disturbs_nobody(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    look_ahead(monkeypatch)

    async def fail(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(socket, "compute_shared_start", fail)
    with served(ScriptedEngine("One.")) as server, talk(server.port) as client:
        first = client.turn("A")
        server.wait_for(lambda _: "looking ahead" in caplog.text)
        assert client.turn("B", previous_response_id=first["id"])["status"] == "completed"
