"""``POST /v1/messages`` and ``/v1/messages/count_tokens``: Anthropic's Messages, plain and streamed."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ultrafast.engine.loop import EngineLoop
from ultrafast.engine.stream import flushes
from ultrafast.engine.tiers import FAST, ULTRAFAST
from ultrafast.errors import RequestError
from ultrafast.serving.errors import anthropic_error_body, json_response
from ultrafast.serving.generate import Running, count_tokens, loop_of, run
from ultrafast.serving.wire import sse
from ultrafast.serving.wire.anthropic_events import Blocks, Event, Thoughts
from ultrafast.serving.wire.anthropic_request import COUNT, MESSAGES, MessagesRequest, count_job, job
from ultrafast.serving.wire.body import decode, read_body
from ultrafast.serving.wire.whole import whole_answer
from ultrafast.types import AnswerEnd, TokenDelta


async def create_message(request: Request) -> Response:
    """The endpoint."""
    body = await read_body(request)
    ask = decode(MESSAGES, body)
    loop = loop_of(request.app.state.loops, ask.model)
    request_id: str = request.state.request_id
    running = await run(request, loop, job(ask), request_id=request_id, body_size=len(body), whole=not ask.stream)
    answer = MessageAnswer(loop, ask, running)
    if ask.stream:

        def error_frame(error: RequestError) -> bytes:
            return sse.frame(anthropic_error_body(error, request_id), event="error")

        return sse.EventStream(answer.frames(), running=running, on_error=error_frame)
    return await whole_answer(request, running, answer.message)


async def count_message_tokens(request: Request) -> Response:
    """How many tokens a prompt has, tools included."""
    ask = decode(COUNT, await read_body(request))
    loop = loop_of(request.app.state.loops, ask.model)
    return json_response({"input_tokens": await asyncio.to_thread(count_tokens, loop, count_job(ask))})


class MessageAnswer:
    """Writes one answer, in one piece or as events."""

    def __init__(self, loop: EngineLoop, ask: MessagesRequest, running: Running) -> None:
        self._max_context = loop.engine.max_context
        self._ask = ask
        self._running = running
        self._blocks = Blocks(_thoughts(ask))
        self._head = {
            "id": f"msg_{secrets.token_hex(12)}",
            "type": "message",
            "role": "assistant",
            "model": loop.engine.model_id,
        }

    def message(self, deltas: list[TokenDelta]) -> dict[str, Any]:
        """The ``message`` object at its end; there is one choice."""
        self._push(*deltas)
        return {**self._head, "content": self._blocks.content, **self._stop(), "usage": self._usage()}

    async def frames(self) -> AsyncIterator[bytes]:
        """The events, each item one write."""
        usage = self._usage() | {"output_tokens": 0}  # of what is sent by now, whatever is there already
        empty: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        yield _frames([{"type": "message_start", "message": self._head | empty}, {"type": "ping"}])
        async for batch in flushes(self._running.streams, self._running.news, interval_s=sse.FLUSH_S):
            for _, delta in batch:
                if events := self._push(delta):
                    yield _frames(events)
        ending = {"type": "message_delta", "delta": self._stop(), "usage": self._usage()}
        yield _frames([ending, {"type": "message_stop"}])

    def _push(self, delta: TokenDelta) -> list[Event]:
        pieces = self._running.parsers[0].push(delta)
        return [event for piece in pieces for event in self._blocks.push(piece)]

    def _stop(self) -> dict[str, Any]:
        """Why the answer ended."""
        end = self._blocks.end
        assert end is not None
        reason = self._stop_reason(end)
        return {"stop_reason": reason, "stop_sequence": end.stop if reason == "stop_sequence" else None}

    def _stop_reason(self, end: AnswerEnd) -> str:
        if end.reason == "tool_calls":
            return "tool_use"
        if end.reason == "stop":
            return "end_turn" if end.stop is None else "stop_sequence"
        usage = self._running.streams[0].usage
        at_the_end = usage.total_tokens >= self._max_context and usage.completion_tokens < self._ask.max_tokens
        return "model_context_window_exceeded" if at_the_end else "max_tokens"

    def _usage(self) -> dict[str, Any]:
        """Counts so far; Anthropic's words for the tier, of which there are fewer, and our own."""
        usage = self._running.streams[0].usage
        end = self._blocks.end
        is_fast = self._running.tier in (FAST, ULTRAFAST)
        return {
            "input_tokens": usage.prompt_tokens - usage.cached_tokens,
            "output_tokens": usage.completion_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": usage.cached_tokens,
            "output_tokens_details": {"thinking_tokens": end.reasoning_tokens if end else 0},
            "service_tier": "priority" if is_fast else "standard",
            "speed": "fast" if is_fast else "standard",
            "ultrafast_tier": self._running.tier,
        }


def _thoughts(ask: MessagesRequest) -> Thoughts:
    """Thoughts come to those who ask for them: many read ``content[0]`` as the answer."""
    if ask.thinking is None or ask.thinking.type == "disabled":
        return Thoughts.LEFT_OUT
    return Thoughts.OMITTED if ask.thinking.display == "omitted" else Thoughts.SHOWN


def _frames(events: list[Event]) -> bytes:
    return b"".join(sse.frame(event, event=event["type"]) for event in events)
