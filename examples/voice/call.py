"""A telephone call with a model: what has been said is given, each answer is streamed and timed."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from examples.endpoint import Endpoint
from examples.voice.budget import WORDS_PER_MINUTE, Piece, Pipeline, first_clause_s, play

INSTRUCTIONS = (
    "You answer the telephone of the Harbour Hotel in one or two short sentences. A double room is 120 euros a night, "
    "breakfast is 14 euros a person, dogs are welcome for 15 euros, rooms are ready at three in the afternoon."
)
RECORDED = [  # what the caller says, and what was answered: every model and tier goes on from the same words
    ("Hello, is this the Harbour Hotel?", "It is, good afternoon. How can I help you?"),
    ("Do you have a room for two on Friday?", "Yes, a double room is free on Friday, for 120 euros a night."),
    ("And how much is breakfast?", "Breakfast is 14 euros a person, from seven to ten."),
    ("Can we bring our dog?", "Dogs are welcome here, for 15 euros a stay."),
    ("Good. At what time can we come?", "The room is ready at three in the afternoon."),
]
INTERRUPTED = 3  # the turn, from 0, in which the caller talks into the answer


@dataclass(frozen=True)
class BargeIn:
    """An interruption: the caller speaks as soon as the voice does.

    Attributes:
        silent_s: from the caller's first sound until the voice is silent and the stream is closed.
        tokens: that had come by then, and are billed.
        spoken_words: of what they said; the rest was in vain.
    """

    silent_s: float
    tokens: int
    spoken_words: int


@dataclass(frozen=True)
class Turn:
    """One answer.

    Attributes:
        ttft_s: from the request to the first token of any kind.
        tokens_per_s: after the first chunk; None: it all came at once, or was cut.
        thinking_tokens: before the answer.
        silence_s: from the end of the caller's speech until the voice was heard, through the whole pipeline; None: it
            had nothing to say.
        underruns: silences within the answer, when and how long.
        barge_in: None: nobody interrupted.
    """

    text: str
    ttft_s: float | None
    tokens_per_s: float | None
    thinking_tokens: int
    silence_s: float | None
    underruns: list[tuple[float, float]]
    barge_in: BargeIn | None = None


async def call(endpoint: Endpoint, pipeline: Pipeline, *, max_tokens: int, detection_s: float) -> list[Turn]:
    """Hold the call.

    Args:
        pipeline: what is around the model: added to its times, not waited for.
        max_tokens: of an answer.
        detection_s: until an interruption is known to be one.
    """
    history: list[dict[str, Any]] = [{"role": "system", "content": endpoint.mark + INSTRUCTIONS}]
    turns = []
    for number, (line, recorded) in enumerate(RECORDED):
        history.append({"role": "user", "content": line})
        heard = _Heard()
        options = {"include_usage": True} | ({"continuous_usage_stats": True} if endpoint.is_ours else {})
        ask: dict[str, Any] = {
            "messages": list(history),
            "max_completion_tokens": max_tokens,
            "stream_options": options,
        }
        start = time.perf_counter()
        stream: Any = await endpoint.client.chat.completions.create(**ask, stream=True, **endpoint.fields)
        interruption = detection_s if number == INTERRUPTED else None
        barge_in = await _listen(stream, heard, start, interruption)
        if heard.last is not None:
            endpoint.spent.add(heard.last)
        turns.append(_turn(heard, pipeline, barge_in))
        history.append({"role": "assistant", "content": recorded})
    return turns


class _Heard:
    """A stream as it comes.

    Attributes:
        pieces: of the answer.
        tokens: of the answer, until each piece.
        counts: when a chunk came that had anything in it, and the tokens of any kind until then.
        last: the chunk with the usage; None before it.
    """

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.tokens: list[int] = []
        self.counts: list[tuple[float, int]] = []
        self.last: Any = None

    def add(self, chunk: Any, at: float) -> None:
        """A chunk that came ``at`` seconds after the request."""
        if not chunk.choices:
            self.last = chunk if chunk.usage else self.last
            return
        delta = chunk.choices[0].delta
        text = delta.content or ""
        if not text and not (delta.model_extra or {}).get("reasoning_content"):
            return
        before = self.counts[-1][1] if self.counts else 0
        count = chunk.usage.completion_tokens if chunk.usage else before + 1  # nobody says: then a chunk is a token
        self.counts.append((at, count))
        if text:
            self.pieces.append((at, text))
            self.tokens.append((self.tokens[-1] if self.tokens else 0) + count - before)

    @property
    def clause_s(self) -> float | None:
        """When there was something to speak."""
        return first_clause_s(self.pieces, self.tokens)

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens after the first chunk by the time after it."""
        (first_at, first), (last_at, last) = self.counts[0], self.counts[-1]
        if self.last is not None:
            last = self.last.usage.completion_tokens
        return (last - first) / (last_at - first_at) if last_at > first_at else None


async def _listen(stream: Any, heard: _Heard, start: float, interruption: float | None) -> BargeIn | None:
    """Read to the end, or until an interruption, which begins with the voice, is detected."""
    silent_s = interruption  # of an answer that is all there when it is interrupted: the voice stops, and that is all
    try:
        async with stream, asyncio.timeout(None) as limit:
            async for chunk in stream:
                heard.add(chunk, time.perf_counter() - start)
                if interruption is not None and limit.when() is None and heard.clause_s is not None:
                    limit.reschedule(asyncio.get_running_loop().time() + interruption)
    except TimeoutError:
        silent_s = time.perf_counter() - start - (heard.clause_s or 0.0)
    if interruption is None or silent_s is None or heard.clause_s is None:
        return None
    return BargeIn(silent_s, heard.counts[-1][1], int(interruption * WORDS_PER_MINUTE / 60))


def _turn(heard: _Heard, pipeline: Pipeline, barge_in: BargeIn | None) -> Turn:
    text = "".join(piece for _, piece in heard.pieces)
    speaks_s = heard.clause_s or (heard.pieces[-1][0] if heard.pieces else None)  # what is short is said at its end
    details = heard.last and heard.last.usage.completion_tokens_details
    return Turn(
        text=text,
        ttft_s=heard.counts[0][0] if heard.counts else None,
        tokens_per_s=heard.tokens_per_s if heard.counts and barge_in is None else None,
        thinking_tokens=(details and details.reasoning_tokens) or 0,
        silence_s=None if speaks_s is None else pipeline.before_s + speaks_s + pipeline.after_s,
        underruns=[] if speaks_s is None else play(heard.pieces, speaks_s).underruns,
        barge_in=barge_in,
    )
