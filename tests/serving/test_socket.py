"""Turns over one WebSocket: what is answered, what is continued, and in what order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from support.marked_chat import marked_engine
from support.scripted_engine import ScriptedEngine, with_tiers
from support.served import Served, served
from support.socket_client import Talk, talk, whole

CALL = '<call look>{"at": "sky"}</call>'


@contextmanager
def talking(engine: Any = None, **options: Any) -> Iterator[tuple[Talk, Any, Served]]:
    engine = engine or marked_engine("Fine.")
    with served(engine) as server, talk(server.port, **options) as client:
        yield client, engine, server


def prompts(engine: ScriptedEngine) -> list[str]:
    return [bytes(request.prompt_ids).decode() for request in engine.requests]


def text_of(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] for part in item["content"])


def test_a_turn_has_the_events_of_a_stream() -> None:
    with talking() as (client, _, server):
        response = client.turn("How are you?", stream=True, background=False, client_metadata={"a": 1})
        assert response["status"] == "completed"
        assert text_of(response) == "Fine."
        assert response["service_tier"] == "default"
        ask = {"model": "scripted", "input": "How are you?", "stream": True, "store": False}
        answer = httpx.post(f"{server.url}/responses", json=ask, timeout=30)
        lines = [line for line in answer.text.split("\n") if line.startswith("data: ")]
        client.create("How are you?")
        streamed, sent = [json.loads(line[6:]) for line in lines], client.events()
        assert [(event["type"], set(event)) for event in sent] == [(event["type"], set(event)) for event in streamed]


def test_a_turn_continues_without_being_stored() -> None:
    with talking(marked_engine("One.", "Two.", "Three.")) as (client, engine, server):
        first = client.turn("A", instructions="Be brief.")
        second = client.turn("B", previous_response_id=first["id"])
        third = client.turn("C", previous_response_id=second["id"])
        assert third["previous_response_id"] == second["id"]
        assert prompts(engine) == [
            "<system>Be brief.<user>A",
            "<user>A<assistant>One.<user>B",
            "<user>A<assistant>One.<user>B<assistant>Two.<user>C",
        ]
        assert httpx.get(f"{server.url}/responses/{third['id']}", timeout=30).status_code == 404


def test_only_the_latest_response_of_a_lane_is_remembered() -> None:
    with talking() as (client, _, _):
        first = client.turn("A")
        second = client.turn("B", previous_response_id=first["id"])
        client.create("C", previous_response_id=first["id"])
        error = client.error()
        assert (error["status"], error["code"], error["param"]) == (
            400,
            "previous_response_not_found",
            "previous_response_id",
        )
        assert error["message"] == f"Previous response with id '{first['id']}' not found."
        assert client.turn("C", previous_response_id=second["id"])["status"] == "completed"


def test_what_is_not_remembered_is_looked_up_in_the_store_if_the_turn_is_stored() -> None:
    with talking() as (client, engine, server):
        first = client.turn("A", store=True)
        client.turn("B")
        client.create("C", previous_response_id=first["id"])
        assert client.error()["code"] == "previous_response_not_found"
        client.turn("C", previous_response_id=first["id"], store=True)
        assert prompts(engine)[-1] == "<user>A<assistant>Fine.<user>C"
        with talk(server.port) as other:
            assert other.turn("D", previous_response_id=first["id"], store=True)["status"] == "completed"
            other.create("E", previous_response_id="resp_none", store=True)
            assert other.error()["code"] == "previous_response_not_found"


def test_a_connection_remembers_for_itself_alone() -> None:
    with talking() as (client, _, server), talk(server.port) as other:
        first = client.turn("A")
        other.create("B", previous_response_id=first["id"])
        assert other.error()["code"] == "previous_response_not_found"


def test_a_tool_is_called_and_its_output_sent_alone() -> None:
    tools = [{"type": "function", "name": "look", "parameters": {"type": "object"}}]
    with talking(marked_engine(CALL, "Blue.")) as (client, engine, _):
        asked = client.turn("What colour is the sky?", tools=tools)
        (call,) = asked["output"]
        assert (call["type"], call["name"], call["arguments"]) == ("function_call", "look", '{"at": "sky"}')
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "blue"}
        last = client.turn([output], previous_response_id=asked["id"], tools=tools)
        assert text_of(last) == "Blue."
        roles = [message["role"] for message in engine.chat.planned[-1].messages]
        assert roles == ["user", "assistant", "tool"]


def test_codex_warms_up_with_nothing_and_continues_from_it() -> None:
    """As its first two frames are: ``generate: false``, then what is left of the input, continuing that response."""
    developer = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be good."}]}
    user = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}], "id": "msg_x"}
    rest = {"stream": True, "include": ["reasoning.encrypted_content"], "tool_choice": "auto", "tools": []}
    with talking() as (client, engine, _):
        client.create([developer], generate=False, **rest)
        events = client.events()
        assert [event["type"] for event in events] == [
            "response.created",
            "response.in_progress",
            "response.completed",
        ]
        warm = whole(events, None)
        assert warm["output"] == []
        assert text_of(client.turn([user], previous_response_id=warm["id"], **rest)) == "Fine."
        assert prompts(engine)[-1] == "<system>Be good.<user>Hi"


def test_an_empty_warm_up_can_be_continued_too() -> None:
    with talking() as (client, engine, _):
        first = client.turn([], generate=False)
        second = client.turn([], generate=False, previous_response_id=first["id"])
        client.turn("Hi", previous_response_id=second["id"])
        assert prompts(engine) == ["<user>Hi"]


def test_a_fork_leaves_its_parent_as_it_is() -> None:
    with talking(marked_engine("One.", "Left.", "Right.", "On.")) as (client, engine, _):
        root = client.turn("A")
        left = client.turn("B", previous_response_id=root["id"], stream_id="left")
        right = client.turn("C", previous_response_id=root["id"], stream_id="right")
        client.turn("D", previous_response_id=root["id"])
        assert prompts(engine)[1:] == [f"<user>A<assistant>One.<user>{text}" for text in "BCD"]
        client.turn("E", previous_response_id=left["id"], stream_id="right")  # its own latest is forgotten by that
        client.create("F", previous_response_id=right["id"], stream_id="left")
        assert client.error() | {"message": ""} == {
            "status": 400,
            "stream_id": "left",
            "type": "invalid_request_error",
            "code": "previous_response_not_found",
            "param": "previous_response_id",
            "message": "",
        }


def test_a_fork_is_bound_once_it_is_in_progress() -> None:
    """Its parent's lane may go on from there, though nothing is stored."""
    with talking(ScriptedEngine("Fine.", paced=True)) as (client, engine, _):
        engine.allow(5)
        root = client.turn("A")
        client.create("B", previous_response_id=root["id"], stream_id="fork")
        assert [client.receive()["type"] for _ in range(2)] == ["response.created", "response.in_progress"]
        client.create("C", previous_response_id=root["id"])
        engine.allow(None)
        ends = [client.events()[-1] for _ in range(2)]
        assert {end["type"] for end in ends} == {"response.completed"}


@pytest.mark.parametrize(
    "fault", [{"temperature": 3}, {"model": "none"}, {"input": [{"type": "message"}]}, {"tools": "all"}]
)
def test_a_failed_continuation_forgets_what_it_continued_on_its_own_lane_only(fault: dict[str, Any]) -> None:
    with talking() as (client, _, _):
        root = client.turn("A")
        client.create(**{"previous_response_id": root["id"], "stream_id": "fork", **fault})
        assert client.error()["stream_id"] == "fork"
        client.turn("B", previous_response_id=root["id"], stream_id="other")
        client.create(**{"previous_response_id": root["id"], **fault})
        assert client.error()["stream_id"] is None
        client.create("B", previous_response_id=root["id"])
        assert client.error()["code"] == "previous_response_not_found"


def test_a_failure_that_continues_nothing_forgets_nothing() -> None:
    with talking() as (client, _, _):
        root = client.turn("A")
        client.create("B", temperature=3)
        assert client.error()["param"] == "temperature"
        assert client.turn("C", previous_response_id=root["id"])["status"] == "completed"


def test_a_response_that_fails_under_way_ends_as_failed_and_forgets_its_parent() -> None:
    with talking(ScriptedEngine("Fine.")) as (client, engine, _):
        root = client.turn("A")
        engine.fail_next = RuntimeError("a fault of the test")
        client.create("B", previous_response_id=root["id"], stream_id=None)
        events = client.events()
        assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
        assert check_numbers(events)
        assert events[-1]["response"]["error"]["code"] == "server_error"
        client.create("C", previous_response_id=root["id"])
        assert client.error()["code"] == "previous_response_not_found"


def test_an_incomplete_response_can_be_continued() -> None:
    with talking() as (client, engine, _):
        cut = client.turn("A", max_output_tokens=2)
        assert (cut["status"], cut["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
        client.turn("B", previous_response_id=cut["id"])
        assert prompts(engine)[-1] == "<user>A<assistant>Fi<user>B"


def test_a_lane_answers_in_order_and_lanes_answer_at_once() -> None:
    with talking(ScriptedEngine("Fine.", paced=True)) as (client, engine, server):
        for name in ("a", "a", "b"):
            client.create(name, stream_id=name)
        events = [client.receive() for _ in range(4)]  # up to where the engine waits for the test
        assert {event["stream_id"] for event in events if event["type"] == "response.created"} == {"a", "b"}
        server.wait_for(lambda _: len(engine.requests) >= 2)
        assert len(engine.requests) == 2
        engine.allow(None)
        while sum(event["type"] == "response.completed" for event in events) < 3:
            events.append(client.receive())
        whole([event for event in events if event["stream_id"] == "b"], "b")
        of_a = [event for event in events if event["stream_id"] == "a"]
        middle = len(of_a) // 2
        whole(of_a[:middle], "a")
        whole(of_a[middle:], "a")


def test_creates_on_the_default_lane_wait_for_each_other() -> None:
    with talking(marked_engine("One.", "Two.")) as (client, engine, _):
        client.create("A")
        client.create("B")
        first, second = (whole(client.events(), None) for _ in range(2))
        assert (text_of(first), text_of(second)) == ("One.", "Two.")
        assert prompts(engine) == ["<user>A", "<user>B"]


def test_tiers_are_those_of_each_event() -> None:
    with talking() as (client, _, _):
        assert client.turn("A", service_tier="ultrafast")["service_tier"] == "ultrafast"
        assert client.turn("B", service_tier="priority")["service_tier"] == "fast"
        assert client.turn("C")["service_tier"] == "default"
        client.create("D", service_tier="warp")
        assert client.error()["param"] == "service_tier"


def test_a_full_tier_is_an_error_that_says_when_to_come_back() -> None:
    engine = ScriptedEngine("Fine.", paced=True, tiers=with_tiers(flex={"slots": 1}))
    with talking(engine) as (client, _, _):
        client.create("A", service_tier="flex")
        assert client.receive()["type"] == "response.created"
        client.create("B", service_tier="flex", stream_id="b")
        while (event := client.receive())["type"] != "error":
            pass
        assert (event["status"], event["stream_id"]) == (429, "b")
        assert event["error"]["code"] == "resource_unavailable"
        assert int(event["error"]["headers"]["retry-after"]) >= 1
        engine.allow(None)


def test_background_is_refused() -> None:
    with talking() as (client, _, _):
        client.create("A", background=True)
        error = client.error()
        assert (error["status"], error["param"]) == (400, "background")


def test_steering_is_declined_with_its_input() -> None:
    with talking(ScriptedEngine("Fine.", paced=True)) as (client, engine, _):
        client.create(model="none", stream_id="idle")
        client.error()
        client.create("default")
        client.receive()
        client.create("A", stream_id="a")
        while "stream_id" not in (event := client.receive()):
            pass
        running = event["response"]["id"]
        steer = {"type": "response.steer", "previous_response_id": running, "input": "Stop there, 停."}
        client.connection.send(json.dumps(steer))
        failed = client.receive()
        while failed["type"] != "response.steer.failed":
            failed = client.receive()
        assert failed["error"]["code"] == "steering_not_supported"
        assert failed["steer"] == {"input": "Stop there, 停.", "previous_response_id": running}
        assert failed["stream_id"] == "a"
        client.connection.send('{"type":"response.steer"}')
        while (failed := client.receive())["type"] != "response.steer.failed":
            pass
        assert failed["error"]["code"] == "steering_not_supported"
        assert "stream_id" not in failed  # as no response is named, it is of none of the lanes
        engine.allow(None)


def test_a_response_can_be_cancelled_over_http() -> None:
    with talking(ScriptedEngine("Fine.", paced=True)) as (client, engine, server):
        client.create("A")
        running = client.receive()["response"]["id"]
        engine.allow(2)
        assert httpx.post(f"{server.url}/responses/{running}/cancel", timeout=30).status_code == 200
        response = client.events()[-1]["response"]
        assert response["status"] == "cancelled"
        engine.allow(None)
        assert client.turn("B", previous_response_id=running)["status"] == "completed"


def check_numbers(events: list[dict[str, Any]]) -> bool:
    return [event["sequence_number"] for event in events] == list(range(len(events)))
