"""What is sent: the body of a request, for each API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ultrafast.bench.client.call import Ask
from ultrafast.bench.client.endpoint import Endpoint
from ultrafast.bench.client.items import items_of
from ultrafast.errors import ConfigError

PATHS = {"chat": "/chat/completions", "completions": "/completions", "responses": "/responses", "socket": "/responses"}

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a server understands beyond what all do.

    Attributes:
        counts: token counts with every chunk (vLLM's word for it; most servers that do not know it ignore it).
        usage: usage at the end of a stream.
        limit: the field of Chat Completions that limits the output; the older word is the one that more servers know.
    """

    counts: bool = True
    usage: bool = True
    limit: str = "max_tokens"

    def without(self, refusal: str) -> Dialect | None:
        """What to try after a refusal in those words; ``None`` where nothing of this is their reason."""
        if self.limit == "max_tokens" and "max_completion_tokens" in refusal:
            return Dialect(self.counts, self.usage, "max_completion_tokens")
        if self.counts and ("continuous_usage_stats" in refusal or "stream_options" in refusal):
            return Dialect(False, self.usage, self.limit)
        if self.usage and "stream_options" in refusal:
            return Dialect(False, False, self.limit)
        return None


def body_of(ask: Ask, endpoint: Endpoint, dialect: Dialect) -> Body:
    """The body of a streamed request.

    Raises:
        ConfigError: the API has no way to say this.
    """
    match endpoint.api:
        case "chat":
            body = _chat(ask, dialect)
        case "completions":
            body = _completions(ask, dialect)
        case "responses":
            body = {**_response(ask), "stream": True}
        case "socket":
            body = {"type": "response.create", **_response(ask)}
    whole = {**body, "model": endpoint.model, "service_tier": endpoint.tier}
    return {name: value for name, value in whole.items() if value is not None} | dict(ask.extra)


def _chat(ask: Ask, dialect: Dialect) -> Body:
    is_text = isinstance(ask.prompt, str)
    return {
        "messages": [{"role": "user", "content": ask.prompt}] if is_text else list(ask.prompt),
        **_sampling(ask, dialect),
        dialect.limit: ask.max_tokens,
        "reasoning_effort": ask.reasoning_effort,
        "tools": list(ask.tools) or None,
        "tool_choice": ask.tool_choice,
        "logprobs": None if ask.top_logprobs is None else True,
        "top_logprobs": ask.top_logprobs,
        "response_format": ask.json_schema and {"type": "json_schema", "json_schema": _format(ask.json_schema)},
    }


def _completions(ask: Ask, dialect: Dialect) -> Body:
    beyond = {
        "messages": not isinstance(ask.prompt, str),
        "tools": bool(ask.tools),
        "schema": ask.json_schema is not None,
        "reasoning effort": ask.reasoning_effort is not None,
    }
    if any(beyond.values()):
        names = " or ".join(name for name, is_there in beyond.items() if is_there)
        raise ConfigError(f"the Completions API takes a text, and no {names}: ask by chat or responses")
    limits = {"max_tokens": ask.max_tokens, "logprobs": ask.top_logprobs}
    return {"prompt": ask.prompt, **_sampling(ask, dialect), **limits}


def _sampling(ask: Ask, dialect: Dialect) -> Body:
    options = {"include_usage": True} | ({"continuous_usage_stats": True} if dialect.counts else {})
    return {
        "temperature": ask.temperature,
        "seed": ask.seed,
        "stream": True,
        "stream_options": options if dialect.usage else None,
    }


def _response(ask: Ask) -> Body:
    """Responses have no seed."""
    return {
        "input": ask.prompt if isinstance(ask.prompt, str) else items_of(ask.prompt),
        "temperature": ask.temperature,
        "max_output_tokens": ask.max_tokens,
        "top_logprobs": ask.top_logprobs,
        "include": None if ask.top_logprobs is None else ["message.output_text.logprobs"],
        "reasoning": ask.reasoning_effort and {"effort": ask.reasoning_effort},
        "tools": [_flat(tool) for tool in ask.tools] or None,
        "tool_choice": ask.tool_choice
        if ask.tool_choice is None or isinstance(ask.tool_choice, str)
        else _flat(ask.tool_choice),
        "text": ask.json_schema and {"format": {"type": "json_schema", **_format(ask.json_schema)}},
    }


def _format(schema: Mapping[str, Any]) -> Body:
    return {"name": "answer", "schema": schema, "strict": True}


def _flat(tool: Mapping[str, Any]) -> Body:
    """A function as Responses name it. They take functions for strict unless told; Chat Completions does not."""
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, Mapping):
        return dict(tool)
    strict = {"strict": function.get("strict", False)} if "parameters" in function else {}
    return {"type": "function", **function, **strict}
