"""The HTTP application: routes, life, and the mapping of errors. Start here to read ``serving``.

One streamed request: `edge` (host, request id) → `wire.chat` or `wire.responses` (parse, or 400 naming the field) →
`generate.run` (template, token ids, submit) → `engine.loop` → `wire.sse` (frames until the end or the client's leave).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ultrafast import __version__
from ultrafast.engine.loop import EngineLoop
from ultrafast.engine.tiers import TIERS
from ultrafast.errors import RequestError
from ultrafast.serving.edge import Edge
from ultrafast.serving.errors import json_response, on_http_exception, on_request_error
from ultrafast.serving.generate import require_model
from ultrafast.serving.wire.chat import create_chat_completion
from ultrafast.serving.wire.responses import create_response


def create_app(engine_loop: EngineLoop, *, loopback_only: bool = True) -> Starlette:
    """The application around a loop that has not been started: the app's lifespan starts and closes it.

    Args:
        engine_loop: serves every request.
        loopback_only: see `Edge`; True when bound to a loopback address.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        engine_loop.start()
        try:
            yield
        finally:
            await engine_loop.close()

    app = Starlette(
        routes=[
            Route("/health", health),
            Route("/v1/models", list_models),
            Route("/v1/models/{model:path}", get_model),
            Route("/v1/chat/completions", create_chat_completion, methods=["POST"]),
            Route("/v1/responses", create_response, methods=["POST"]),
        ],
        middleware=[Middleware(Edge, loopback_only=loopback_only)],
        exception_handlers={RequestError: on_request_error, HTTPException: on_http_exception},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.engine_loop = engine_loop
    app.state.started = int(time.time())
    # Same program and model: same tokens for the same seed. That is what clients compare fingerprints for.
    what = f"{__version__} {engine_loop.engine.model_id}".encode()
    app.state.fingerprint = f"fp_{hashlib.sha256(what).hexdigest()[:12]}"
    return app


async def health(request: Request) -> Response:
    """Whether new requests are taken (200) or not (503), and how many there are."""
    loop: EngineLoop = request.app.state.engine_loop
    stats = loop.stats()
    body = {
        "status": "draining" if loop.draining else "ok",
        "model": loop.engine.model_id,
        "running": stats["running"],
        "waiting": stats["waiting"],
    }
    return json_response(body, status=503 if loop.draining else 200)


async def list_models(request: Request) -> Response:
    """All models served here: one."""
    model = _model(request)
    body = {
        "object": "list",
        "data": [model],
        "has_more": False,
        "first_id": model["id"],
        "last_id": model["id"],
    }
    return json_response(body)


async def get_model(request: Request) -> Response:
    """One model, or 404."""
    require_model(request.app.state.engine_loop, request.path_params["model"])
    return json_response(_model(request))


def _model(request: Request) -> dict[str, Any]:
    """One body for every client: OpenAI's fields and Anthropic's (``type``, ``display_name``, ``created_at``)."""
    engine = request.app.state.engine_loop.engine
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
