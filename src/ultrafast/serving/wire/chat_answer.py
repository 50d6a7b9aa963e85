"""What Chat Completions answers: the pieces of each choice as one object, or as chunks."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import cache
from typing import Any

from ultrafast import __version__
from ultrafast.engine.loop import EngineLoop
from ultrafast.engine.stream import flushes
from ultrafast.serving.generate import Running
from ultrafast.serving.wire import sse
from ultrafast.serving.wire.chat_request import ChatRequest
from ultrafast.serving.wire.logprobs import Vocabulary, logprob_entries
from ultrafast.serving.wire.usage import ChunkUsage, measured, usage_object
from ultrafast.types import (
    AnswerEnd,
    CallArguments,
    CallBegin,
    Piece,
    Text,
    Thought,
    TokenDelta,
    TokenLogprob,
)


class ChatAnswer:
    """Writes one answer."""

    def __init__(self, loop: EngineLoop, ask: ChatRequest, running: Running) -> None:
        tokenizer = loop.engine.tokenizer
        self._ask = ask
        self._running = running
        self._choices = [_Choice(index, tokenizer, ask) for index in range(len(running.streams))]
        self._usage = ChunkUsage(
            present=ask.include_usage,
            running=ask.counts_usage,
            prompt_tokens=len(running.streams[0].request.prompt_ids),
        )
        self._head = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": loop.engine.model_id,
            "system_fingerprint": fingerprint(loop.engine.model_id),
        }

    def completion(self, deltas: Sequence[TokenDelta]) -> dict[str, Any]:
        """The ``chat.completion`` object; one whole delta a choice."""
        written = [
            choice.whole(parser.push(delta))
            for choice, parser, delta in zip(self._choices, self._running.parsers, deltas, strict=True)
        ]
        return {
            **self._head,
            "object": "chat.completion",
            "service_tier": self._running.tier,
            "choices": written,
            **self._ending(),
            **({"metadata": self._ask.metadata} if self._ask.metadata else {}),
        }

    async def frames(self) -> AsyncIterator[bytes]:
        """The chunks as server-sent events, each item one write."""
        yield b"".join(self._chunk([choice.first()], **self._usage.field) for choice in self._choices)
        async for batch in flushes(self._running.streams, self._running.news, interval_s=sse.FLUSH_S):
            yield b"".join(chunk for index, delta in batch for chunk in self._chunks(index, delta))
        last = self._chunk([], **self._ending()) if self._ask.include_usage else b""
        yield last + sse.DONE

    def _chunks(self, index: int, delta: TokenDelta) -> Iterator[bytes]:
        """What a delta adds to a choice. Tokens that are no text yet are counted in the next chunk that there is."""
        self._usage.add(len(delta.token_ids))
        for piece in self._running.parsers[index].push(delta):
            for written in self._choices[index].next(piece):
                yield self._chunk([written], **self._usage.field)

    def _chunk(self, choices: list[dict[str, Any]], **fields: Any) -> bytes:
        head = {**self._head, "object": "chat.completion.chunk", "service_tier": self._running.tier}
        return sse.frame({**head, "choices": choices, **fields})

    def _ending(self) -> dict[str, Any]:
        """What there is to say at the end."""
        streams = self._running.streams
        usages = [stream.usage for stream in streams]
        reasoning = sum(choice.reasoning_tokens for choice in self._choices)
        usage = usage_object(usages[:1], usages, reasoning_tokens=reasoning)  # the choices share one prompt
        return {"usage": usage, "ultrafast": measured(streams)}


class _Choice:
    """Writes one choice, from its pieces.

    Attributes:
        reasoning_tokens: of its output, once it has ended.
    """

    def __init__(self, index: int, vocabulary: Vocabulary, ask: ChatRequest) -> None:
        self.reasoning_tokens = 0
        self._index = index
        self._vocabulary = vocabulary
        self._with_logprobs = bool(ask.logprobs)
        self._is_legacy = ask.is_legacy
        self._num_calls = 0

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """The choice in one piece."""
        text, thoughts = "", ""
        calls: list[dict[str, Any]] = []
        logprobs: list[TokenLogprob] = []
        finish_reason = None
        for piece in pieces:
            match piece:
                case Text():
                    text += piece.text
                    logprobs += piece.logprobs or ()
                case Thought():
                    thoughts += piece.text
                case CallBegin():
                    calls.append(_function_call(piece.name))
                case CallArguments():
                    calls[-1]["function"]["arguments"] += piece.text
                case AnswerEnd():
                    finish_reason = self._finish(piece)
        message: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else ""), "refusal": None}
        if thoughts:
            message["reasoning_content"] = thoughts
        if calls and self._is_legacy:
            message["function_call"] = calls[0]["function"]
        elif calls:
            message["tool_calls"] = calls
        return {
            "index": self._index,
            "message": message,
            "logprobs": self._logprobs(logprobs),
            "finish_reason": finish_reason,
        }

    def first(self) -> dict[str, Any]:
        """What the choice begins with in a stream."""
        return self._delta({"role": "assistant", "content": ""})

    def next(self, piece: Piece) -> list[dict[str, Any]]:
        """A piece in a stream: one chunk's choice, or none."""
        match piece:
            case Text() if piece.text or piece.logprobs:
                return [self._delta({"content": piece.text}, logprobs=self._logprobs(piece.logprobs or ()))]
            case Thought() if piece.text:
                return [self._delta({"reasoning_content": piece.text})]
            case CallBegin():
                self._num_calls += 1
                return [self._delta(self._call_delta(_function_call(piece.name)))]
            case CallArguments() if piece.text:
                return [self._delta(self._call_delta({"function": {"arguments": piece.text}}))]
            case AnswerEnd():
                return [self._delta({}, finish_reason=self._finish(piece))]
        return []

    def _call_delta(self, call: dict[str, Any]) -> dict[str, Any]:
        if self._is_legacy:
            return {"function_call": call["function"]}
        return {"tool_calls": [{"index": self._num_calls - 1, **call}]}

    def _delta(self, delta: dict[str, Any], **fields: Any) -> dict[str, Any]:
        return {"index": self._index, "delta": delta, "logprobs": None, "finish_reason": None, **fields}

    def _finish(self, end: AnswerEnd) -> str:
        self.reasoning_tokens = end.reasoning_tokens
        return "function_call" if self._is_legacy and end.reason == "tool_calls" else end.reason

    def _logprobs(self, logprobs: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        if not self._with_logprobs:
            return None
        return {"content": logprob_entries(self._vocabulary, logprobs), "refusal": None}


@cache
def fingerprint(model_id: str) -> str:
    """Same program and model: same tokens for the same seed. That is what clients compare fingerprints for."""
    return f"fp_{hashlib.sha256(f'{__version__} {model_id}'.encode()).hexdigest()[:12]}"


def _function_call(name: str) -> dict[str, Any]:
    function = {"name": name, "arguments": ""}
    return {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": function}
