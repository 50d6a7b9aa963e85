"""Figures call by call: columns of a cell, from which everything else is computed.

``None``: not measured. What never ended, or was empty, is ``inf`` among times and 0 among speeds, so that errors and
timeouts count inside percentiles; calls that we cancelled are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ultrafast.bench.client.call import Call, Outcome

Column = list[float | None]

CLAUSE_TOKENS = 12
"""So many tokens are enough to begin to speak, even without punctuation."""
_CLAUSE_ENDS = ".,;:!?…。，；：！？、\n"


def columns(calls: Sequence[Call]) -> dict[str, Column]:
    """Times in seconds from the intended start, and speeds in tokens a second."""
    return {
        name: [_time(call, of(call)) for call in calls] if name != SPEED else [_speed(call) for call in calls]
        for name, of in _COLUMNS.items()
    }


def counts(calls: Sequence[Call]) -> dict[str, Column]:
    """Tokens, and what is not a matter of faster or slower."""
    return {
        "prompt_tokens": [call.prompt_tokens for call in calls],
        "cached_tokens": [call.cached_tokens for call in calls],
        "output_tokens": [call.output_tokens for call in calls],
        "reasoning_tokens": [call.reasoning_tokens for call in calls],
        "tokens_per_chunk": [_tokens_per_chunk(call) for call in calls],
        "wait_to_send_s": [None if call.sent_s is None else call.sent_s - call.intended_s for call in calls],
    }


def measured(column: Sequence[float | None]) -> list[float]:
    return [value for value in column if value is not None]


def kept(calls: Sequence[Call]) -> list[Call]:
    """Those that we did not cancel."""
    return [call for call in calls if call.outcome is not Outcome.CANCELLED]


def is_answered(call: Call) -> bool:
    """Whether it ended well, with a token: an empty answer is as good as none."""
    return call.is_ok and bool(call.chunks)


def decode_s(call: Call) -> float | None:
    """Time between first and last token: as the server states it, else as it was seen."""
    if call.server.decode_s is not None:
        return call.server.decode_s
    if call.first_token_s is None or call.last_token_s is None:
        return None
    return call.last_token_s - call.first_token_s


def first_clause_s(call: Call) -> float | None:
    """Time until there is something to say: a first mark of punctuation, or `CLAUSE_TOKENS` tokens of the answer."""
    position, tokens = 0, 0.0
    for chunk in call.chunks:
        if chunk.kind != "answer":
            continue
        piece = call.text[position : position + chunk.characters]
        position += chunk.characters
        tokens += chunk.tokens
        if tokens >= CLAUSE_TOKENS or any(mark in piece for mark in _CLAUSE_ENDS):
            return chunk.at_s - call.intended_s
    return call.e2e_s if position else None  # the whole answer was shorter than a clause


SPEED = "output_speed"
_COLUMNS: Mapping[str, Callable[[Call], float | None]] = {
    SPEED: lambda call: call.output_speed,
    "ttft_s": lambda call: call.ttft_s,
    "ttfat_s": lambda call: call.ttfat_s,
    "first_clause_s": first_clause_s,
    "e2e_s": lambda call: call.e2e_s,
    "longest_gap_s": lambda call: call.longest_gap_s,
}


def _time(call: Call, value: float | None) -> float | None:
    return value if is_answered(call) else math.inf


def _speed(call: Call) -> float | None:
    return call.output_speed if is_answered(call) else 0.0


def _tokens_per_chunk(call: Call) -> float | None:
    if not call.chunks or call.token_source == "unknown":
        return None
    return sum(chunk.tokens for chunk in call.chunks) / len(call.chunks)
