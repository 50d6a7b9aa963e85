"""What a request may ask: every number is checked here before native code sees it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from ultrafast.engine.tiers import TIERS, Overflow
from ultrafast.errors import PromptTooLong, RequestError
from ultrafast.types import GenerateRequest, SamplingParams

MAX_LOGPROBS = 20
MAX_STOPS = 16
MAX_DEADLINE_S = 86400.0

# field: lowest, highest (inclusive)
_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 100.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 100.0),
    "presence_penalty": (-100.0, 100.0),
    "frequency_penalty": (-100.0, 100.0),
}
_MAX_BIAS = 100.0  # as OpenAI has it: enough to force or to forbid a token


def check_request(request: GenerateRequest, vocab_size: int, max_context: int) -> None:
    """Check the request against the ranges of its fields and the context.

    Raises:
        RequestError: ``param`` names the field.
        PromptTooLong: the prompt leaves no room for output, or not for ``max_tokens``.
    """
    _check_params(request.params, vocab_size, least_tokens=1 if request.prompt_logprobs is None else 0)
    _check_service(request)
    prompt, asked = request.prompt_ids, request.params.max_tokens
    if len(prompt) + (asked != 0) > max_context:
        raise PromptTooLong(
            f"the prompt has {len(prompt)} tokens; the context of {max_context} tokens is for prompt and output",
            param="prompt",
            tokens=len(prompt),
            limit=max_context - 1,
        )
    check_prompt(prompt, vocab_size)
    _check_tokens("prediction", request.prediction, vocab_size)
    if asked is not None and len(prompt) + asked > max_context:
        raise PromptTooLong(
            f"the prompt's {len(prompt)} tokens and the {asked} of max_tokens make {len(prompt) + asked}; "
            f"this model's context is {max_context} tokens: ask for at most {max_context - len(prompt)}",
            param="max_tokens",
        )


def check_prompt(token_ids: Sequence[int], vocab_size: int) -> None:
    """Check that there are tokens, all of them in the vocabulary.

    Raises:
        RequestError: they are not.
    """
    if not token_ids:
        raise RequestError("the prompt is empty: give at least one token", param="prompt")
    _check_tokens("prompt", token_ids, vocab_size)


def resolve_max_tokens(request: GenerateRequest, max_context: int) -> int:
    """Output tokens that a checked request may have at most."""
    asked = request.params.max_tokens
    return max_context - len(request.prompt_ids) if asked is None else asked


def _check_params(params: SamplingParams, vocab_size: int, *, least_tokens: int) -> None:
    for name, (low, high) in _RANGES.items():
        value = getattr(params, name)
        if not _is_number(value) or not low <= value <= high:
            raise RequestError(f"{name} must be a number from {low:g} to {high:g}, not {_shown(value)}", param=name)
    if params.top_p == 0.0:
        raise RequestError("top_p must be greater than 0", param="top_p")
    if params.max_tokens is not None:
        _check_int("max_tokens", params.max_tokens, least_tokens, 2**31 - 1)
    _check_int("top_k", params.top_k, 0, 2**31 - 1)
    _check_int("seed", params.seed, -(2**63), 2**64 - 1)
    if params.logprobs is not None:
        _check_int("logprobs", params.logprobs, 0, MAX_LOGPROBS)
    if not isinstance(params.ignore_eos, bool):
        raise RequestError(f"ignore_eos must be true or false, not {_shown(params.ignore_eos)}", param="ignore_eos")
    _check_stop(params.stop)
    _check_logit_bias(params.logit_bias, vocab_size)


def _check_service(request: GenerateRequest) -> None:
    if request.tier not in TIERS:
        raise RequestError(f"tier must be one of {', '.join(TIERS)}, not {_shown(request.tier)}", param="tier")
    policies = [policy.value for policy in Overflow]
    if request.overflow is not None and request.overflow not in policies:
        raise RequestError(
            f"overflow must be one of {', '.join(policies)}, not {_shown(request.overflow)}", param="overflow"
        )
    if not isinstance(request.cache_salt, str):
        raise RequestError(f"cache_salt must be a string, not {_shown(request.cache_salt)}", param="cache_salt")
    if request.grammar is not None and not isinstance(request.grammar, str):
        raise RequestError(f"grammar must be a string, not {_shown(request.grammar)}", param="grammar")
    if request.prompt_logprobs is not None:
        _check_int("prompt_logprobs", request.prompt_logprobs, 0, MAX_LOGPROBS)
    deadline = request.deadline_s
    if deadline is not None and not (_is_number(deadline) and 0 < deadline <= MAX_DEADLINE_S):
        raise RequestError(
            f"deadline_s must be a number above 0, up to {MAX_DEADLINE_S:g}, not {_shown(deadline)}", param="deadline_s"
        )


def _check_tokens(name: str, token_ids: Sequence[int], vocab_size: int) -> None:
    for token in token_ids:
        if not _is_int(token) or not 0 <= token < vocab_size:
            raise RequestError(f"token id {_shown(token)} is not in the vocabulary of {vocab_size}", param=name)


def _check_stop(stop: Any) -> None:
    is_list = isinstance(stop, list | tuple) and len(stop) <= MAX_STOPS
    if not is_list or not all(isinstance(text, str) and text for text in stop):
        raise RequestError(f"stop must be at most {MAX_STOPS} strings, none of them empty", param="stop")


def _check_logit_bias(biases: Any, vocab_size: int) -> None:
    if not isinstance(biases, Mapping):
        raise RequestError(f"logit_bias must map token ids to numbers, not be {_shown(biases)}", param="logit_bias")
    for token, bias in biases.items():
        _check_int("a token id of logit_bias", token, 0, vocab_size - 1, param="logit_bias")
        if not _is_number(bias) or abs(bias) > _MAX_BIAS:
            raise RequestError(
                f"logit_bias of token {token} must be a number from {-_MAX_BIAS:g} to {_MAX_BIAS:g}, "
                f"not {_shown(bias)}",
                param="logit_bias",
            )


def _is_int(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_int(value) or (isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value))


def _check_int(name: str, value: Any, low: int, high: int, *, param: str | None = None) -> None:
    if not _is_int(value) or not low <= value <= high:
        raise RequestError(
            f"{name} must be a whole number from {low} to {high}, not {_shown(value)}", param=param or name
        )


def _shown(value: Any) -> str:
    """A value as messages name it."""
    try:
        text = repr(value)
    except ValueError:  # Python prints no integer of more than 4,300 digits
        return "a number of thousands of digits"
    return text if len(text) <= 80 else f"{text[:77]}..."
