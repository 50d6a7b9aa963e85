"""``GET /v1/models``: one body for every client.

Each of ``data`` has OpenAI's fields and Anthropic's (``type``, ``display_name``, ``created_at``). ``models`` is what
Codex reads: it drops the whole catalogue when one of its fields is missing, and asks only for tiers that stand in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ultrafast.engine.loop import EngineLoop
from ultrafast.engine.tiers import DEFAULT, TIERS
from ultrafast.serving.errors import json_response
from ultrafast.serving.generate import loop_of

_SPEEDS = [  # beside `default`; `priority` is Codex's name for `fast`
    {"id": "ultrafast", "name": "Ultrafast", "description": "Slots of its own, speculation, and first in line."},
    {"id": "priority", "name": "Fast", "description": "Goes before default requests."},
    {"id": "flex", "name": "Flex", "description": "Cheaper; refused when there is no room."},
]
_INSTRUCTIONS = (
    "You are a coding agent. You work in the user's folder with the tools that you are given. Look before you change "
    "anything, take one step at a time, and say briefly what you did."
)
_TOOL_OUTPUT_SHARE = 8  # of the context, that Codex lets the output of one tool have: an eighth


async def list_models(request: Request) -> Response:
    """All models served here."""
    loops: Mapping[str, EngineLoop] = request.app.state.loops
    models = [_model(loop, request.app.state.started) for loop in loops.values()]
    body = {
        "object": "list",
        "data": models,
        "has_more": False,
        "first_id": models[0]["id"],
        "last_id": models[-1]["id"],
        "models": [_codex_model(loop, priority) for priority, loop in enumerate(loops.values())],
    }
    return json_response(body)


async def get_model(request: Request) -> Response:
    """One model, or 404."""
    return json_response(
        _model(loop_of(request.app.state.loops, request.path_params["model"]), request.app.state.started)
    )


def _model(loop: EngineLoop, started: int) -> dict[str, Any]:
    return {
        "id": loop.engine.model_id,
        "object": "model",
        "type": "model",
        "created": started,
        "created_at": datetime.fromtimestamp(started, UTC).isoformat().replace("+00:00", "Z"),
        "owned_by": "ultrafast",
        "display_name": _display_name(loop),
        "context_window": loop.engine.max_context,
        "service_tiers": list(TIERS),
    }


def _codex_model(loop: EngineLoop, priority: int) -> dict[str, Any]:
    context = loop.engine.max_context
    return {
        "slug": loop.engine.model_id,
        "display_name": _display_name(loop),
        "supported_reasoning_levels": [],
        "supports_reasoning_summaries": False,
        "shell_type": "unified_exec",
        "visibility": "list",
        "supported_in_api": True,
        "priority": priority,
        "support_verbosity": False,
        "supports_parallel_tool_calls": True,
        "input_modalities": ["text"],
        "truncation_policy": {"mode": "tokens", "limit": context // _TOOL_OUTPUT_SHARE},
        "experimental_supported_tools": [],
        "base_instructions": _INSTRUCTIONS,
        "context_window": context,
        "service_tiers": _SPEEDS,
        "additional_speed_tiers": ["fast"],
        "default_service_tier": DEFAULT,
    }


def _display_name(loop: EngineLoop) -> str:
    return loop.engine.shape.name or loop.engine.model_id
