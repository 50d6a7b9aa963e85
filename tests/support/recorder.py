"""What a client sends to a server, noted as it arrives: requests, and the frames of sockets."""

from __future__ import annotations

import json
import re
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_ID = re.compile(r'"((?:resp|msg|fc|call|rs|toolu|chatcmpl)_[A-Za-z0-9]+)"')


class Recorder:
    """Around an application; give `wrap` to `served`.

    Attributes:
        exchanges: in order: ``{"method", "path", "headers", "body"}`` of a request, the body read as JSON;
            ``{"method": "WEBSOCKET", "path", "headers", "frames"}`` of a socket.
        ids: that the server gave to what it sent, in order.
        answers: all that the server sent, as text.
    """

    def __init__(self) -> None:
        self.exchanges: list[dict[str, Any]] = []
        self.ids: list[str] = []
        self.answers = ""

    def wrap(self, app: ASGIApp) -> ASGIApp:
        async def recorded(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "lifespan":
                await app(scope, receive, send)
                return
            exchange = self._begin(scope)
            body = b""

            async def receive_noted() -> Message:
                nonlocal body
                message = await receive()
                if message["type"] == "http.request":
                    body += message.get("body", b"")
                    if body and not message.get("more_body"):
                        exchange["body"] = json.loads(body)
                elif message["type"] == "websocket.receive":
                    exchange["frames"].append(json.loads(message["text"]))
                return message

            async def send_noted(message: Message) -> None:
                self._sent(message)
                await send(message)

            await app(scope, receive_noted, send_noted)

        return recorded

    def _begin(self, scope: Scope) -> dict[str, Any]:
        query = scope["query_string"].decode()
        exchange = {
            "method": scope.get("method", "WEBSOCKET"),
            "path": scope["path"] + (f"?{query}" if query else ""),
            "headers": {name.decode(): value.decode() for name, value in scope["headers"]},
        }
        if scope["type"] == "websocket":
            exchange["frames"] = []
        self.exchanges.append(exchange)
        return exchange

    def _sent(self, message: Message) -> None:
        text = message.get("text") or message.get("body", b"").decode()
        self.answers += text
        self.ids += [found for found in dict.fromkeys(_ID.findall(text)) if found not in self.ids]
