"""What else ``/v1/responses`` offers: stored responses and their input, cancelling, and counting tokens."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, convert
from starlette.requests import Request
from starlette.responses import Response

from ultrafast.errors import RequestError
from ultrafast.serving.errors import json_response
from ultrafast.serving.generate import count_tokens, loop_of
from ultrafast.serving.isolation import owner_of
from ultrafast.serving.store import ResponseStore
from ultrafast.serving.wire.body import decode, read_body, refuse, unsupported
from ultrafast.serving.wire.responses import ResponseRun, stored_turn
from ultrafast.serving.wire.responses_request import DECODER, read


async def get_response(request: Request) -> Response:
    """A response that is stored, or will be."""
    if request.query_params.get("stream", "false").lower() not in ("false", "0", ""):
        raise unsupported("stream", "Streaming a response again")
    making = _in_progress(request)
    if making is not None and making.stored:
        return json_response(making.response)
    store = _store(request)
    response = await asyncio.to_thread(store.response, _id(request), owner_of(request))
    if response is None:
        raise _not_found(request)
    return json_response(response)


async def delete_response(request: Request) -> Response:
    """Forget a stored response."""
    if _in_progress(request) is not None:
        raise RequestError(
            "This response is in progress; cancel it, or wait until it has ended.", code="response_in_progress"
        )
    if not await asyncio.to_thread(_store(request).delete, _id(request), owner_of(request)):
        raise _not_found(request)
    return json_response({"id": _id(request), "object": "response", "deleted": True})


async def cancel_response(request: Request) -> Response:
    """End a response that is in progress on another connection; its slot is free before the next burst."""
    making = _in_progress(request)
    if making is not None and making.cancel():
        return json_response(making.response)
    if making is None:
        stored = await asyncio.to_thread(_store(request).response, _id(request), owner_of(request))
        if stored is None:
            raise _not_found(request)
    raise RequestError("This response has ended; only one in progress can be cancelled.", code="response_not_active")


async def list_input_items(request: Request) -> Response:
    """The conversation that a stored response answers, a page at a time."""
    page = _page(request)
    conversation = await asyncio.to_thread(_store(request).conversation, _id(request), owner_of(request))
    if conversation is None:
        raise _not_found(request)
    items = conversation.input if page.order == "asc" else conversation.input[::-1]
    if page.after is not None:
        ids = [item["id"] for item in items]
        if page.after not in ids:
            raise refuse("after", f"No input item of this response has id {page.after[:64]!r}.")
        items = items[ids.index(page.after) + 1 :]
    data = items[: page.limit]
    body = {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": len(items) > len(data),
    }
    return json_response(body)


async def count_input_tokens(request: Request) -> Response:
    """How many tokens the prompt of a request would have."""
    ask = decode(DECODER, await read_body(request))
    loop = loop_of(request.app.state.loops, ask.model)
    previous = await stored_turn(request, ask.previous_response_id)
    asked = read(ask, previous.items if previous else ())
    count = await asyncio.to_thread(count_tokens, loop, asked.job(asked.items))
    return json_response({"object": "response.input_tokens", "input_tokens": count})


async def refuse_compaction(request: Request) -> Response:
    """Conversations are not compacted here; truncation can drop their oldest items."""
    raise RequestError(
        "This server does not compact conversations; send truncation 'auto' to drop the oldest items instead.",
        status=404,
        code="unsupported_endpoint",
    )


class _Page(Struct):
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"
    after: str | None = None


def _page(request: Request) -> _Page:
    """The query of a list; repeated and unknown names are ignored."""
    query: dict[str, Any] = {
        name: request.query_params[name] for name in _Page.__struct_fields__ if name in request.query_params
    }
    for name, value in query.items():
        try:
            convert({name: value}, _Page, strict=False)
        except ValueError as error:
            problem = str(error).split(" - at ")[0]
            raise refuse(name, f"Invalid value for '{name}': {problem[0].lower()}{problem[1:]}.") from None
    return convert(query, _Page, strict=False)


def _id(request: Request) -> str:
    response_id: str = request.path_params["response_id"]
    return response_id


def _in_progress(request: Request) -> ResponseRun | None:
    """The response if it has not ended, and is of the same owner."""
    making: ResponseRun | None = request.app.state.responses_in_progress.get(_id(request))
    return making if making is not None and making.owner == owner_of(request) and not making.ended else None


def _store(request: Request) -> ResponseStore:
    store: ResponseStore | None = request.app.state.store
    if store is None:
        raise _not_found(request)
    return store


def _not_found(request: Request) -> RequestError:
    return RequestError(
        f"Response with id {_id(request)[:128]!r} not found.",
        status=404,
        code="response_not_found",
        param="response_id",
    )
