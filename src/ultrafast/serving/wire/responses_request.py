"""The request of ``POST /v1/responses``: its fields, their ranges, and what they mean to the engine."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from ultrafast.errors import RequestError
from ultrafast.serving.generate import Job, choices
from ultrafast.serving.tiers import tier_of
from ultrafast.serving.wire.body import refuse, unsupported
from ultrafast.serving.wire.chat_request import (
    CacheSalt,
    Count,
    Deadline,
    Metadata,
    Overflow,
    Temperature,
    TopLogprobs,
    TopP,
)
from ultrafast.serving.wire.messages import Content, plain_message
from ultrafast.types import Message, SamplingParams

INCLUDE_LOGPROBS = "message.output_text.logprobs"


class InputItem(Struct):
    """An item of ``input``: a message, with or without ``type``, or something else."""

    type: str | None = None
    role: str | None = None
    content: Content | None = None


class TextFormat(Struct):
    type: str


class TextConfig(Struct):
    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Reasoning(Struct):
    """Accepted and echoed; the models served here do not reason apart."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class ResponsesRequest(Struct):
    """Fields that are honoured or echoed, or refused when they ask for what is not there; all others are ignored."""

    model: str
    input: str | list[InputItem] | None = None
    instructions: str | None = None
    max_output_tokens: Count | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_logprobs: TopLogprobs | None = None
    include: list[str] | None = None
    stream: bool | None = None
    service_tier: str | None = None
    service_tier_overflow: Overflow | None = None
    cache_salt: CacheSalt | None = None
    deadline_s: Deadline | None = None
    metadata: Metadata | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    truncation: Literal["auto", "disabled"] | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    background: bool | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    prompt_cache_key: str | None = None
    user: str | None = None
    conversation: Any = None
    prompt: Any = None
    moderation: Any = None
    context_management: Any = None


DECODER = msgspec.json.Decoder(ResponsesRequest)


def job(request: ResponsesRequest) -> Job:
    """What the engine is to do.

    Raises:
        RequestError: 400 for a combination or feature that is not served.
    """
    _refuse_unsupported(request)
    with_logprobs = INCLUDE_LOGPROBS in (request.include or ())
    params = SamplingParams(
        max_tokens=request.max_output_tokens,
        temperature=temperature(request),
        top_p=top_p(request),
        logprobs=(request.top_logprobs or 0) if with_logprobs else None,
    )
    return Job(
        prompt=_messages(request),
        params=choices(params, n=1, seed=None),  # `seed` and `n` are no fields of this API
        tier=tier_of(request.service_tier),
        fields={
            "max_tokens": "max_output_tokens",
            "logprobs": "top_logprobs",
            "prompt": "input",
            "messages": "input",
        },
        overflow=request.service_tier_overflow,
        cache_salt=request.cache_salt or "",
        deadline_s=request.deadline_s,
    )


def temperature(request: ResponsesRequest) -> float:
    """The temperature in force."""
    return 1.0 if request.temperature is None else request.temperature


def top_p(request: ResponsesRequest) -> float:
    """The nucleus in force."""
    return 1.0 if request.top_p is None else request.top_p


def _messages(request: ResponsesRequest) -> list[Message]:
    if request.input is None:
        raise RequestError("Missing required parameter: 'input'.", param="input", code="missing_required_parameter")
    messages: list[Message] = []
    if request.instructions:
        messages.append({"role": "system", "content": request.instructions})
    if isinstance(request.input, str):
        return [*messages, {"role": "user", "content": request.input}]
    for index, item in enumerate(request.input):
        where = f"input[{index}]"
        kind = item.type or "message"
        if kind == "reasoning":
            continue  # what an earlier turn thought; the template has no place for it
        if kind != "message":
            raise unsupported(f"{where}.type", f"Input of type {kind[:64]!r}")
        if item.role is None:
            raise refuse(f"{where}.role", "A message needs a role.")
        messages.append(plain_message(item.role, item.content, where))
    if not messages:
        raise refuse("input", "The input has no message.")
    return messages


def _refuse_unsupported(request: ResponsesRequest) -> None:
    if request.previous_response_id is not None:
        raise RequestError(
            f"Previous response with id {request.previous_response_id[:64]!r} not found: this server stores no "
            "responses yet. Send the whole conversation as 'input'.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    if request.tools and request.tool_choice != "none":
        raise unsupported("tools", "Calling tools (with a tool_choice other than 'none')")
    if request.text and request.text.format and request.text.format.type != "text":
        raise unsupported("text.format", f"The text format {request.text.format.type[:64]!r}")
    if request.truncation == "auto":
        raise unsupported("truncation", "Truncation 'auto' (dropping the oldest items)")
    for name in ("background", "conversation", "prompt", "moderation", "context_management"):
        if getattr(request, name):
            raise unsupported(name, f"'{name}'")
