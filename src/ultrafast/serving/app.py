"""The HTTP application: routes, life, and the mapping of errors. Start here to read ``serving``.

One streamed request: `edge` (host, request id) → `wire.chat`, `responses` or `anthropic` (parse, or 400 naming the
field) → `generate.run` (template, token ids, submit) → `engine.loop` → `wire.sse` (frames until the end or the
client's leave).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import Receive, Scope, Send

from ultrafast.engine.loop import EngineLoop
from ultrafast.errors import RequestError
from ultrafast.serving.catalogue import get_model, list_models
from ultrafast.serving.edge import Edge
from ultrafast.serving.errors import json_response, on_http_exception, on_request_error
from ultrafast.serving.isolation import Isolation
from ultrafast.serving.lanes import list_tiers
from ultrafast.serving.operations import get_document
from ultrafast.serving.store import ResponseStore
from ultrafast.serving.wire.anthropic import count_message_tokens, create_message
from ultrafast.serving.wire.chat import create_chat_completion
from ultrafast.serving.wire.completions import create_completion
from ultrafast.serving.wire.responses import ResponseRun, create_response
from ultrafast.serving.wire.socket import Sockets, respond_over_websocket
from ultrafast.serving.wire.stored import (
    cancel_response,
    count_input_tokens,
    delete_response,
    get_response,
    list_input_items,
    refuse_compaction,
)


def create_app(
    loops: Sequence[EngineLoop],
    *,
    loopback_only: bool = True,
    isolation: Isolation = Isolation.NONE,
    store: ResponseStore | None = None,
) -> Starlette:
    """The application around loops that have not been started: the app's lifespan starts and closes them.

    Args:
        loops: one a model.
        loopback_only: see `Edge`; True when bound to a loopback address.
        isolation: what separates requests in the caches.
        store: where responses are kept, closed with the app; None: nowhere.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        for loop in loops:
            loop.start()
        try:
            yield
        finally:
            for loop in loops:
                await loop.close()
            if store is not None:
                store.close()

    app = Starlette(
        routes=[
            Route("/", hello),
            Route("/api/hello", hello),
            Route("/health", health),
            Route("/openapi.json", get_document),
            Route("/v1/models", list_models),
            Route("/v1/models/{model:path}", get_model),
            Route("/v1/tiers", list_tiers),
            Route("/v1/chat/completions", create_chat_completion, methods=["POST"]),
            Route("/v1/completions", create_completion, methods=["POST"]),
            Route("/v1/responses", create_response, methods=["POST"]),
            WebSocketRoute("/v1/responses", respond_over_websocket),
            Route("/v1/responses/input_tokens", count_input_tokens, methods=["POST"]),
            Route("/v1/responses/compact", refuse_compaction, methods=["POST"]),
            Route("/v1/responses/{response_id}", get_response),
            Route("/v1/responses/{response_id}", delete_response, methods=["DELETE"]),
            Route("/v1/responses/{response_id}/input_items", list_input_items),
            Route("/v1/responses/{response_id}/cancel", cancel_response, methods=["POST"]),
            Route("/v1/messages", create_message, methods=["POST"]),
            Route("/v1/messages/count_tokens", count_message_tokens, methods=["POST"]),
        ],
        middleware=[Middleware(Edge, loopback_only=loopback_only)],
        exception_handlers={RequestError: on_request_error, HTTPException: on_http_exception},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.router.default = not_found
    app.state.loops = {loop.engine.model_id: loop for loop in loops}
    app.state.isolation = isolation
    app.state.store = store
    app.state.responses_in_progress = WeakValueDictionary[str, ResponseRun]()
    app.state.sockets = Sockets()
    app.state.started = int(time.time())
    return app


async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
    """Where no route leads, for HTTP and upgrades alike."""
    raise HTTPException(404)


async def hello(request: Request) -> Response:
    """Whether anybody is here: Claude Code asks so before its first message."""
    return Response()


async def health(request: Request) -> Response:
    """Whether new requests are taken (200) or not (503), and how many there are."""
    loops: Mapping[str, EngineLoop] = request.app.state.loops
    stats = [loop.stats() for loop in loops.values()]
    draining = any(loop.draining for loop in loops.values())
    body = {
        "status": "draining" if draining else "ok",
        "models": list(loops),
        "running": sum(counts["running"] for counts in stats),
        "waiting": sum(counts["waiting"] for counts in stats),
    }
    return json_response(body, status=503 if draining else 200)
