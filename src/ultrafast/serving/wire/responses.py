"""``POST /v1/responses``: OpenAI's Responses, plain and streamed."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ultrafast.engine.loop import EngineLoop
from ultrafast.engine.stream import StreamCancelled, flushes, merge
from ultrafast.errors import RequestError
from ultrafast.serving.errors import error_body, json_response
from ultrafast.serving.generate import Running, loop_of, run
from ultrafast.serving.wire import sse
from ultrafast.serving.wire.body import decode, read_body
from ultrafast.serving.wire.logprobs import logprob_entries
from ultrafast.serving.wire.responses_request import (
    DECODER,
    Reasoning,
    ResponsesRequest,
    TextConfig,
    job,
    temperature,
    top_p,
)
from ultrafast.types import FinishReason, TokenDelta


async def create_response(request: Request) -> Response:
    """The endpoint."""
    body = await read_body(request)
    ask = decode(DECODER, body)
    loop = loop_of(request.app.state.loops, ask.model)
    running = await run(
        request, loop, job(ask), request_id=request.state.request_id, body_size=len(body), whole=not ask.stream
    )
    answer = ResponseAnswer(loop, ask, running)
    if ask.stream:
        return sse.EventStream(answer.frames(), running=running, on_error=answer.error_frames)
    try:
        async with sse.cancelled_with_client(request.receive, running.streams):
            whole = await running.streams[0].result()
    except StreamCancelled:
        return Response(status_code=499)  # nobody reads it
    return json_response(answer.finished(whole), headers=running.headers)


class ResponseAnswer:
    """Writes one answer, in one piece or as events."""

    def __init__(self, loop: EngineLoop, ask: ResponsesRequest, running: Running) -> None:
        self._tokenizer = loop.engine.tokenizer
        self._running = running
        self._next_number = 0  # of the next event
        self._item_id = f"msg_{secrets.token_hex(16)}"
        self._base = _echo(ask) | {
            "id": f"resp_{secrets.token_hex(16)}",
            "object": "response",
            "created_at": int(time.time()),
            "model": loop.engine.model_id,
        }

    def finished(self, whole: TokenDelta) -> dict[str, Any]:
        """The ``response`` object at its end: ``completed``, or ``incomplete`` when it ran into a length limit."""
        if whole.finish_reason is FinishReason.LENGTH:
            end: dict[str, Any] = {"incomplete_details": {"reason": "max_output_tokens"}}
            status = "incomplete"
        else:
            end = {"completed_at": int(time.time())}
            status = "completed"
        return self._response(status, output=[self._item(whole, status)], usage=self._usage(), **end)

    async def frames(self) -> AsyncIterator[bytes]:
        """The events, each item one write."""
        yield (
            self._event("response.created", response=self._response("in_progress"))
            + self._event("response.in_progress", response=self._response("in_progress"))
            + self._event("response.output_item.added", output_index=0, item=self._item(None, "in_progress"))
            + self._part_event("response.content_part.added", part=self._part(TokenDelta("", ())))
        )
        deltas: list[TokenDelta] = []
        async for batch in flushes(self._running.streams, self._running.news, interval_s=sse.FLUSH_S):
            for _, delta in batch:
                deltas.append(delta)
                if delta.text or delta.logprobs:
                    logprobs = logprob_entries(self._tokenizer, delta.logprobs)
                    yield self._part_event("response.output_text.delta", delta=delta.text, logprobs=logprobs)
        yield self._ending(merge(deltas))

    def error_frames(self, error: RequestError) -> bytes:
        """A failure after the first byte: the error, then the terminal event (some clients heed only that)."""
        about = error_body(error)
        failed = self._response("failed", error={"code": error.code or "server_error", "message": error.message})
        return self._event("error", error=about) + self._event("response.failed", response=failed)

    def _ending(self, whole: TokenDelta) -> bytes:
        response = self.finished(whole)
        part = self._part(whole)
        return (
            self._part_event("response.output_text.done", text=part["text"], logprobs=part["logprobs"])
            + self._part_event("response.content_part.done", part=part)
            + self._event("response.output_item.done", output_index=0, item=response["output"][0])
            + self._event(f"response.{response['status']}", response=response)
        )

    def _event(self, type: str, **fields: Any) -> bytes:
        number = self._next_number
        self._next_number += 1
        return sse.frame({"type": type, "sequence_number": number, **fields}, event=type)

    def _part_event(self, type: str, **fields: Any) -> bytes:
        return self._event(type, item_id=self._item_id, output_index=0, content_index=0, **fields)

    def _response(self, status: str, **fields: Any) -> dict[str, Any]:
        return self._base | {"status": status, "service_tier": self._running.tier} | fields

    def _item(self, whole: TokenDelta | None, status: str) -> dict[str, Any]:
        content = [] if whole is None else [self._part(whole)]
        return {"id": self._item_id, "type": "message", "role": "assistant", "status": status, "content": content}

    def _part(self, whole: TokenDelta) -> dict[str, Any]:
        logprobs = logprob_entries(self._tokenizer, whole.logprobs)
        return {"type": "output_text", "text": whole.text, "annotations": [], "logprobs": logprobs}

    def _usage(self) -> dict[str, Any]:
        usage = self._running.streams[0].usage
        return {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {
                "reasoning_tokens": 0,
                "accepted_prediction_tokens": usage.accepted_draft_tokens,
                "rejected_prediction_tokens": usage.rejected_draft_tokens,
            },
            "total_tokens": usage.total_tokens,
        }


def _echo(ask: ResponsesRequest) -> dict[str, Any]:
    """What a response repeats of its request, and the fields that are empty until its end."""
    text = msgspec.to_builtins(ask.text or TextConfig())
    return {
        "completed_at": None,
        "output": [],
        "usage": None,
        "error": None,
        "incomplete_details": None,
        "instructions": ask.instructions,
        "max_output_tokens": ask.max_output_tokens,
        "metadata": ask.metadata or {},
        "parallel_tool_calls": ask.parallel_tool_calls is not False,
        "previous_response_id": None,
        "prompt_cache_key": ask.prompt_cache_key,
        "reasoning": msgspec.to_builtins(ask.reasoning or Reasoning()),
        "store": False,  # nothing is stored yet, whatever was asked
        "temperature": temperature(ask),
        "text": text | {"format": {"type": "text"}},
        "tool_choice": ask.tool_choice or "auto",
        "tools": ask.tools or [],
        "top_logprobs": ask.top_logprobs or 0,
        "top_p": top_p(ask),
        "truncation": ask.truncation or "disabled",
        "user": ask.user,
    }
