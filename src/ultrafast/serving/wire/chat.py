"""``POST /v1/chat/completions``: OpenAI's Chat Completions, plain and streamed."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import AsyncIterator
from functools import cache
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ultrafast import __version__
from ultrafast.engine.loop import EngineLoop
from ultrafast.engine.stream import StreamCancelled, flushes
from ultrafast.errors import RequestError
from ultrafast.serving.errors import error_body, json_response
from ultrafast.serving.generate import Running, loop_of, run
from ultrafast.serving.wire import sse
from ultrafast.serving.wire.body import decode, read_body
from ultrafast.serving.wire.chat_request import DECODER, ChatRequest, job
from ultrafast.serving.wire.logprobs import logprob_entries
from ultrafast.types import TokenDelta


async def create_chat_completion(request: Request) -> Response:
    """The endpoint."""
    body = await read_body(request)
    ask = decode(DECODER, body)
    loop = loop_of(request.app.state.loops, ask.model)
    running = await run(
        request, loop, job(ask), request_id=request.state.request_id, body_size=len(body), whole=not ask.stream
    )
    answer = ChatAnswer(loop, ask, running)
    if ask.stream:
        return sse.EventStream(answer.frames(), running=running, on_error=error_frame)
    try:
        async with sse.cancelled_with_client(request.receive, running.streams):
            deltas = [await stream.result() for stream in running.streams]
    except StreamCancelled:
        return Response(status_code=499)  # nobody reads it
    return json_response(answer.completion(deltas), headers=running.headers)


def error_frame(error: RequestError) -> bytes:
    """A failure after the first byte."""
    return sse.frame({"error": error_body(error)})


class ChatAnswer:
    """Writes one answer, in one piece or in chunks."""

    def __init__(self, loop: EngineLoop, ask: ChatRequest, running: Running) -> None:
        self._tokenizer = loop.engine.tokenizer
        self._ask = ask
        self._running = running
        self._head = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": loop.engine.model_id,
            "system_fingerprint": _fingerprint(loop.engine.model_id),
        }

    def completion(self, deltas: list[TokenDelta]) -> dict[str, Any]:
        """The ``chat.completion`` object; one whole delta a choice."""
        return {
            **self._head,
            "object": "chat.completion",
            "service_tier": self._running.tier,
            "choices": [
                {
                    "index": index,
                    "message": {"role": "assistant", "content": delta.text, "refusal": None},
                    "logprobs": self._logprobs(delta),
                    "finish_reason": delta.finish_reason,
                }
                for index, delta in enumerate(deltas)
            ],
            "usage": self._usage(),
        }

    async def frames(self) -> AsyncIterator[bytes]:
        """The chunks as server-sent events, each item one write."""
        indices = range(len(self._running.streams))
        yield b"".join(self._choice(index, {"role": "assistant", "content": ""}) for index in indices)
        async for batch in flushes(self._running.streams, self._running.news, interval_s=sse.FLUSH_S):
            yield b"".join(self._delta(index, delta) for index, delta in batch)
        usage = self._chunk([], usage=self._usage()) if self._ask.include_usage else b""
        yield usage + sse.DONE

    def _delta(self, index: int, delta: TokenDelta) -> bytes:
        chunks = b""
        if delta.text or delta.logprobs:
            chunks = self._choice(index, {"content": delta.text}, logprobs=self._logprobs(delta))
        if delta.finish_reason is not None:
            chunks += self._choice(index, {}, finish_reason=delta.finish_reason)
        return chunks

    def _choice(self, index: int, delta: dict[str, str], **fields: Any) -> bytes:
        return self._chunk([{"index": index, "delta": delta, "logprobs": None, "finish_reason": None, **fields}])

    def _chunk(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
        chunk = {
            **self._head,
            "object": "chat.completion.chunk",
            "service_tier": self._running.tier,
            "choices": choices,
        }
        if self._ask.include_usage:
            chunk["usage"] = usage
        return sse.frame(chunk)

    def _logprobs(self, delta: TokenDelta) -> dict[str, Any] | None:
        if delta.logprobs is None:
            return None
        return {"content": logprob_entries(self._tokenizer, delta.logprobs), "refusal": None}

    def _usage(self) -> dict[str, Any]:
        usages = [stream.usage for stream in self._running.streams]
        prompt = usages[0].prompt_tokens  # the choices share one prompt
        completion = sum(usage.completion_tokens for usage in usages)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": usages[0].cached_tokens},
            "completion_tokens_details": {
                "reasoning_tokens": 0,
                "accepted_prediction_tokens": sum(usage.accepted_draft_tokens for usage in usages),
                "rejected_prediction_tokens": sum(usage.rejected_draft_tokens for usage in usages),
            },
        }


@cache
def _fingerprint(model_id: str) -> str:
    """Same program and model: same tokens for the same seed. That is what clients compare fingerprints for."""
    return f"fp_{hashlib.sha256(f'{__version__} {model_id}'.encode()).hexdigest()[:12]}"
