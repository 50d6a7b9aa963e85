"""The HTTP application: routes, life, and the mapping of errors. Start here to read ``serving``.

One streamed request: `edge` (host, request id) → `wire.chat`, `responses` or `anthropic` (parse, or 400 naming the
field) → `generate.run` (template, token ids, submit) → `engine.loop` → `wire.sse` (frames until the end or the client's leave).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ultrafast.engine.loop import EngineLoop
from ultrafast.engine.tiers import TIERS
from ultrafast.errors import RequestError
from ultrafast.serving.edge import Edge
from ultrafast.serving.errors import json_response, on_http_exception, on_request_error
from ultrafast.serving.generate import loop_of
from ultrafast.serving.isolation import Isolation
from ultrafast.serving.lanes import list_tiers
from ultrafast.serving.wire.anthropic import count_message_tokens, create_message
from ultrafast.serving.wire.chat import create_chat_completion
from ultrafast.serving.wire.responses import create_response


def create_app(
    loops: Sequence[EngineLoop], *, loopback_only: bool = True, isolation: Isolation = Isolation.NONE
) -> Starlette:
    """The application around loops that have not been started: the app's lifespan starts and closes them.

    Args:
        loops: one a model.
        loopback_only: see `Edge`; True when bound to a loopback address.
        isolation: what separates requests in the caches.
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

    app = Starlette(
        routes=[
            Route("/", hello),
            Route("/api/hello", hello),
            Route("/health", health),
            Route("/v1/models", list_models),
            Route("/v1/models/{model:path}", get_model),
            Route("/v1/tiers", list_tiers),
            Route("/v1/chat/completions", create_chat_completion, methods=["POST"]),
            Route("/v1/responses", create_response, methods=["POST"]),
            Route("/v1/messages", create_message, methods=["POST"]),
            Route("/v1/messages/count_tokens", count_message_tokens, methods=["POST"]),
        ],
        middleware=[Middleware(Edge, loopback_only=loopback_only)],
        exception_handlers={RequestError: on_request_error, HTTPException: on_http_exception},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.loops = {loop.engine.model_id: loop for loop in loops}
    app.state.isolation = isolation
    app.state.started = int(time.time())
    return app


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


async def list_models(request: Request) -> Response:
    """All models served here."""
    models = [_model(request, loop) for loop in request.app.state.loops.values()]
    body = {
        "object": "list",
        "data": models,
        "has_more": False,
        "first_id": models[0]["id"],
        "last_id": models[-1]["id"],
    }
    return json_response(body)


async def get_model(request: Request) -> Response:
    """One model, or 404."""
    return json_response(_model(request, loop_of(request.app.state.loops, request.path_params["model"])))


def _model(request: Request, loop: EngineLoop) -> dict[str, Any]:
    """One body for every client: OpenAI's fields and Anthropic's (``type``, ``display_name``, ``created_at``)."""
    engine = loop.engine
    started: int = request.app.state.started
    return {
        "id": engine.model_id,
        "object": "model",
        "type": "model",
        "created": started,
        "created_at": datetime.fromtimestamp(started, UTC).isoformat().replace("+00:00", "Z"),
        "owned_by": "ultrafast",
        "display_name": engine.shape.name or engine.model_id,
        "context_window": engine.max_context,
        "service_tiers": list(TIERS),
    }
