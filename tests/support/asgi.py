"""Calling an ASGI application directly: no sockets, and a client that can hang up at a chosen moment."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette

from ultrafast.engine.loop import EngineLoop
from ultrafast.serving.app import create_app
from ultrafast.serving.store import ResponseStore

LOCAL = {"host": "localhost:8000", "content-type": "application/json"}


@dataclass
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error

    def events(self) -> list[tuple[str | None, Any]]:
        """``(event name, data)`` of each frame."""
        events = []
        for block in self.body.decode().split("\n\n")[:-1]:
            lines = dict(line.split(": ", 1) for line in block.split("\n"))
            data = lines["data"]
            events.append((lines.get("event"), data if data == "[DONE]" else json.loads(data)))
        return events


class Client:
    """A client of one application.

    Attributes:
        loop: of the application's first model.
        silent: announces bodies and never sends them.
    """

    def __init__(self, app: Starlette) -> None:
        self.app = app
        self.loop: EngineLoop = next(iter(app.state.loops.values()))
        self.silent = False

    async def post(self, path: str, body: Any, **kwargs: Any) -> Answer:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.request("POST", path, raw, **kwargs)

    async def get(self, path: str, **kwargs: Any) -> Answer:
        return await self.request("GET", path, **kwargs)

    async def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        headers: dict[str, str] | None = None,
        hang_up: asyncio.Event | None = None,
        on_body: Callable[[bytes], Awaitable[None]] | None = None,
    ) -> Answer:
        """One request.

        Args:
            path: with the query, if there is one.
            hang_up: the client leaves when it is set; by default after the whole answer.
            on_body: awaited with each piece of the body; a slow one holds the server back.
        """
        answer = Answer()
        gone = hang_up or asyncio.Event()
        inbox = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if inbox and not self.silent:
                return inbox.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {k.decode(): v.decode() for k, v in message["headers"]}
            else:
                answer.body += message["body"]
                if on_body:
                    await on_body(message["body"])
                if not message.get("more_body"):
                    gone.set()

        raw_headers = [(k.lower().encode(), v.encode()) for k, v in {**LOCAL, **(headers or {})}.items()]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path.partition("?")[0],
            "raw_path": path.partition("?")[0].encode(),
            "root_path": "",
            "query_string": path.partition("?")[2].encode(),
            "headers": raw_headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8000),
        }
        await self.app(scope, receive, send)
        return answer


@asynccontextmanager
async def client_of(*engines: Any, **options: Any) -> AsyncIterator[Client]:
    """A client of a fresh application on those engines, within its lifespan; ``options`` of `create_app`.

    By default responses are stored in memory.
    """
    options = {"store": ResponseStore(), **options}
    app = create_app([EngineLoop(engine) for engine in engines], **options)
    async with app.router.lifespan_context(app):
        yield Client(app)


async def broken_in_mid_stream(engine: Any, path: str, body: Any, mark: bytes) -> Answer:
    """The answer of an engine, a paced one, that fails ("boom") once a piece of the answer with ``mark`` is out."""
    async with asyncio.timeout(30), client_of(engine) as client:

        async def break_it(chunk: bytes) -> None:
            if mark in chunk:
                engine.fail_next = RuntimeError("boom")
                engine.allow(None)

        engine.allow(2)
        answer = await client.post(path, body, on_body=break_it)
    assert b"boom" not in answer.body
    return answer
