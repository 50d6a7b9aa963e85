"""The request of ``POST /v1/completions``: raw prompts, and what may be asked about their continuation."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from ultrafast.engine.limits import MAX_STOPS
from ultrafast.serving.generate import Job, choices
from ultrafast.serving.tiers import tier_of
from ultrafast.serving.wire.body import convert, refuse, unsupported
from ultrafast.serving.wire.chat_request import (
    CacheSalt,
    Deadline,
    Overflow,
    Penalty,
    Seed,
    Stop,
    StreamOptions,
    Temperature,
    TopP,
)
from ultrafast.types import SamplingParams

MAX_CHOICES = 128  # prompts times `n`
DEFAULT_MAX_TOKENS = 16

Prompt = str | list[int]


class CompletionRequest(Struct):
    """Fields that are honoured, or refused when they ask for what is not there; all others are ignored."""

    model: str
    prompt: str | list[Any]
    max_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=10)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: Annotated[dict[int, Annotated[float, Meta(ge=-100, le=100)]], Meta(max_length=1024)] | None = None
    seed: Seed | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    best_of: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    stop: Stop | Annotated[list[Stop], Meta(max_length=MAX_STOPS)] | None = None
    logprobs: Annotated[int, Meta(ge=0, le=5)] | None = None
    echo: bool | None = None
    suffix: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    service_tier: str | None = None
    service_tier_overflow: Overflow | None = None
    cache_salt: CacheSalt | None = None
    deadline_s: Deadline | None = None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return bool(self.stream_options and self.stream_options.include_usage)


DECODER = msgspec.json.Decoder(CompletionRequest)


def prompts_of(sent: str | list[Any]) -> list[Prompt]:
    """The prompts of a request: one text, one list of token ids, or a list of either.

    Raises:
        RequestError: 400 naming the item at fault.
    """
    if isinstance(sent, str):
        return [sent]
    if not sent:
        raise refuse("prompt", "The prompt is an empty list; send text, token ids, or a list of either.")
    if isinstance(sent[0], str):
        return [*convert(sent, list[str], "prompt")]
    if isinstance(sent[0], list):
        return [*convert(sent, list[list[int]], "prompt")]
    return [convert(sent, list[int], "prompt")]


def jobs(request: CompletionRequest, prompts: list[Prompt]) -> list[Job]:
    """What the engine is to do: one job a prompt.

    Raises:
        RequestError: 400 for a combination or feature that is not served.
    """
    n = request.n or 1
    _check(request, n * len(prompts))
    params = _params(request)
    return [
        Job(
            prompt=prompt,
            params=choices(params, n=n, seed=request.seed),
            tier=tier_of(request.service_tier),
            fields={"messages": "prompt", "n": "n" if n > 1 else "prompt"},
            overflow=request.service_tier_overflow,
            cache_salt=request.cache_salt or "",
            deadline_s=request.deadline_s,
            prompt_logprobs=request.logprobs if request.echo else None,
        )
        for prompt in prompts
    ]


def _params(request: CompletionRequest) -> SamplingParams:
    def or_default(value: float | None, default: float) -> float:
        return default if value is None else value

    max_tokens = DEFAULT_MAX_TOKENS if request.max_tokens is None else request.max_tokens
    stop = request.stop or ()
    return SamplingParams(
        max_tokens=max_tokens,
        temperature=or_default(request.temperature, 1.0),
        top_k=request.top_k or 0,
        top_p=or_default(request.top_p, 1.0),
        min_p=request.min_p or 0.0,
        repetition_penalty=or_default(request.repetition_penalty, 1.0),
        presence_penalty=request.presence_penalty or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        logit_bias=request.logit_bias or {},
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        logprobs=request.logprobs,
        # Who scores a prompt asks for one token more and cuts it off: it has to be there, whatever it is.
        ignore_eos=max_tokens == 1 and bool(request.echo) and request.logprobs is not None,
    )


def _check(request: CompletionRequest, num_choices: int) -> None:
    if request.suffix:
        raise unsupported("suffix", "Text after the completion")
    if request.best_of is not None and request.best_of != (request.n or 1):
        raise unsupported("best_of", "'best_of' other than 'n' (choosing the best of more completions)")
    if num_choices > MAX_CHOICES:
        raise refuse(
            "n" if request.n and request.n > 1 else "prompt",
            f"A request may have at most {MAX_CHOICES} choices (prompts times 'n'), not {num_choices}.",
        )
    if request.max_tokens == 0 and not request.echo:
        raise refuse("max_tokens", "'max_tokens': 0 asks for nothing, unless 'echo' is true.")
