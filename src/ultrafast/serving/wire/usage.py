"""What an answer of Chat Completions or Completions says of its tokens, and any answer of the time it took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ultrafast.engine.stream import TokenStream
from ultrafast.types import Usage


def usage_object(prompts: Sequence[Usage], outputs: Sequence[Usage], *, reasoning_tokens: int = 0) -> dict[str, Any]:
    """The ``usage`` of a whole answer.

    Args:
        prompts: one a prompt, however many choices have it.
        outputs: one a choice.
        reasoning_tokens: of the output.
    """
    prompt = sum(usage.prompt_tokens for usage in prompts)
    completion = sum(usage.completion_tokens for usage in outputs)
    return {
        **_counts(prompt, completion),
        "prompt_tokens_details": {"cached_tokens": sum(usage.cached_tokens for usage in prompts)},
        "completion_tokens_details": {
            "reasoning_tokens": reasoning_tokens,
            "accepted_prediction_tokens": sum(usage.accepted_draft_tokens for usage in outputs),
            "rejected_prediction_tokens": sum(usage.rejected_draft_tokens for usage in outputs),
        },
    }


class ChunkUsage:
    """What the chunks of one stream have as ``usage``.

    Args:
        present: there is such a field.
        running: it counts with every chunk (vLLM's ``continuous_usage_stats``); otherwise it is null until the last.
        prompt_tokens: of all prompts.
    """

    def __init__(self, *, present: bool, running: bool, prompt_tokens: int) -> None:
        self._present = present
        self._running = running
        self._prompt_tokens = prompt_tokens
        self._completion_tokens = 0

    def add(self, tokens: int) -> None:
        """The next chunks tell of so many more tokens."""
        self._completion_tokens += tokens

    @property
    def field(self) -> dict[str, Any]:
        """For the chunk: empty where there is no such field."""
        if not self._present:
            return {}
        return {"usage": _counts(self._prompt_tokens, self._completion_tokens) if self._running else None}


def measured(streams: Sequence[TokenStream]) -> dict[str, Any]:
    """The object ``ultrafast`` of an answer that has ended: milliseconds as the server measured them, and drafts.

    Of several choices, each phase ends when the first of them leaves it, and the last phase with the last of them: the
    three add up to the time from the request's way into the engine to its last token.
    """
    timings = [stream.timings for stream in streams]
    submitted = min(stream.submitted for stream in streams)
    started = min(moments.started for moments in timings)
    first_token = min(moments.first_token for moments in timings)
    finished = max(moments.finished for moments in timings)
    usages = [stream.usage for stream in streams]
    accepted = sum(usage.accepted_draft_tokens for usage in usages)
    return {
        "queue_ms": _ms(started - submitted),
        "prefill_ms": _ms(first_token - started),
        "decode_ms": _ms(finished - first_token),
        "drafted_tokens": accepted + sum(usage.rejected_draft_tokens for usage in usages),
        "accepted_tokens": accepted,
    }


def _counts(prompt: int, completion: int) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)
