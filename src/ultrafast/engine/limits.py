"""What a request may ask: every number is checked here before native code sees it."""

from __future__ import annotations

import math
from typing import Any

from ultrafast.errors import PromptTooLong, RequestError
from ultrafast.types import GenerateRequest, SamplingParams

MAX_LOGPROBS = 20
MAX_STOPS = 16

# field: lowest, highest (inclusive)
_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 100.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 100.0),
    "presence_penalty": (-100.0, 100.0),
    "frequency_penalty": (-100.0, 100.0),
}


def check_request(request: GenerateRequest, vocab_size: int, max_context: int) -> None:
    """Check prompt and parameters against their ranges and the context.

    Raises:
        RequestError: ``param`` names the field.
        PromptTooLong: the prompt leaves no room for output, or not for ``max_tokens``.
    """
    _check_params(request.params, vocab_size)
    prompt = request.prompt_ids
    if not prompt:
        raise RequestError("the prompt is empty: give at least one token", param="prompt")
    for token in prompt:
        if not 0 <= token < vocab_size:
            raise RequestError(f"token id {token} is not in the vocabulary of {vocab_size}", param="prompt")
    if len(prompt) >= max_context:
        raise PromptTooLong(
            f"the prompt has {len(prompt)} tokens; the context of {max_context} tokens is for prompt and output",
            param="prompt",
        )
    asked = request.params.max_tokens
    if asked is not None and len(prompt) + asked > max_context:
        raise PromptTooLong(
            f"the prompt's {len(prompt)} tokens and the {asked} of max_tokens make {len(prompt) + asked}; "
            f"this model's context is {max_context} tokens: ask for at most {max_context - len(prompt)}",
            param="max_tokens",
        )


def resolve_max_tokens(request: GenerateRequest, max_context: int) -> int:
    """Output tokens that a checked request may have at most."""
    return request.params.max_tokens or max_context - len(request.prompt_ids)


def _check_params(params: SamplingParams, vocab_size: int) -> None:
    for name, (low, high) in _RANGES.items():
        value = getattr(params, name)
        if not _is_number(value) or not low <= value <= high:
            raise RequestError(f"{name} must be a number from {low:g} to {high:g}, not {value!r}", param=name)
    if params.top_p == 0.0:
        raise RequestError("top_p must be greater than 0", param="top_p")
    if params.max_tokens is not None:
        _check_int("max_tokens", params.max_tokens, 1, 2**31 - 1)
    _check_int("top_k", params.top_k, 0, 2**31 - 1)
    _check_int("seed", params.seed, -(2**63), 2**64 - 1)
    if params.logprobs is not None:
        _check_int("logprobs", params.logprobs, 0, MAX_LOGPROBS)
    if len(params.stop) > MAX_STOPS or not all(isinstance(stop, str) and stop for stop in params.stop):
        raise RequestError(f"stop must be at most {MAX_STOPS} strings, none of them empty", param="stop")
    for token, bias in params.logit_bias.items():
        _check_int("logit_bias", token, 0, vocab_size - 1)
        if not _is_number(bias):
            raise RequestError(f"logit_bias of token {token} must be a finite number, not {bias!r}", param="logit_bias")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check_int(name: str, value: Any, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise RequestError(f"{name} must be a whole number from {low} to {high}, not {value!r}", param=name)
