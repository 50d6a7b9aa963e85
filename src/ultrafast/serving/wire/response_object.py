"""The ``response`` object: what it repeats of its request, and its usage."""

from __future__ import annotations

from typing import Any

import msgspec

from ultrafast.serving.wire.fields import or_one
from ultrafast.serving.wire.responses_request import Asked, Reasoning, TextFormat
from ultrafast.types import Usage


def echo(asked: Asked) -> dict[str, Any]:
    """What a response repeats of its request, and the fields that are empty until its end."""
    ask = asked.ask
    return {
        "background": False,
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "instructions": ask.instructions,
        "max_output_tokens": ask.max_output_tokens,
        "metadata": ask.metadata or {},
        "output": [],
        "parallel_tool_calls": ask.parallel_tool_calls is not False,
        "previous_response_id": ask.previous_response_id,
        "prompt_cache_key": ask.prompt_cache_key,
        "reasoning": msgspec.to_builtins(ask.reasoning or Reasoning()),
        "temperature": or_one(ask.temperature),
        "text": {"format": _given(asked.format), "verbosity": ask.text.verbosity if ask.text else None},
        "tool_choice": ask.tool_choice or "auto",
        "tools": ask.tools or [],
        "top_logprobs": ask.top_logprobs or 0,
        "top_p": or_one(ask.top_p),
        "truncation": ask.truncation or "disabled",
        "ultrafast": None,
        "usage": None,
        "user": ask.user,
    }


def usage_of(usage: Usage, *, reasoning_tokens: int) -> dict[str, Any]:
    """The ``usage`` object."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {
            "reasoning_tokens": reasoning_tokens,
            "accepted_prediction_tokens": usage.accepted_draft_tokens,
            "rejected_prediction_tokens": usage.rejected_draft_tokens,
        },
        "total_tokens": usage.total_tokens,
    }


def _given(format: TextFormat) -> dict[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(format).items() if value is not None}
