"""The loop: ask, run the tool that the model calls, give back what it found. Each step is timed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from examples.coding.plan import GUIDED, INSTRUCTIONS, TASK, free_tools, guided_tools
from examples.coding.workspace import Workspace
from examples.endpoint import Endpoint

_MAX_OUTPUT_TOKENS = 2000  # of a step

Ask = Callable[[dict[str, Any]], Awaitable[Any]]
"""From the fields of a request of the Responses API to the response."""


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        tool: that was called; empty: none was, or its arguments were cut.
        why: what the model said of it.
        model_s: from the request to the whole response, network included.
        tool_s: of the tool.
    """

    tool: str
    why: str
    model_s: float
    tool_s: float


async def run_agent(
    endpoint: Endpoint, workspace: Workspace, *, socket: bool, free: bool, max_steps: int
) -> list[Step]:
    """Work until the model finishes or the steps are used up.

    Args:
        socket: ask over one WebSocket instead of HTTP.
        free: the model chooses tools and writes arguments as it likes; otherwise it goes through the guided steps.
        max_steps: of a free run.
    """
    tools = free_tools() if free else guided_tools()
    settings = endpoint.fields | {
        "instructions": endpoint.mark + INSTRUCTIONS,
        "tools": tools,
        "parallel_tool_calls": False,
        "max_output_tokens": _MAX_OUTPUT_TOKENS,
    }
    new: list[dict[str, Any]] = [{"role": "user", "content": TASK}]
    steps: list[Step] = []
    async with _over_socket(endpoint) if socket else _over_http(endpoint) as ask:
        previous: dict[str, Any] = {}
        for number in range(max_steps if free else len(GUIDED)):
            choice = "required" if free else {"type": "function", "name": GUIDED[number]}
            start = time.perf_counter()
            response = await ask({**settings, **previous, "input": new, "tool_choice": choice})
            model_s = time.perf_counter() - start
            endpoint.spent.add(response)
            previous = {"previous_response_id": response.id}
            call = next((item for item in response.output if item.type == "function_call"), None)
            step, result = await _run_tool(workspace, call, model_s)
            steps.append(step)
            if call is None or step.tool == "finish":
                break
            new = [{"type": "function_call_output", "call_id": call.call_id, "output": result}]
    return steps


async def _run_tool(workspace: Workspace, call: Any, model_s: float) -> tuple[Step, str]:
    if call is None:
        return Step("", "", model_s, 0.0), ""
    start = time.perf_counter()
    try:
        arguments = json.loads(call.arguments)
        result = await asyncio.to_thread(workspace.call, call.name, arguments)
    except ValueError:
        arguments, result = {}, "The arguments are not whole: they must be short enough for one answer."
    why = str(arguments.get("why") or arguments.get("summary") or "")
    return Step(call.name, why, model_s, time.perf_counter() - start), result


@asynccontextmanager
async def _over_http(endpoint: Endpoint) -> AsyncIterator[Ask]:
    async def ask(fields: dict[str, Any]) -> Any:
        return await endpoint.client.responses.create(**fields)

    yield ask


@asynccontextmanager
async def _over_socket(endpoint: Endpoint) -> AsyncIterator[Ask]:
    async with endpoint.client.responses.connect() as connection:

        async def ask(fields: dict[str, Any]) -> Any:
            fields = {**fields, **fields["extra_body"]}
            del fields["extra_body"]
            event: Any = {"type": "response.create", **fields}
            await connection.send(event)
            async for told in connection:
                if told.type == "error":
                    raise SystemExit(f"The endpoint refused: {told.to_json(indent=None)}")
                if told.type in ("response.completed", "response.incomplete", "response.failed"):
                    return told.response
            raise SystemExit("The endpoint closed the connection before its answer was whole.")

        yield ask
