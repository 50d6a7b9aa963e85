"""``GET /openapi.json``: what this API takes and gives, path by path."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ultrafast.serving import answers
from ultrafast.serving.errors import json_response
from ultrafast.serving.openapi import Operation, document, parameter
from ultrafast.serving.wire.anthropic_request import CountRequest, MessagesRequest
from ultrafast.serving.wire.chat_request import ChatRequest
from ultrafast.serving.wire.completions_request import CompletionRequest
from ultrafast.serving.wire.responses_request import ResponsesRequest

_MODEL = parameter("model", "path", answers.STRING, "Name of a model that is served.")
_RESPONSE = parameter("response_id", "path", answers.STRING, "Id of a response.")

OPERATIONS = (
    Operation(
        "get", "/health", "health", "Whether new requests are taken", answers.HEALTH, statuses={"503": answers.HEALTH}
    ),
    Operation("get", "/", "root", "Whether anybody is here"),
    Operation("get", "/api/hello", "hello", "The same, where Claude Code asks"),
    Operation("get", "/openapi.json", "document", "This document", {"type": "object"}),
    Operation("get", "/v1/models", "listModels", "All models served here", answers.MODELS),
    Operation("get", "/v1/models/{model}", "getModel", "One model", answers.MODEL, parameters=[_MODEL]),
    Operation("get", "/v1/tiers", "listTiers", "The lanes: their load and measured speed", answers.LANES),
    Operation(
        "post",
        "/v1/chat/completions",
        "createChatCompletion",
        "Chat Completions",
        answers.CHAT_COMPLETION,
        request=ChatRequest,
        generates=True,
        streams=True,
    ),
    Operation(
        "post",
        "/v1/completions",
        "createCompletion",
        "Completions of raw prompts",
        answers.COMPLETION,
        request=CompletionRequest,
        generates=True,
        streams=True,
    ),
    Operation(
        "post",
        "/v1/messages",
        "createMessage",
        "Anthropic's Messages",
        answers.MESSAGE,
        request=MessagesRequest,
        generates=True,
        streams=True,
        error=answers.ANTHROPIC_ERROR,
        statuses={"529": answers.ANTHROPIC_ERROR},
    ),
    Operation(
        "post",
        "/v1/messages/count_tokens",
        "countMessageTokens",
        "How many tokens the prompt of a message has",
        answers.TOKEN_COUNT,
        request=CountRequest,
        error=answers.ANTHROPIC_ERROR,
    ),
    Operation(
        "post",
        "/v1/responses",
        "createResponse",
        "Responses; also over WebSocket",
        answers.RESPONSE,
        request=ResponsesRequest,
        generates=True,
        streams=True,
        leads_to=dict.fromkeys(("getResponse", "deleteResponse", "listInputItems", "cancelResponse"), "response_id"),
    ),
    Operation(
        "post",
        "/v1/responses/input_tokens",
        "countInputTokens",
        "How many tokens the input of a response has",
        answers.INPUT_TOKENS,
        request=ResponsesRequest,
    ),
    Operation(
        "get",
        "/v1/responses/{response_id}",
        "getResponse",
        "A stored response",
        answers.RESPONSE,
        parameters=[_RESPONSE],
    ),
    Operation(
        "delete",
        "/v1/responses/{response_id}",
        "deleteResponse",
        "Forget a stored response",
        answers.RESPONSE_DELETED,
        parameters=[_RESPONSE],
    ),
    Operation(
        "get",
        "/v1/responses/{response_id}/input_items",
        "listInputItems",
        "What a stored response answered",
        answers.INPUT_ITEMS,
        parameters=[
            _RESPONSE,
            parameter("limit", "query", {"type": "integer", "minimum": 1, "maximum": 100}, "Items at most."),
            parameter("order", "query", answers.word("asc", "desc"), "Oldest or newest first."),
            parameter("after", "query", answers.STRING, "Id of the item after which the list begins."),
        ],
    ),
    Operation(
        "post",
        "/v1/responses/{response_id}/cancel",
        "cancelResponse",
        "Cancel a response in progress",
        answers.RESPONSE,
        parameters=[_RESPONSE],
    ),
)


async def get_document(request: Request) -> Response:
    """The endpoint."""
    return json_response(document(OPERATIONS, list(request.app.state.loops)))
