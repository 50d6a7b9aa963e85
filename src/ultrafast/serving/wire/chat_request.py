"""The request of ``POST /v1/chat/completions``: its fields, their ranges, and what they mean to the engine."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from ultrafast.serving.generate import Job, choices
from ultrafast.serving.tiers import tier_of
from ultrafast.serving.wire.body import missing, refuse, refuse_deep, unsupported
from ultrafast.serving.wire.chat_messages import ChatMessage, to_messages
from ultrafast.serving.wire.fields import Count, FormatName, Metadata, SampledRequest, Stop, TopLogprobs
from ultrafast.serving.wire.messages import Content, plain_text
from ultrafast.serving.wire.tools import choice_of, tools_of
from ultrafast.types import OutputFormat, Tool, ToolChoice

MAX_CHOICES = 8
MAX_STOPS = 4


class JsonSchema(Struct):
    """The schema of an answer. It is kept whether ``strict`` or not."""

    name: FormatName
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class ResponseFormat(Struct):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class Prediction(Struct):
    """What the answer probably is."""

    type: Literal["content"]
    content: Content


class ChatRequest(SampledRequest, kw_only=True):
    """Fields that are honoured, or refused when they ask for what is not there; all others are ignored."""

    model: str
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    stop: Stop | Annotated[list[Stop], Meta(max_length=MAX_STOPS)] | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    prediction: Prediction | None = None
    metadata: Metadata | None = None
    user: str | None = None
    store: bool | None = None
    response_format: ResponseFormat | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    functions: list[dict[str, Any]] | None = None
    function_call: Literal["none", "auto"] | dict[str, Any] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    modalities: list[str] | None = None
    audio: Any = None

    @property
    def is_legacy(self) -> bool:
        """Whether calls are answered as they were before there were tools."""
        return bool(self.functions)


DECODER = msgspec.json.Decoder(ChatRequest)


def job(request: ChatRequest) -> Job:
    """What the engine is to do.

    Raises:
        RequestError: 400 for a combination or feature that is not served.
    """
    _refuse_unsupported(request)
    if request.top_logprobs is not None and not request.logprobs:
        raise refuse("top_logprobs", "'top_logprobs' needs 'logprobs': true.")
    for name in ("tools", "functions"):
        refuse_deep(getattr(request, name), name)
    tools, choice = _functions(request) if request.is_legacy else _tools(request)
    output = _output(request.response_format)
    params = request.sampling(
        max_tokens=request.max_completion_tokens or request.max_tokens,
        stop=request.stop,
        logprobs=(request.top_logprobs or 0) if request.logprobs else None,
    )
    return Job(
        prompt=to_messages(request.messages),
        params=choices(params, n=request.n or 1, seed=request.seed),
        tier=tier_of(request.service_tier),
        fields=_fields(request, output),
        overflow=request.service_tier_overflow,
        prediction=plain_text(request.prediction.content, "prediction.content") if request.prediction else "",
        cache_salt=request.cache_salt or "",
        deadline_s=request.deadline_s,
        tools=tools,
        choice=choice,
        output=output,
    )


def _tools(request: ChatRequest) -> tuple[list[Tool], ToolChoice]:
    tools = tools_of(request.tools, "tools", nested=True)
    parallel = request.parallel_tool_calls
    return tools, choice_of(request.tool_choice, tools, "tool_choice", nested=True, parallel=parallel)


def _functions(request: ChatRequest) -> tuple[list[Tool], ToolChoice]:
    if request.tools:
        raise refuse("functions", "Send 'tools' or 'functions' (their older form), not both.")
    typed = {"type": "function"}
    tools = tools_of([function | typed for function in request.functions or ()], "functions", nested=False)
    choice: Any = request.function_call
    if isinstance(choice, dict):
        choice = choice | typed
    return tools, choice_of(choice, tools, "function_call", nested=False, parallel=False)  # a message has room for one


def _output(sent: ResponseFormat | None) -> OutputFormat:
    if sent is None or sent.type == "text":
        return OutputFormat()
    if sent.type == "json_object":
        return OutputFormat("json_object")
    if sent.json_schema is None:
        raise missing("response_format.json_schema")
    if sent.json_schema.schema is None:
        return OutputFormat("json_object")
    refuse_deep(sent.json_schema.schema, "response_format.json_schema.schema")
    return OutputFormat("json_schema", sent.json_schema.schema)


def _fields(request: ChatRequest, output: OutputFormat) -> dict[str, str]:
    """The engine's names of fields → those here."""
    tools, choice = ("functions", "function_call") if request.is_legacy else ("tools", "tool_choice")
    return {
        "max_tokens": "max_tokens" if request.max_completion_tokens is None else "max_completion_tokens",
        "logprobs": "top_logprobs",
        "prompt": "messages",
        "tools": tools,
        "tool_choice": choice,
        "output": "response_format",
        "grammar": tools if output.kind == "text" else "response_format",
    }


def _refuse_unsupported(request: ChatRequest) -> None:
    if any(modality != "text" for modality in request.modalities or ()):
        raise unsupported("modalities", "Output other than text")
    if request.audio is not None:
        raise unsupported("audio", "Audio")
