"""``GET /v1/tiers``: the lanes of every model served here, their load and their speed."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from ultrafast.engine.loop import EngineLoop
from ultrafast.serving.errors import json_response


async def list_tiers(request: Request) -> Response:
    """The status of every model (`engine.status`)."""
    loops: Mapping[str, EngineLoop] = request.app.state.loops
    return json_response({"object": "list", "data": [loop.snapshot() for loop in loops.values()]})
