"""An answer in one piece, of formats whose stream has no object that it adds up to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ultrafast.engine.stream import StreamCancelled
from ultrafast.serving.errors import json_response
from ultrafast.serving.generate import Running
from ultrafast.serving.wire.sse import cancelled_with_client
from ultrafast.types import TokenDelta


async def whole_answer(request: Request, running: Running, write: Callable[[list[TokenDelta]], Any]) -> Response:
    """The JSON that ``write`` makes of the whole delta of each choice; a client that leaves before cancels them.

    Raises:
        RequestError: a choice failed, or got no slot.
    """
    try:
        async with cancelled_with_client(request.receive, running.streams):
            deltas = [await stream.result() for stream in running.streams]
    except StreamCancelled:
        return Response(status_code=499)  # nobody reads it
    return json_response(write(deltas), headers=running.headers)
