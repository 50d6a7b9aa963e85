"""What every request passes first: who may talk to us, its id, its time, and the guard against our own faults."""

from __future__ import annotations

import logging
import re
import secrets
import time
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ultrafast.errors import RequestError
from ultrafast.serving.errors import error_response, internal_error

_log = logging.getLogger(__name__)
_OPENAI_VERSION = "2020-10-01"  # of the API; there has been but this one
_SANE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_HEADS = ("http.response.start", "websocket.accept", "websocket.http.response.start")  # the last refuses an upgrade
_LOOPBACK = re.compile(r"localhost|127(\.\d{1,3}){3}|::1")


def is_loopback(host: str) -> bool:
    """Whether a host name or address (without port or brackets) means this machine only."""
    return _LOOPBACK.fullmatch(host) is not None


class Edge:
    """ASGI middleware, outermost of ours.

    Args:
        app: what it wraps.
        loopback_only: refuse requests whose ``Host`` or ``Origin`` is not a loopback name, as those of a web page
            that rebinds its own name to 127.0.0.1 are, or one that posts to us from another site.
    """

    def __init__(self, app: ASGIApp, *, loopback_only: bool) -> None:
        self._app = app
        self._loopback_only = loopback_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        arrived = time.perf_counter()
        headers = Headers(scope=scope)
        request_id = _request_id(headers.get("x-request-id"))
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] in _HEADS:
                started = True
                out = MutableHeaders(scope=message)
                out["x-request-id"] = out["request-id"] = request_id  # OpenAI's name and Anthropic's
                out["openai-version"] = _OPENAI_VERSION
                if limits := scope["state"].get("rate_limits"):
                    out.update(limits())
                out["openai-processing-ms"] = str(round((time.perf_counter() - arrived) * 1000))
            await send(message)

        try:
            if self._loopback_only:
                _check_origin(headers)
            await self._app(scope, receive, send_with_headers)
        except RequestError as error:
            await error_response(error, scope)(scope, receive, send_with_headers)
        except Exception:
            _log.exception("request %s failed", request_id)
            if started:
                raise  # the server must cut the connection: the answer cannot be completed
            await error_response(internal_error(request_id), scope)(scope, receive, send_with_headers)


def _request_id(sent: str | None) -> str:
    if sent and _SANE_ID.fullmatch(sent):
        return sent
    return f"req_{secrets.token_hex(12)}"


def _check_origin(headers: Headers) -> None:
    """Raise 403 for a ``Host`` or ``Origin`` that is not of this machine."""
    for name, url in (("Host", f"//{headers.get('host', '')}"), ("Origin", headers.get("origin"))):
        if url is not None and not is_loopback(_host_name(url)):
            raise RequestError(
                f"{name} header not allowed: this server answers only to localhost, 127.0.0.1 and [::1].",
                status=403,
                code="host_not_allowed",
            )


def _host_name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # such as "//[::1"
        return ""
