"""The one place where errors become HTTP: OpenAI's shape, status and headers."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.routing import Match, Route

from ultrafast.errors import RequestError


def error_body(error: RequestError) -> dict[str, Any]:
    """The ``error`` object of OpenAI's API."""
    return {"message": error.message, "type": error.type, "param": error.param, "code": error.code}


def error_response(error: RequestError) -> Response:
    """A whole answer for an error that came before the first byte."""
    headers = retry_headers(error)
    if error.status == 413:
        headers["connection"] = "close"  # the rest of the body is not read
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
    return error_response(error)


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
    response = error_response(RequestError(message, status=error.status_code))
    response.headers.update(headers)
    return response


def _methods(connection: HTTPConnection) -> list[str]:
    """What the path may be asked with: the router tells of its first route only."""
    routes = [route for route in connection.app.routes if isinstance(route, Route)]
    path = next(route.path for route in routes if route.matches(connection.scope)[0] is not Match.NONE)
    return sorted({method for route in routes if route.path == path for method in route.methods or ()})
