"""The one place where errors become HTTP: OpenAI's shape, status and headers, or (``/v1/messages``) Anthropic's."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from ultrafast.errors import PromptTooLong, RequestError

THREAD_UNSUPPORTED = "thread_unsupported_request"  # a code that Anthropic's SDK knows

_ANTHROPIC_PATH = "/v1/messages"
_ANTHROPIC_STATUS = {503: 529}  # what overload is there; all others are the same in both APIs
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def error_body(error: RequestError) -> dict[str, Any]:
    """The ``error`` object of OpenAI's API."""
    return {"message": error.message, "type": error.type, "param": error.param, "code": error.code}


def anthropic_error_body(error: RequestError, request_id: str) -> dict[str, Any]:
    """The whole body of Anthropic's API. It has no ``param``, so the message names the field."""
    message = error.message
    if isinstance(error, PromptTooLong) and error.tokens is not None:
        message = f"prompt is too long: {error.tokens} tokens > {error.limit} maximum"  # clients look for these words
    elif error.param is not None and error.param not in message:
        message = f"{error.param}: {message}"
    default = "invalid_request_error" if error.status < 500 else "api_error"
    kind = _ANTHROPIC_TYPES.get(error.status, default)
    told: dict[str, Any] = {"type": kind, "message": message}
    if error.code == THREAD_UNSUPPORTED:
        told["details"] = {"error_code": error.code, "unsupported": [error.param]}
    return {"type": "error", "error": told, "request_id": request_id}


def error_response(error: RequestError, scope: Scope) -> Response:
    """A whole answer for an error that came before the first byte, in the words of the API that was called.

    Args:
        error: what went wrong.
        scope: of the request, with the id that `edge` gave it.
    """
    headers = retry_headers(error)
    if error.status == 413:
        headers["connection"] = "close"  # the rest of the body is not read
    path: str = scope["path"]
    if path == _ANTHROPIC_PATH or path.startswith(f"{_ANTHROPIC_PATH}/"):
        body = anthropic_error_body(error, scope["state"]["request_id"])
        return json_response(body, status=_ANTHROPIC_STATUS.get(error.status, error.status), headers=headers)
    return json_response({"error": error_body(error)}, status=error.status, headers=headers)


def retry_headers(error: RequestError) -> dict[str, str]:
    """Whether and when a client should try again; nothing where the status says enough."""
    if error.retry_after is not None:
        return {
            "retry-after": str(max(1, round(error.retry_after))),  # whole seconds: SDKs ignore 0
            "retry-after-ms": str(max(1, round(error.retry_after * 1000))),
            "x-should-retry": "true",
        }
    if error.code == "deadline_exceeded":  # who asks with a deadline has no use for an answer after it
        return {"x-should-retry": "false"}
    return {}


def json_response(body: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(msgspec.json.encode(body), status_code=status, headers=headers, media_type="application/json")


def internal_error(request_id: str) -> RequestError:
    """What a client is told about a fault of ours; the log has the rest under the same id."""
    return RequestError(
        f"Internal error; the server's log has it under request id {request_id}.",
        status=500,
        type="server_error",
        code="server_error",
    )


async def on_request_error(connection: HTTPConnection, error: Exception) -> Response:
    """Starlette's handler for `RequestError`."""
    assert isinstance(error, RequestError)
    return error_response(error, connection.scope)


async def on_http_exception(connection: HTTPConnection, error: Exception) -> Response:
    """Starlette's handler for what its router refuses: unknown paths (404) and methods (405)."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    where = f"{connection.scope.get('method', 'WebSocket')} {connection.url.path}"
    if error.status_code == 405:
        allowed = ", ".join(_methods(connection))
        headers["Allow"] = allowed
        message = f"Method not allowed: {where}. Allowed: {allowed}."
    elif error.status_code == 404:
        message = f"No such endpoint: {where}."
    else:
        message = error.detail
    response = error_response(RequestError(message, status=error.status_code), connection.scope)
    response.headers.update(headers)
    return response


def _methods(connection: HTTPConnection) -> list[str]:
    """What the path may be asked with: the router tells of its first route only."""
    routes = [route for route in connection.app.routes if isinstance(route, Route)]
    path = next(route.path for route in routes if route.matches(connection.scope)[0] is not Match.NONE)
    return sorted({method for route in routes if route.path == path for method in route.methods or ()})
