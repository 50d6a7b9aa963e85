"""The request of ``POST /v1/responses``: its fields, their ranges, and what they mean to the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ultrafast.serving.generate import Job, choices
from ultrafast.serving.tiers import tier_of
from ultrafast.serving.wire.body import convert, missing, refuse, refuse_deep, unsupported
from ultrafast.serving.wire.fields import (
    CacheSalt,
    Count,
    Deadline,
    FormatName,
    Metadata,
    Overflow,
    Temperature,
    TopLogprobs,
    TopP,
    or_one,
)
from ultrafast.serving.wire.response_items import Item, read_input, to_messages
from ultrafast.serving.wire.response_tools import Offered, offered_tools
from ultrafast.serving.wire.tools import choice_of
from ultrafast.types import OutputFormat, SamplingParams, ToolChoice

INCLUDE_LOGPROBS = "message.output_text.logprobs"


class TextFormat(Struct):
    type: Literal["text", "json_object", "json_schema"]
    name: FormatName | None = None
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class TextConfig(Struct):
    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Reasoning(Struct):
    """Accepted and echoed; how much a model thinks is its own."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class PromptCacheOptions(Struct):
    prewarm: bool | None = None


class ResponsesRequest(Struct):
    """Fields that are honoured or echoed, or refused when they ask for what is not there; all others are ignored."""

    model: str
    input: str | list[dict[str, Any]] | None = None
    instructions: str | None = None
    max_output_tokens: Count | None = None
    ignore_eos: bool | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_logprobs: TopLogprobs | None = None
    include: list[str] | None = None
    stream: bool | None = None
    generate: bool | None = None
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
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    user: str | None = None
    conversation: Any = None
    prompt: Any = None
    moderation: Any = None
    context_management: Any = None

    @property
    def warms_up(self) -> bool:
        """Whether only the prompt is to be computed, for requests that continue from it."""
        return self.generate is False or bool(self.prompt_cache_options and self.prompt_cache_options.prewarm)


DECODER = msgspec.json.Decoder(ResponsesRequest)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request together with the conversation that it continues.

    Attributes:
        ask: the request.
        history: complete items of the turns before.
        new: complete items of its own.
        offered: the functions on offer.
        choice: whether they are called.
        format: of the text.
        tier: a concrete one.
    """

    ask: ResponsesRequest
    history: Sequence[Item]
    new: Sequence[Item]
    offered: Offered
    choice: ToolChoice
    format: TextFormat
    tier: str

    @property
    def items(self) -> list[Item]:
        """The whole conversation."""
        return [*self.history, *self.new]

    def relaxed(self) -> Asked:
        """With functions that are strict only where that was asked for."""
        return replace(self, offered=self.offered.relaxed())

    def job(self, items: Sequence[Item]) -> Job:
        """What the engine is to do about a conversation, of which ``items`` is all or a part.

        Raises:
            RequestError: 400, there is no message in it.
        """
        ask = self.ask
        output = OutputFormat(self.format.type, self.format.schema)
        with_logprobs = INCLUDE_LOGPROBS in (ask.include or ())
        params = SamplingParams(
            max_tokens=1 if ask.warms_up else ask.max_output_tokens,
            temperature=or_one(ask.temperature),
            top_p=or_one(ask.top_p),
            ignore_eos=bool(ask.ignore_eos),
            logprobs=(ask.top_logprobs or 0) if with_logprobs else None,
        )
        messages = to_messages(items, ask.instructions, self.offered.name_of)
        if not messages:
            raise refuse("input", "The input has no message.")
        return Job(
            prompt=messages,
            params=choices(params, n=1, seed=None),  # `seed` and `n` are no fields of this API
            tier=self.tier,
            fields={
                "max_tokens": "max_output_tokens",
                "logprobs": "top_logprobs",
                "prompt": "input",
                "messages": "input",
                "output": "text.format",
                "grammar": "tools" if output.kind == "text" else "text.format",
            },
            overflow=ask.service_tier_overflow,
            cache_salt=ask.cache_salt or "",
            deadline_s=ask.deadline_s,
            tools=tuple(self.offered.tools.values()),
            choice=self.choice,
            output=output,
        )


def read(ask: ResponsesRequest, history: Sequence[Item]) -> Asked:
    """Check a request against the conversation that it continues.

    Raises:
        RequestError: 400 naming the field at fault.
    """
    for name in ("background", "conversation", "prompt", "moderation", "context_management"):
        if getattr(ask, name):
            raise unsupported(name, f"'{name}'")
    if ask.input is None and ask.previous_response_id is None and not ask.warms_up:
        raise missing("input")
    own = ask.text.format if ask.text else None
    for name in ("input", "tools", "tool_choice"):
        refuse_deep(getattr(ask, name), name)
    refuse_deep(own and own.schema, "text.format.schema")
    new = read_input(ask.input or [], history)
    tools = [(tool, f"tools[{index}]") for index, tool in enumerate(ask.tools or ())]
    updated = TextFormat("text")
    for index, item in enumerate([*history, *new], -len(history)):
        where = f"input[{index}]"
        if item["type"] == "additional_tools":
            tools += [(tool, f"{where}.tools[{inner}]") for inner, tool in enumerate(item["tools"])]
        elif item["type"] == "configuration_update" and item.get("text"):
            updated = _checked(convert(item["text"], TextConfig, f"{where}.text").format or updated, f"{where}.text")
    offered = offered_tools(tools)
    choice = choice_of(
        ask.tool_choice, [*offered.tools.values()], "tool_choice", nested=False, parallel=ask.parallel_tool_calls
    )
    text_format = updated if own is None else _checked(own, "text")
    return Asked(ask, history, new, offered, choice, text_format, tier_of(ask.service_tier))


def _checked(format: TextFormat, where: str) -> TextFormat:
    """The format, or 400 for a schema format without its schema or name."""
    for field in ("name", "schema") if format.type == "json_schema" else ():
        if getattr(format, field) is None:
            raise missing(f"{where}.format.{field}")
    return format
