"""``POST /v1/responses``: from a request to a response in the making, and the endpoint, plain or streamed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from ultrafast.engine.loop import EngineLoop
from ultrafast.engine.stream import StreamCancelled
from ultrafast.errors import PromptTooLong, RequestError
from ultrafast.serving.errors import json_response
from ultrafast.serving.generate import LARGE_BODY, Running, loop_of, run
from ultrafast.serving.isolation import owner_of
from ultrafast.serving.store import ResponseStore
from ultrafast.serving.wire import sse
from ultrafast.serving.wire.body import decode, read_body
from ultrafast.serving.wire.response_events import Event
from ultrafast.serving.wire.response_items import Item
from ultrafast.serving.wire.response_run import ResponseRun, Turn
from ultrafast.serving.wire.responses_request import DECODER, Asked, ResponsesRequest, read
from ultrafast.serving.wire.truncation import shortened

__all__ = [
    "ResponseRun",
    "ResponsesRequest",
    "Turn",
    "begin_response",
    "create_response",
    "previous_not_found",
    "stored_turn",
]


_MANY_ITEMS = 500  # some milliseconds of Python

T = TypeVar("T")


async def create_response(request: Request) -> Response:
    """The endpoint."""
    body = await read_body(request)
    ask = decode(DECODER, body)
    making = await begin_response(
        request,
        ask,
        request_id=request.state.request_id,
        body_size=len(body),
        whole=not ask.stream,
        previous=await stored_turn(request, ask.previous_response_id),
    )
    if ask.stream:
        return sse.EventStream(_frames(making), running=making, on_error=lambda error: _frame(making.failed(error)))
    try:
        async with sse.cancelled_with_client(request.receive, making.streams):
            async for _ in making.events():
                pass
    except StreamCancelled:
        return Response(status_code=499)  # nobody reads it
    return json_response(making.response, headers=making.headers)


async def stored_turn(connection: HTTPConnection, response_id: str | None) -> Turn | None:
    """The turn that ``previous_response_id`` names, from the store; None for none.

    Raises:
        RequestError: 400 ``previous_response_not_found``.
    """
    if response_id is None:
        return None
    store: ResponseStore | None = connection.app.state.store
    conversation = None
    if store is not None:
        conversation = await asyncio.to_thread(store.conversation, response_id, owner_of(connection))
    if conversation is None:
        raise previous_not_found(response_id)
    return Turn(response_id, [*conversation.input, *conversation.output])


def previous_not_found(response_id: str) -> RequestError:
    """The 400 that makes clients send the whole conversation."""
    return RequestError(
        f"Previous response with id {response_id[:128]!r} not found.",
        code="previous_response_not_found",
        param="previous_response_id",
    )


async def begin_response(
    connection: HTTPConnection,
    ask: ResponsesRequest,
    *,
    request_id: str,
    body_size: int,
    whole: bool,
    previous: Turn | None,
) -> ResponseRun:
    """Check a request and submit it to the engine.

    Args:
        connection: that brought it.
        ask: the request.
        request_id: what whoever watches the engine knows it by.
        body_size: bytes that it came in.
        whole: its events are wanted at the end only.
        previous: what its ``previous_response_id`` names.

    Raises:
        RequestError: with the field at fault, or the refusal of the engine.
    """
    loop = loop_of(connection.app.state.loops, ask.model)
    history = previous.items if previous else ()
    is_long = len(history) + (len(ask.input) if isinstance(ask.input, list) else 1) > _MANY_ITEMS
    asked = await _apart(is_long, read, ask, history)
    size = body_size if previous is None else LARGE_BODY  # what it continues may be as long as a prompt can be
    try:
        running: Running | None = await _submit(
            connection, loop, asked, request_id=request_id, body_size=size, whole=whole
        )
    except RequestError:
        if not ask.warms_up:
            raise
        running = None  # the request that it prepares will tell, if it has the same trouble
    making = ResponseRun(connection, loop, asked, running, whole=whole)
    connection.app.state.responses_in_progress[making.id] = making
    return making


async def _submit(
    connection: HTTPConnection, loop: EngineLoop, asked: Asked, *, request_id: str, body_size: int, whole: bool
) -> Running:
    """Have the engine take up a request, as strictly and as much of it as it can."""

    async def attempt(asked: Asked, items: Sequence[Item]) -> Running:
        job = await _apart(len(items) > _MANY_ITEMS, asked.job, items)
        return await run(connection, loop, job, request_id=request_id, body_size=body_size, whole=whole)

    async def strict_if_possible(items: Sequence[Item]) -> Running:
        try:
            return await attempt(asked, items)
        except RequestError as error:
            if error.param != "tools" or not asked.offered.implied:
                raise
        return await attempt(asked.relaxed(), items)  # their schemas cannot be guaranteed, and nobody asked for that

    try:
        return await strict_if_possible(asked.items)
    except PromptTooLong:
        if asked.ask.truncation != "auto":
            raise
        return await strict_if_possible(await asyncio.to_thread(shortened, loop, asked))


async def _apart(is_long: bool, function: Callable[..., T], *arguments: Any) -> T:
    """Call a function; on a thread if it would hold up other requests."""
    return await asyncio.to_thread(function, *arguments) if is_long else function(*arguments)


async def _frames(making: ResponseRun) -> AsyncIterator[bytes]:
    async for events in making.events():
        yield _frame(events)


def _frame(events: list[Event]) -> bytes:
    return b"".join(sse.frame(event, event=event["type"]) for event in events)
