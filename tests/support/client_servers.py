"""Servers for real clients: scripted answers with tool calls in them, and room for the long prompts of agents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from support.scripted_engine import ScriptedEngine
from support.served import Served, served


def call(name: str, /, **arguments: Any) -> str:
    """A tool call as a model without a call syntax of its own is told to write it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


@contextmanager
def answering(*scripts: str, model_id: str = "scripted", **options: Any) -> Iterator[Served]:
    """A server that gives these answers, one a request in the order of arrival; the last one goes on.

    Args:
        model_id: for clients that know what models of which names can do.
        options: of `served`.
    """
    engine = ScriptedEngine(scripts=scripts)
    engine.model_id = model_id
    engine.max_context = 1_000_000
    with served(engine, **options) as server:
        yield server


def prompt_of(server: Served, index: int = -1) -> str:
    """The prompt of one of the requests that a scripted engine got."""
    return bytes(server.loop.engine.requests[index].prompt_ids).decode()  # type: ignore[attr-defined]
