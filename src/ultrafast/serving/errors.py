"""The one place where errors become HTTP: shape, status and headers, OpenAI's or (under ``/v1/messages``) Anthropic's."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from ultrafast.errors import PromptTooLong, RequestError

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
    type = _ANTHROPIC_TYPES.get(error.status, default)
    return {"type": "error", "error": {"type": type, "message": message}, "request_id": request_id}


def error_response(error: RequestError, scope: Scope) -> Response:
    """A whole answer for an error that came before the first byte, in the words of the API that was called.

    Args:
        error: what went wrong.
        scope: of the request, with the id that `edge` gave it.
    """
    headers = {}
    if error.retry_after is not None:
        headers["retry-after"] = str(max(1, round(error.retry_after)))  # whole seconds: SDKs ignore 0
    if error.status == 413:
        headers["connection"] = "close"  # the rest of the body is not read
    path: str = scope["path"]
    if path == _ANTHROPIC_PATH or path.startswith(f"{_ANTHROPIC_PATH}/"):
        body = anthropic_error_body(error, scope["state"]["request_id"])
        return json_response(body, status=_ANTHROPIC_STATUS.get(error.status, error.status), headers=headers)
    return json_response({"error": error_body(error)}, status=error.status, headers=headers)


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


async def on_request_error(request: Request, error: Exception) -> Response:
    """Starlette's handler for `RequestError`."""
    assert isinstance(error, RequestError)
    return error_response(error, request.scope)


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Starlette's handler for what its router refuses: unknown paths (404) and methods (405)."""
    assert isinstance(error, HTTPException)
    where = f"{request.method} {request.url.path}"
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        message = f"Method not allowed: {where}. Allowed: {allowed}."
    elif error.status_code == 404:
        message = f"No such endpoint: {where}."
    else:
        message = error.detail
    response = error_response(RequestError(message, status=error.status_code), request.scope)
    response.headers.update(error.headers or {})
    return response
