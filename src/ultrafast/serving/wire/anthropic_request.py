"""The requests of ``/v1/messages`` and ``…/count_tokens``: fields, ranges, and what they mean to the engine."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from ultrafast.engine.limits import MAX_STOPS
from ultrafast.engine.tiers import FAST
from ultrafast.errors import RequestError
from ultrafast.serving.errors import THREAD_UNSUPPORTED
from ultrafast.serving.generate import Job, choices
from ultrafast.serving.tiers import ANTHROPIC, tier_of
from ultrafast.serving.wire.anthropic_messages import MessageParam, SystemBlock, conversation
from ultrafast.serving.wire.body import missing, refuse
from ultrafast.serving.wire.fields import CacheSalt, Count, Deadline, Overflow, Stop, TopK, TopP, or_one
from ultrafast.types import OutputFormat, SamplingParams, Tool, ToolChoice

_FIELDS = {"prompt": "messages", "stop": "stop_sequences", "output": "output_config.format"}


class ToolParam(Struct):
    """A tool of the client's own; any other ``type`` is one that the server defines, with other fields."""

    type: str | None = None
    name: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None


class ToolChoiceParam(Struct):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Struct):
    """How much to think has no effect; whether and how thoughts are shown has."""

    type: str
    display: str | None = None


class JsonFormat(Struct):
    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(Struct):
    effort: str | None = None
    format: JsonFormat | None = None


class MessageMetadata(Struct):
    user_id: str | None = None


class CountRequest(Struct):
    """What makes up a prompt."""

    model: str
    messages: Annotated[list[MessageParam], Meta(min_length=1)]
    system: str | list[SystemBlock] | None = None
    tools: list[ToolParam] | None = None
    tool_choice: ToolChoiceParam | None = None
    output_config: OutputConfig | None = None
    thinking: Thinking | None = None


class MessagesRequest(CountRequest, kw_only=True):
    """Fields that are honoured; all others (``cache_control``, ``context_management``, …) are ignored."""

    max_tokens: Count
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    stop_sequences: Annotated[list[Stop], Meta(max_length=MAX_STOPS)] | None = None
    stream: bool | None = None
    metadata: MessageMetadata | None = None
    service_tier: str | None = None
    speed: Literal["standard", "fast"] | None = None
    thread: Any = None
    service_tier_overflow: Overflow | None = None
    cache_salt: CacheSalt | None = None
    deadline_s: Deadline | None = None


MESSAGES = msgspec.json.Decoder(MessagesRequest)
COUNT = msgspec.json.Decoder(CountRequest)


def job(request: MessagesRequest) -> Job:
    """What the engine is to do.

    Raises:
        RequestError: 400 for a combination or feature that is not served.
    """
    if request.messages[-1].role == "assistant":
        raise refuse(
            f"messages[{len(request.messages) - 1}].role",
            "Continuing an answer that the client began (prefill) is not supported: "
            "the conversation must end with a user message.",
        )
    if request.thread is not None:  # the SDK sends whole conversations after this very refusal
        raise RequestError(
            "Threads that the server keeps are not supported: send the whole conversation.",
            param="thread",
            code=THREAD_UNSUPPORTED,
        )
    params = SamplingParams(
        max_tokens=request.max_tokens,
        temperature=or_one(request.temperature),
        top_p=or_one(request.top_p),
        top_k=request.top_k or 0,
        stop=tuple(request.stop_sequences or ()),
    )
    return Job(
        prompt=conversation(request.system, request.messages),
        params=choices(params, n=1, seed=None),  # `seed` and `n` are no fields of this API
        tier=_tier(request),
        fields=_FIELDS,
        overflow=request.service_tier_overflow,
        cache_salt=request.cache_salt or "",
        deadline_s=request.deadline_s,
        tools=_tools(request),
        choice=_choice(request.tool_choice),
        output=_output(request),
        clamp=True,  # clients ask for 32,000 tokens whatever the model
    )


def count_job(request: CountRequest) -> Job:
    """A job for its prompt only. It may end anywhere: clients count parts of conversations too."""
    return Job(
        prompt=conversation(request.system, request.messages),
        params=[],
        tier=tier_of(None),
        fields=_FIELDS,
        tools=_tools(request),
        choice=_choice(request.tool_choice),
        output=_output(request),
    )


def _tier(request: MessagesRequest) -> str:
    """``speed`` counts unless ``service_tier`` names a tier: that is the more precise of the two."""
    if request.speed == "fast" and request.service_tier in (None, "auto", "standard_only"):
        return FAST
    return tier_of(request.service_tier, ANTHROPIC)


def _tools(request: CountRequest) -> list[Tool]:
    """The client's own tools. Clients offer those of Anthropic's servers everywhere, and do without them too."""
    tools = []
    for index, tool in enumerate(request.tools or ()):
        if tool.type not in (None, "custom"):
            continue
        for field in ("name", "input_schema"):
            if getattr(tool, field) is None:
                raise missing(f"tools[{index}].{field}")
        tools.append(Tool(tool.name or "", tool.description or "", tool.input_schema or {}, bool(tool.strict)))
    return tools


def _choice(choice: ToolChoiceParam | None) -> ToolChoice:
    if choice is None:
        return ToolChoice()
    parallel = not choice.disable_parallel_tool_use
    if choice.type == "none":
        return ToolChoice("none")
    if choice.type == "auto":
        return ToolChoice("auto", parallel=parallel)
    if choice.type == "any":
        return ToolChoice("required", parallel=parallel)
    if choice.name is None:
        raise refuse("tool_choice.name", "A tool_choice of type 'tool' needs the tool's 'name'.")
    return ToolChoice("required", (choice.name,), parallel)


def _output(request: CountRequest) -> OutputFormat:
    wanted = request.output_config and request.output_config.format
    return OutputFormat("json_schema", wanted.schema) if wanted else OutputFormat()
