"""The request of ``POST /v1/chat/completions``: its fields, their ranges, and what they mean to the engine."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from ultrafast.serving.generate import Job, choices
from ultrafast.serving.tiers import tier_of
from ultrafast.serving.wire.body import refuse, unsupported
from ultrafast.serving.wire.messages import Content, plain_message, plain_text
from ultrafast.types import SamplingParams

MAX_CHOICES = 8
MAX_STOPS = 4

Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
TopP = Annotated[float, Meta(gt=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
TopLogprobs = Annotated[int, Meta(ge=0, le=20)]
Stop = Annotated[str, Meta(min_length=1, max_length=1000)]
Metadata = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]], Meta(max_length=16)
]


Overflow = Literal["default", "queue", "reject"]
CacheSalt = Annotated[str, Meta(max_length=256)]
Deadline = Annotated[float, Meta(gt=0, le=86400)]


class ChatMessage(Struct):
    role: str
    content: Content | None = None
    tool_calls: list[Any] | None = None
    function_call: Any = None


class StreamOptions(Struct):
    include_usage: bool | None = None


class ResponseFormat(Struct):
    type: str


class Prediction(Struct):
    """What the answer probably is."""

    type: Literal["content"]
    content: Content


class ChatRequest(Struct):
    """Fields that are honoured, or refused when they ask for what is not there; all others are ignored."""

    model: str
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
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
    stop: Stop | Annotated[list[Stop], Meta(max_length=MAX_STOPS)] | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    service_tier: str | None = None
    service_tier_overflow: Overflow | None = None
    cache_salt: CacheSalt | None = None
    deadline_s: Deadline | None = None
    prediction: Prediction | None = None
    metadata: Metadata | None = None
    user: str | None = None
    store: bool | None = None
    response_format: ResponseFormat | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    functions: list[Any] | None = None
    modalities: list[str] | None = None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return bool(self.stream_options and self.stream_options.include_usage)


DECODER = msgspec.json.Decoder(ChatRequest)


def job(request: ChatRequest) -> Job:
    """What the engine is to do.

    Raises:
        RequestError: 400 for a combination or feature that is not served.
    """
    _refuse_unsupported(request)
    if request.top_logprobs is not None and not request.logprobs:
        raise refuse("top_logprobs", "'top_logprobs' needs 'logprobs': true.")
    messages = []
    for index, message in enumerate(request.messages):
        where = f"messages[{index}]"
        if message.tool_calls or message.function_call:
            raise unsupported(f"{where}.tool_calls", "Calling tools")
        messages.append(plain_message(message.role, message.content, where))
    limit = "max_tokens" if request.max_completion_tokens is None else "max_completion_tokens"
    return Job(
        prompt=messages,
        params=choices(_params(request), n=request.n or 1, seed=request.seed),
        tier=tier_of(request.service_tier),
        fields={"max_tokens": limit, "logprobs": "top_logprobs", "prompt": "messages"},
        overflow=request.service_tier_overflow,
        prediction=plain_text(request.prediction.content, "prediction.content") if request.prediction else "",
        cache_salt=request.cache_salt or "",
        deadline_s=request.deadline_s,
    )


def _params(request: ChatRequest) -> SamplingParams:
    def or_default(value: float | None, default: float) -> float:
        return default if value is None else value

    stop = request.stop or ()
    return SamplingParams(
        max_tokens=request.max_completion_tokens or request.max_tokens,
        temperature=or_default(request.temperature, 1.0),
        top_k=request.top_k or 0,
        top_p=or_default(request.top_p, 1.0),
        min_p=request.min_p or 0.0,
        repetition_penalty=or_default(request.repetition_penalty, 1.0),
        presence_penalty=request.presence_penalty or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        logit_bias=request.logit_bias or {},
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        logprobs=(request.top_logprobs or 0) if request.logprobs else None,
    )


def _refuse_unsupported(request: ChatRequest) -> None:
    if request.tools and request.tool_choice != "none":
        raise unsupported("tools", "Calling tools (with a tool_choice other than 'none')")
    if request.functions:
        raise unsupported("functions", "Calling functions")
    if request.response_format and request.response_format.type != "text":
        raise unsupported("response_format", f"The response format {request.response_format.type[:64]!r}")
    if any(modality != "text" for modality in request.modalities or ()):
        raise unsupported("modalities", "Output other than text")
