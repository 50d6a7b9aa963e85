"""Responses over a WebSocket, through the gateway: events both ways as they are, a call for each `response.create`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import aiohttp
import msgspec
from aiohttp import web

from ultrafast.bench.ab.gateway import answer, body
from ultrafast.bench.client.call import Call, Outcome

if TYPE_CHECKING:
    from ultrafast.bench.ab.gateway.server import Tap

_OF_THE_HANDSHAKE = "sec-websocket-"


async def relay(
    client: aiohttp.ClientSession, request: web.Request, tap: Tap, url: str, now: Callable[[], float]
) -> web.StreamResponse:
    """One connection, until either side ends it. Responses on it come one after another."""
    headers = {k: v for k, v in tap.headers(request.headers).items() if not k.lower().startswith(_OF_THE_HANDSHAKE)}
    waiting: list[Call] = []  # whose responses are not over, in order
    ours = web.WebSocketResponse(max_msg_size=0)
    try:
        async with client.ws_connect(url, headers=headers, max_msg_size=0) as upstream:
            await ours.prepare(request)

            async def outward() -> None:
                async for message in ours:
                    await upstream.send_str(_for_arm(message.data, tap, waiting, now()))

            async def inward() -> None:
                async for message in upstream:
                    _record(message.data, waiting, now())
                    await ours.send_str(message.data)

            ways = [asyncio.create_task(outward()), asyncio.create_task(inward())]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
            await ours.close(code=upstream.close_code or aiohttp.WSCloseCode.OK)
            return ours
    except aiohttp.WSServerHandshakeError as error:
        return web.Response(status=error.status, text=error.message)
    except aiohttp.ClientError as error:
        return web.Response(status=502, text=f"the endpoint does not answer: {error}")
    finally:
        for call in waiting:
            call.outcome, call.error, call.done_s = Outcome.BROKEN, "the connection ended before the response", now()


def _for_arm(message: str, tap: Tap, waiting: list[Call], now_s: float) -> str:
    event = _decode(message)
    if event.get("type") != "response.create":
        return message
    call = tap.begin("responses", now_s)
    call.sent_s = now_s
    waiting.append(call)
    return body.for_arm(message.encode(), "responses", tap.fields).raw.decode()


def _record(message: str, waiting: list[Call], now_s: float) -> None:
    if not waiting:
        return
    call = waiting[0]
    call.first_byte_s = now_s if call.first_byte_s is None else call.first_byte_s
    if answer.read_event(call, _decode(message), now_s):
        call.done_s = now_s
        waiting.pop(0)


def _decode(message: str) -> dict[str, object]:
    try:
        value = msgspec.json.decode(message)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
