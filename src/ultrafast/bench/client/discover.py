"""What there is to ask at an address: a model, and what its tiers cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import aiohttp
import msgspec
from msgspec import Struct

from ultrafast.bench.client.answer import UNREADABLE, bounded, message_of
from ultrafast.bench.client.client import headers_of
from ultrafast.bench.client.endpoint import Price
from ultrafast.bench.client.faults import problem_of
from ultrafast.errors import ServerError

_TIMEOUT = aiohttp.ClientTimeout(total=10)
_MAX_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Found:
    """What was found.

    Attributes:
        model: the one to ask.
        prices: by tier; our own server states multiples of what its ``default`` tier costs, so they are relative.
        is_ours: an Ultrafast server answers.
    """

    model: str
    prices: Mapping[str, Price] = field(default_factory=dict)
    is_ours: bool = False


class _Model(Struct):
    id: str


class _Models(Struct):
    data: list[_Model]


class _Lane(Struct):
    tier: str
    price: float


class _Status(Struct):
    model: str
    lanes: list[_Lane]


class _Tiers(Struct):
    data: list[_Status]


async def discover(url: str, *, api_key: str | None, model: str | None = None) -> Found:
    """Ask an endpoint for its models, and our own server for its tiers.

    Args:
        url: up to and with the ``/v1`` of API addresses.
        api_key: sent as a bearer token.
        model: the one wanted; ``None``: the first that is listed. Other servers than ours may serve what they do not
            list, so that only ours is taken at its word.

    Raises:
        ServerError: nobody answers, with anything that can be used, or it has no such model.
    """
    async with aiohttp.ClientSession(headers=headers_of(api_key), timeout=_TIMEOUT) as session:
        base = url.rstrip("/")
        status, body = await _get(session, f"{base}/models")
        listed = _models(base, status, body) if model is None or status == 200 else []
        tiers = await _tiers(session, base)
    if model is None and not listed:
        raise ServerError(f"{base} lists no model", "say which to ask with --model")
    wanted = listed[0] if model is None else model
    if tiers is None:
        return Found(wanted)
    if wanted not in tiers:
        raise ServerError(f"{base} has no model {wanted!r}", f"it has {', '.join(map(repr, tiers))}")
    prices = {lane.tier: Price(lane.price, lane.price, is_relative=True) for lane in tiers[wanted]}
    return Found(wanted, prices, is_ours=True)


async def _get(session: aiohttp.ClientSession, url: str) -> tuple[int, bytes]:
    try:
        async with session.get(url) as response:
            body = bytearray()
            async for data in response.content.iter_any():
                body += data
                if len(body) > _MAX_BYTES:
                    raise ServerError(f"{url} answers without end", "see what listens there")
            return response.status, bytes(body)
    except TimeoutError:
        raise ServerError(f"{url} did not answer within {_TIMEOUT.total:g} s", "see what listens there") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise ServerError(f"no server answers at {url} ({problem_of(error)})") from None


def _models(base: str, status: int, body: bytes) -> list[str]:
    if status != 200:
        problem = f"{base}/models answered {status}: {_words(body)}"
        if status in (401, 403):
            raise ServerError(problem, "put the key into the environment variable that --api-key-env names")
        raise ServerError(problem, "is the address right, up to /v1? If so, say which model to ask with --model")
    try:
        return [listed.id for listed in msgspec.json.decode(body, type=_Models).data]
    except UNREADABLE as error:
        raise ServerError(f"{base}/models is no list of models: {error}", "is the address right, up to /v1?") from None


async def _tiers(session: aiohttp.ClientSession, base: str) -> dict[str, list[_Lane]] | None:
    """The lanes of each model of our own server; ``None`` for any other."""
    status, body = await _get(session, f"{base}/tiers")
    if status != 200:
        return None
    try:
        return {status.model: status.lanes for status in msgspec.json.decode(body, type=_Tiers).data}
    except UNREADABLE:
        return None


def _words(body: bytes) -> str:
    try:
        return message_of(msgspec.json.decode(body))
    except UNREADABLE:
        return bounded(body.decode(errors="replace")) or "without a word"
