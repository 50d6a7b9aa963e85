"""Stored responses: continued, retrieved, listed, deleted, cancelled, and nobody else's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from support.asgi import Answer, Client, client_of
from support.marked_chat import marked_engine
from support.response_events import check_events
from support.scripted_engine import ScriptedEngine
from ultrafast.serving.isolation import Isolation
from ultrafast.serving.store import ResponseStore

PATH = "/v1/responses"


def ask(input: Any = "Hi", **fields: Any) -> dict[str, Any]:
    return {"model": "scripted", "input": input, **fields}


def run(test: Callable[[Client], Awaitable[None]], engine: Any = None, **options: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(30), client_of(engine or marked_engine("Yes."), **options) as client:
            await test(client)

    asyncio.run(main())


async def made(client: Client, body: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    answer = await client.post(PATH, body, **kwargs)
    assert answer.status == 200, answer.body
    response = answer.json() if not body.get("stream") else check_events([event for _, event in answer.events()])
    assert isinstance(response, dict)
    return response


def contents(engine: Any, plan: int = -1) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in engine.chat.planned[plan].messages]


def refused(answer: Answer, status: int, code: str, param: str | None) -> None:
    assert (answer.status, answer.error["code"], answer.error["param"]) == (status, code, param)


# ---- conversations ----------------------------------------------------------------------------------------------


def test_a_conversation_goes_on_from_what_was_stored() -> None:
    engine = marked_engine("<think>Hm.</think>One.", "Two.", "Three.")

    async def test(client: Client) -> None:
        first = await made(client, ask("a", instructions="Be brief."))
        second = await made(client, ask("b", previous_response_id=first["id"], stream=True))
        assert second["previous_response_id"] == first["id"]
        assert contents(engine) == [("user", "a"), ("assistant", "One."), ("user", "b")], (
            "instructions are not inherited"
        )
        assert engine.chat.planned[-1].messages[1]["reasoning_content"] == "Hm."
        third = await made(client, ask([], previous_response_id=second["id"], instructions="Be long."))
        assert contents(engine)[-1] == ("assistant", "Two.")
        assert contents(engine)[0] == ("system", "Be long.")
        await made(client, ask("c", previous_response_id=first["id"]))  # a fork
        assert contents(engine) == [("user", "a"), ("assistant", "One."), ("user", "c")]
        assert third["output"][0]["content"][0]["text"] == "Three."

    run(test, engine)


def test_calls_are_answered_by_the_next_turn() -> None:
    engine = marked_engine('<call f>{"a": 1}</call>', "Done.")
    tool = {"type": "function", "name": "f", "parameters": {"type": "object"}}

    async def test(client: Client) -> None:
        first = await made(client, ask(tools=[tool]))
        (call,) = first["output"]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "fine"}
        await made(client, ask([output], previous_response_id=first["id"], tools=[tool]))
        assert engine.chat.planned[-1].messages[1:] == [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {"id": call["call_id"], "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
                ],
            },
            {"role": "tool", "tool_call_id": call["call_id"], "content": "fine"},
        ]
        wrong = await client.post(PATH, ask([{**output, "call_id": "x"}], previous_response_id=first["id"]))
        refused(wrong, 400, "invalid_value", "input[0].call_id")

    run(test, engine)


def test_references_find_items_of_earlier_turns() -> None:
    engine = marked_engine("One.", "Two.")

    async def test(client: Client) -> None:
        first = await made(client, ask("a"))
        reference = {"type": "item_reference", "id": first["output"][0]["id"]}
        await made(client, ask([reference], previous_response_id=first["id"]))
        assert [content for _, content in contents(engine)] == ["a", "One.", "One."]
        refused(await client.post(PATH, ask([reference])), 400, "invalid_value", "input[0].id")

    run(test, engine)


def test_an_empty_warm_up_can_be_continued_from() -> None:
    engine = marked_engine("x", "Yes.")

    async def test(client: Client) -> None:
        developer = [{"type": "message", "role": "developer", "content": "Rules."}]
        warm = await made(client, {"model": "scripted", "input": developer, "generate": False, "stream": True})
        await made(client, ask("a", previous_response_id=warm["id"]))
        assert contents(engine) == [("system", "Rules."), ("user", "a")]
        nothing = await made(client, {"model": "scripted", "generate": False})
        await made(client, ask("b", previous_response_id=nothing["id"]))
        assert contents(engine) == [("user", "b")]

    run(test, engine)


@pytest.mark.parametrize("fields", [{"store": False}, {"store": False, "stream": True}])
def test_what_is_not_stored_cannot_be_found(fields: dict[str, Any]) -> None:
    async def test(client: Client) -> None:
        response = await made(client, ask(**fields))
        assert response["store"] is False
        await cannot_be_found(client, response["id"])

    run(test)


async def cannot_be_found(client: Client, response_id: str, **kwargs: Any) -> None:
    where = f"{PATH}/{response_id}"
    refused(await client.get(where, **kwargs), 404, "response_not_found", "response_id")
    refused(await client.get(f"{where}/input_items", **kwargs), 404, "response_not_found", "response_id")
    refused(await client.request("DELETE", where, **kwargs), 404, "response_not_found", "response_id")
    refused(await client.post(f"{where}/cancel", {}, **kwargs), 404, "response_not_found", "response_id")
    on = await client.post(PATH, ask(previous_response_id=response_id), **kwargs)
    refused(on, 400, "previous_response_not_found", "previous_response_id")


def test_a_server_without_a_store_says_so() -> None:
    async def test(client: Client) -> None:
        response = await made(client, ask(store=True))
        assert response["store"] is False
        await cannot_be_found(client, response["id"])

    run(test, store=None)


def test_keys_separate_what_is_stored_when_they_separate_caches() -> None:
    mine, theirs = {"authorization": "Bearer mine"}, {"x-api-key": "theirs"}

    async def separate(client: Client) -> None:
        response = await made(client, ask(), headers=mine)
        await cannot_be_found(client, response["id"], headers=theirs)
        await cannot_be_found(client, response["id"])
        assert (await client.get(f"{PATH}/{response['id']}", headers=mine)).json() == response

    async def shared(client: Client) -> None:
        response = await made(client, ask(), headers=mine)
        assert (await client.get(f"{PATH}/{response['id']}", headers=theirs)).json() == response

    run(separate, isolation=Isolation.KEY)
    run(shared, isolation=Isolation.TIER)


def test_stored_responses_outlive_the_server(tmp_path: Path) -> None:
    ids: list[str] = []

    async def before(client: Client) -> None:
        ids.append((await made(client, ask("a", metadata={"k": "v"})))["id"])

    async def after(client: Client) -> None:
        stored = (await client.get(f"{PATH}/{ids[0]}")).json()
        assert (stored["id"], stored["metadata"]) == (ids[0], {"k": "v"})
        await made(client, ask("b", previous_response_id=ids[0]))
        assert contents(engine) == [("user", "a"), ("assistant", "Yes."), ("user", "b")]

    engine = marked_engine("Yes.")
    run(before, store=ResponseStore(tmp_path / "r.sqlite3"))
    run(after, engine, store=ResponseStore(tmp_path / "r.sqlite3"))


def test_a_response_that_cannot_be_stored_is_given_all_the_same_and_says_so() -> None:
    store = ResponseStore()

    async def test(client: Client) -> None:
        store.close()
        for stream in (False, True):
            response = await made(client, ask(stream=stream))
            assert (response["status"], response["store"]) == ("completed", False)

    run(test, store=store)


# ---- endpoints --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{}, {"stream": True}, {"max_output_tokens": 2}])
def test_what_is_retrieved_is_what_was_answered(fields: dict[str, Any]) -> None:
    async def test(client: Client) -> None:
        response = await made(client, ask(**fields))
        assert (await client.get(f"{PATH}/{response['id']}")).json() == response
        assert (await client.get(f"{PATH}/{response['id']}?include=x&stream=false")).json() == response
        replay = await client.get(f"{PATH}/{response['id']}?stream=true")
        refused(replay, 400, "unsupported_parameter", "stream")

    run(test)


def test_a_failed_response_is_stored() -> None:
    engine = marked_engine("Hello", paced=True)

    async def test(client: Client) -> None:
        async def fail(chunk: bytes) -> None:
            if b"output_text.delta" in chunk:
                engine.fail_next = ValueError("no")
                engine.allow(None)

        engine.allow(1)
        answer = await client.post(PATH, ask(stream=True), on_body=fail)
        failed = check_events([event for _, event in answer.events()])
        assert failed["status"] == "failed"
        assert (await client.get(f"{PATH}/{failed['id']}")).json() == failed

    run(test, engine)


def test_deleting_forgets_a_response_and_not_what_continues_from_it() -> None:
    engine = marked_engine("One.", "Two.", "Three.")

    async def test(client: Client) -> None:
        first = await made(client, ask("a"))
        second = await made(client, ask("b", previous_response_id=first["id"]))
        deleted = await client.request("DELETE", f"{PATH}/{first['id']}")
        assert deleted.json() == {"id": first["id"], "object": "response", "deleted": True}
        await cannot_be_found(client, first["id"])
        await made(client, ask("c", previous_response_id=second["id"]))
        assert [content for _, content in contents(engine)] == ["a", "One.", "b", "Two.", "c"]

    run(test, engine)


def test_input_items_come_in_pages() -> None:
    async def test(client: Client) -> None:
        first = await made(client, ask([{"role": "user", "content": "a"}, {"role": "developer", "content": "b"}]))
        sent = [{"role": "user", "content": f"{index}", "id": f"mine_{index}"} for index in range(25)]
        response = await made(client, ask(sent, previous_response_id=first["id"]))
        where = f"{PATH}/{response['id']}/input_items"

        async def listed(query: str) -> tuple[list[str], bool]:
            page = (await client.get(f"{where}?{query}")).json()
            assert page["object"] == "list"
            assert (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][-1]["id"])
            assert all(item["id"] and isinstance(item["content"], list) for item in page["data"])
            return [item["content"][0]["text"] for item in page["data"]], page["has_more"]

        everything = ["a", "b", "Yes.", *(f"{index}" for index in range(25))]
        assert await listed("order=asc&limit=100") == (everything, False)
        assert await listed("") == (everything[:-21:-1], True)
        assert await listed("limit=3&after=mine_5") == (["4", "3", "2"], True)
        assert await listed("limit=3&after=mine_21&order=asc") == (["22", "23", "24"], False)
        end = (await client.get(f"{where}?after=mine_24&order=asc")).json()
        assert (end["data"], end["first_id"], end["last_id"], end["has_more"]) == ([], None, None, False)
        for name, value in [("limit", "0"), ("limit", "101"), ("limit", "x"), ("order", "up"), ("after", "nowhere")]:
            refused(await client.get(f"{where}?{name}={value}"), 400, "invalid_value", name)

    run(test)


@pytest.mark.parametrize("fields", [{}, {"store": False}])
@pytest.mark.parametrize("stream", [False, True])
def test_a_response_in_progress_can_be_cancelled_from_another_connection(fields: Any, stream: bool) -> None:
    engine = marked_engine("Hello there", paced=True)

    async def test(client: Client) -> None:
        begun = asyncio.Event()

        async def watch(chunk: bytes) -> None:
            if b"output_text.delta" in chunk:
                begun.set()

        engine.allow(4)
        request = asyncio.create_task(client.post(PATH, ask(stream=stream, **fields), on_body=watch))
        while engine.num_steps < 4 or (stream and not begun.is_set()):
            await asyncio.sleep(0)
        (response_id,) = client.app.state.responses_in_progress
        retrieved = await client.get(f"{PATH}/{response_id}")
        assert retrieved.status == (404 if fields else 200)
        if not fields:
            assert retrieved.json()["status"] == "in_progress"
            refused(await client.request("DELETE", f"{PATH}/{response_id}"), 400, "response_in_progress", None)
        cancelled = await client.post(f"{PATH}/{response_id}/cancel", {})
        assert (cancelled.status, cancelled.json()["status"]) == (200, "cancelled")
        answer = await request
        while engine.stats()["running"]:
            await asyncio.sleep(0)
        last = check_events([event for _, event in answer.events()]) if stream else answer.json()
        assert (answer.status, last["id"], last["status"]) == (200, response_id, "cancelled")
        assert last["usage"] is None
        assert [item["status"] for item in last["output"]] == (["incomplete"] if stream else [])
        if not fields:
            assert (await client.get(f"{PATH}/{response_id}")).json() == last
            refused(await client.post(f"{PATH}/{response_id}/cancel", {}), 400, "response_not_active", None)

    run(test, engine)


def test_nobody_else_sees_or_cancels_what_is_in_progress() -> None:
    engine = marked_engine("Hello there", paced=True)
    mine = {"x-api-key": "mine"}

    async def test(client: Client) -> None:
        request = asyncio.create_task(client.post(PATH, ask(), headers=mine))
        while not client.app.state.responses_in_progress:
            await asyncio.sleep(0)
        (response_id,) = client.app.state.responses_in_progress
        await cannot_be_found(client, response_id, headers={"x-api-key": "theirs"})
        assert (await client.get(f"{PATH}/{response_id}", headers=mine)).status == 200
        engine.allow(None)
        assert (await request).json()["status"] == "completed"

    run(test, engine, isolation=Isolation.KEY)


def test_a_response_that_waits_for_its_slot_can_be_cancelled() -> None:
    engine = ScriptedEngine("Hello", num_slots=1, paced=True)

    async def test(client: Client) -> None:
        first = asyncio.create_task(client.post(PATH, ask()))
        while not engine.stats()["running"] and not engine.requests:
            await asyncio.sleep(0)
        waiting = asyncio.create_task(client.post(PATH, ask(stream=True)))
        while len(client.app.state.responses_in_progress) < 2:
            await asyncio.sleep(0)
        second_id = list(client.app.state.responses_in_progress)[1]
        assert (await client.post(f"{PATH}/{second_id}/cancel", {})).json()["status"] == "cancelled"
        last = check_events([event for _, event in (await waiting).events()])
        assert (last["status"], last["output"]) == ("cancelled", [])
        engine.allow(None)
        assert (await first).json()["status"] == "completed"

    run(test, engine)


def test_a_client_that_leaves_stores_nothing_and_frees_everything() -> None:
    engine = marked_engine("Hello", paced=True)

    async def test(client: Client) -> None:
        gone = asyncio.Event()
        engine.allow(2)
        request = asyncio.create_task(client.post(PATH, ask(stream=True), hang_up=gone))
        while engine.num_steps < 2:
            await asyncio.sleep(0)
        (response_id,) = client.app.state.responses_in_progress
        gone.set()
        await request
        del request
        while engine.stats()["running"] or client.app.state.responses_in_progress:
            await asyncio.sleep(0)
        assert (await client.get(f"{PATH}/{response_id}")).status == 404

    run(test, engine)


def test_tokens_of_an_input_can_be_counted() -> None:
    async def test(client: Client) -> None:
        first = await made(client, ask("a"))
        body = ask("b", previous_response_id=first["id"], instructions="Be brief.")
        second = await made(client, body)
        counted = await client.post(f"{PATH}/input_tokens", body)
        expected = {"object": "response.input_tokens", "input_tokens": second["usage"]["input_tokens"]}
        assert counted.json() == expected
        refused(await client.post(f"{PATH}/input_tokens", ask([])), 400, "invalid_value", "input")
        refused(await client.post(f"{PATH}/compact", ask()), 404, "unsupported_endpoint", None)

    run(test)
