"""The request of ``POST /v1/completions``: raw prompts, and what may be asked about their continuation."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ultrafast.engine.limits import MAX_STOPS
from ultrafast.serving.generate import Job, choices
from ultrafast.serving.tiers import tier_of
from ultrafast.serving.wire.body import convert, refuse, unsupported
from ultrafast.serving.wire.fields import SampledRequest, Stop
from ultrafast.types import SamplingParams

MAX_CHOICES = 128  # prompts times `n`
DEFAULT_MAX_TOKENS = 16

Prompt = str | list[int]


class CompletionRequest(SampledRequest, kw_only=True):
    """Fields that are honoured, or refused when they ask for what is not there; all others are ignored."""

    model: str
    prompt: str | list[Any]
    max_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    best_of: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    stop: Stop | Annotated[list[Stop], Meta(max_length=MAX_STOPS)] | None = None
    logprobs: Annotated[int, Meta(ge=0, le=5)] | None = None
    echo: bool | None = None
    suffix: str | None = None


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
    max_tokens = DEFAULT_MAX_TOKENS if request.max_tokens is None else request.max_tokens
    return request.sampling(
        max_tokens=max_tokens,
        stop=request.stop,
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
