"""``POST /v1/completions``: continuations of raw prompts, and the log-probabilities of both."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ultrafast.engine.loop import EngineLoop
from ultrafast.engine.stream import flushes
from ultrafast.serving.generate import Running, loop_of, run
from ultrafast.serving.wire import sse
from ultrafast.serving.wire.body import decode, read_body
from ultrafast.serving.wire.chat import error_frame
from ultrafast.serving.wire.chat_answer import fingerprint
from ultrafast.serving.wire.completion_logprobs import CompletionLogprobs, Tokenizer
from ultrafast.serving.wire.completions_request import DECODER, CompletionRequest, Prompt, jobs, prompts_of
from ultrafast.serving.wire.usage import ChunkUsage, measured, usage_object
from ultrafast.serving.wire.whole import whole_answer
from ultrafast.types import TokenDelta


async def create_completion(request: Request) -> Response:
    """The endpoint."""
    body = await read_body(request)
    ask = decode(DECODER, body)
    loop = loop_of(request.app.state.loops, ask.model)
    prompts = prompts_of(ask.prompt)
    running = await run(
        request,
        loop,
        *jobs(ask, prompts),
        request_id=request.state.request_id,
        body_size=len(body),
        whole=not ask.stream,
    )
    answer = CompletionAnswer(loop, ask, prompts, running)
    if ask.stream:
        return sse.EventStream(answer.frames(), running=running, on_error=error_frame)
    return await whole_answer(request, running, answer.completion)


class CompletionAnswer:
    """Writes one answer, in one piece or in chunks. The choices of the first prompt come first."""

    def __init__(self, loop: EngineLoop, ask: CompletionRequest, prompts: list[Prompt], running: Running) -> None:
        self._include_usage = ask.include_usage
        self._running = running
        self._num_choices = ask.n or 1  # of each prompt
        self._choices = [
            _Choice(index, loop.engine.tokenizer, ask, prompts[index // self._num_choices], stream.request.prompt_ids)
            for index, stream in enumerate(running.streams)
        ]
        self._usage = ChunkUsage(
            present=ask.include_usage,
            running=ask.counts_usage,
            prompt_tokens=sum(len(stream.request.prompt_ids) for stream in running.streams[:: self._num_choices]),
        )
        self._head = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": loop.engine.model_id,
            "system_fingerprint": fingerprint(loop.engine.model_id),
        }

    def completion(self, deltas: list[TokenDelta]) -> dict[str, Any]:
        """The ``text_completion`` object; one whole delta a choice."""
        written = [choice.next(delta) for choice, delta in zip(self._choices, deltas, strict=True)]
        return self._object(written, **self._ending())

    async def frames(self) -> AsyncIterator[bytes]:
        """The chunks as server-sent events, each item one write."""
        async for batch in flushes(self._running.streams, self._running.news, interval_s=sse.FLUSH_S):
            yield b"".join(self._chunk(index, delta) for index, delta in batch)
        last = sse.frame(self._object([], **self._ending())) if self._include_usage else b""
        yield last + sse.DONE

    def _chunk(self, index: int, delta: TokenDelta) -> bytes:
        self._usage.add(len(delta.token_ids))
        return sse.frame(self._object([self._choices[index].next(delta)], **self._usage.field))

    def _object(self, choices: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        return {**self._head, "service_tier": self._running.tier, "choices": choices, **fields}

    def _ending(self) -> dict[str, Any]:
        """What there is to say at the end."""
        streams = self._running.streams
        usages = [stream.usage for stream in streams]
        return {"usage": usage_object(usages[:: self._num_choices], usages), "ultrafast": measured(streams)}


class _Choice:
    """Writes one choice."""

    def __init__(
        self, index: int, tokenizer: Tokenizer, ask: CompletionRequest, prompt: Prompt, prompt_ids: Sequence[int]
    ) -> None:
        self._index = index
        self._tokenizer = tokenizer
        self._prompt = prompt
        self._prompt_ids = prompt_ids
        self._echoes = bool(ask.echo)  # as long as the prompt has not been told
        self._lead: str | None = None if tokenizer.strips_leading_space else ""  # None: not known yet
        self._logprobs = None if ask.logprobs is None else CompletionLogprobs(tokenizer)

    def next(self, delta: TokenDelta) -> dict[str, Any]:
        """What a delta adds; with the first one, the prompt if it is to be echoed."""
        text = self._continuation(delta)
        if self._echoes:
            text = self._echo(delta) + text
            self._echoes = False
        if self._logprobs is not None:
            self._logprobs.add_output(delta.logprobs or ())
        return {
            "index": self._index,
            "text": text,
            "logprobs": None if self._logprobs is None else self._logprobs.take(),
            "finish_reason": delta.finish_reason,
        }

    def _continuation(self, delta: TokenDelta) -> str:
        """The text of a delta. An answer's text begins without a space where its tokens have one; what continues a
        prompt needs that space."""
        if self._lead is None:
            shown = [token for token in delta.token_ids if not self._tokenizer.is_special(token)]
            if shown:
                self._lead = " " if self._tokenizer.token_bytes(shown[0]).startswith(b" ") else ""
        if not delta.text or not self._lead:
            return delta.text
        lead, self._lead = self._lead, ""
        return lead + delta.text

    def _echo(self, delta: TokenDelta) -> str:
        """The prompt as it was sent."""
        if self._logprobs is not None:
            self._logprobs.add_prompt(self._prompt_ids, delta.prompt_logprobs or (), self._prompt)
        return self._prompt if isinstance(self._prompt, str) else self._tokenizer.decode(self._prompt_ids)
