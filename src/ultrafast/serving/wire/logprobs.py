"""Token log-probabilities in OpenAI's form; Chat and Responses use the same entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ultrafast.types import TokenLogprob


class Vocabulary(Protocol):
    """What is needed of a tokenizer here."""

    def token_bytes(self, token_id: int) -> bytes: ...


def logprob_entries(vocabulary: Vocabulary, logprobs: Sequence[TokenLogprob] | None) -> list[dict[str, Any]]:
    """``{token, logprob, bytes, top_logprobs}`` of each token; empty when they were not asked for."""
    return [
        {
            **_entry(vocabulary, item.token_id, item.logprob),
            "top_logprobs": [_entry(vocabulary, token_id, logprob) for token_id, logprob in item.top],
        }
        for item in logprobs or ()
    ]


def _entry(vocabulary: Vocabulary, token_id: int, logprob: float) -> dict[str, Any]:
    raw = vocabulary.token_bytes(token_id)
    # A token may be part of a character: ``bytes`` has it exactly, ``token`` shows what can be shown.
    return {"token": raw.decode("utf-8", "replace"), "logprob": sayable(logprob), "bytes": list(raw)}


def sayable(logprob: float) -> float:
    """The API has no -inf, JSON neither."""
    return max(logprob, -9999.0)
