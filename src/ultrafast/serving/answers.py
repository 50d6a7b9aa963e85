"""What answers look like, as JSON Schemas: the fields that clients may rely on, and their types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ultrafast.engine.tiers import TIERS

Schema = Mapping[str, Any]

STRING: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
ANY: Schema = {}
TIER: Schema = {"enum": list(TIERS)}


def nullable(schema: Schema) -> Schema:
    """The schema, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def listed(items: Schema) -> Schema:
    """An array."""
    return {"type": "array", "items": items}


def record(**fields: Schema) -> Schema:
    """An object that has at least these fields."""
    return {"type": "object", "properties": fields, "required": list(fields)}


def word(*values: str) -> Schema:
    """One of these strings."""
    return {"enum": list(values)}


ERROR = record(error=record(message=STRING, type=STRING, param=nullable(STRING), code=nullable(STRING)))
ANTHROPIC_ERROR = record(type=word("error"), error=record(type=STRING, message=STRING), request_id=STRING)

HEALTH = record(status=word("ok", "draining"), models=listed(STRING), running=COUNT, waiting=COUNT)
MODEL = record(
    id=STRING,
    object=word("model"),
    created=COUNT,
    owned_by=STRING,
    type=word("model"),
    display_name=STRING,
    created_at=STRING,
    context_window=COUNT,
    service_tiers=listed(TIER),
)
_CODEX_MODEL = record(
    slug=STRING, display_name=STRING, context_window=COUNT, service_tiers=listed(record(id=STRING, name=STRING))
)
MODELS = record(
    object=word("list"),
    data=listed(MODEL),
    has_more=FLAG,
    first_id=STRING,
    last_id=STRING,
    models=listed(_CODEX_MODEL),
)
LANES = record(object=word("list"), data=listed(record(model=STRING, share=NUMBER, lanes=listed(record(tier=TIER)))))

_TOOL_CALL = record(id=STRING, type=word("function"), function=record(name=STRING, arguments=STRING))
_CHAT_USAGE = record(
    prompt_tokens=COUNT,
    completion_tokens=COUNT,
    total_tokens=COUNT,
    prompt_tokens_details=record(cached_tokens=COUNT),
    completion_tokens_details=record(
        reasoning_tokens=COUNT, accepted_prediction_tokens=COUNT, rejected_prediction_tokens=COUNT
    ),
)
_MEASURED = record(queue_ms=NUMBER, prefill_ms=NUMBER, decode_ms=NUMBER, drafted_tokens=COUNT, accepted_tokens=COUNT)
CHAT_COMPLETION = record(
    id=STRING,
    object=word("chat.completion"),
    created=COUNT,
    model=STRING,
    service_tier=TIER,
    choices=listed(
        record(
            index=COUNT,
            message={
                "type": "object",
                "properties": {
                    "role": word("assistant"),
                    "content": nullable(STRING),
                    "tool_calls": listed(_TOOL_CALL),
                    "reasoning_content": STRING,
                },
                "required": ["role", "content"],
            },
            logprobs=ANY,
            finish_reason=word("stop", "length", "tool_calls", "function_call"),
        )
    ),
    usage=_CHAT_USAGE,
    ultrafast=_MEASURED,
)
COMPLETION = record(
    id=STRING,
    object=word("text_completion"),
    created=COUNT,
    model=STRING,
    service_tier=TIER,
    choices=listed(record(index=COUNT, text=STRING, logprobs=ANY, finish_reason=word("stop", "length"))),
    usage=_CHAT_USAGE,
    ultrafast=_MEASURED,
)

_RESPONSE_USAGE = record(
    input_tokens=COUNT,
    input_tokens_details=record(cached_tokens=COUNT, cache_write_tokens=COUNT),
    output_tokens=COUNT,
    output_tokens_details=record(reasoning_tokens=COUNT),
    total_tokens=COUNT,
)
RESPONSE = record(
    id=STRING,
    object=word("response"),
    created_at=COUNT,
    status=word("completed", "failed", "in_progress", "cancelled", "queued", "incomplete"),
    model=STRING,
    output=listed(record(type=STRING, id=STRING)),
    service_tier=TIER,
    usage=nullable(_RESPONSE_USAGE),
    ultrafast=nullable(_MEASURED),
    error=nullable(record(code=STRING, message=STRING)),
    tools=listed(ANY),
    parallel_tool_calls=FLAG,
    metadata={"type": "object", "additionalProperties": STRING},
)
RESPONSE_DELETED = record(id=STRING, object=word("response"), deleted=FLAG)
INPUT_ITEMS = record(
    object=word("list"),
    data=listed(record(type=STRING, id=STRING)),
    first_id=nullable(STRING),
    last_id=nullable(STRING),
    has_more=FLAG,
)
INPUT_TOKENS = record(object=word("response.input_tokens"), input_tokens=COUNT)

MESSAGE = record(
    id=STRING,
    type=word("message"),
    role=word("assistant"),
    model=STRING,
    content=listed(record(type=word("text", "tool_use", "thinking"))),
    stop_reason=word("end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"),
    stop_sequence=nullable(STRING),
    usage=record(
        input_tokens=COUNT,
        output_tokens=COUNT,
        cache_creation_input_tokens=COUNT,
        cache_read_input_tokens=COUNT,
        service_tier=STRING,
        speed=STRING,
    ),
)
TOKEN_COUNT = record(input_tokens=COUNT)
