"""Reading request bodies: bounded, typed, and with errors that name the field."""

from __future__ import annotations

import asyncio
import re
from itertools import islice
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from ultrafast.errors import RequestError

MAX_BODY = 8 * 1024 * 1024  # bytes; the longest context in use, as text, is a tenth of it
MAX_DEPTH = 100  # levels of lists and objects in a part of a body that is kept as it is
BODY_TIMEOUT_S = 60.0  # for the whole body: a client that sends a byte a minute holds nothing for long

T = TypeVar("T")

_NUM_KEYS_SEARCHED = 1024  # for the one at fault; the longest mapping that is accepted

_AT = re.compile(r" - at (?:`key` in )?`\$\.?(?P<path>.*)`$")
_MISSING = re.compile(r"missing required field `(?P<field>.+?)`")


async def read_body(request: Request) -> bytes:
    """The whole body.

    Raises:
        RequestError: 413 over `MAX_BODY`, 408 after `BODY_TIMEOUT_S`, 400 when the client left before its end.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > MAX_BODY:
        raise _too_large()
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY:
                    raise _too_large()
    except TimeoutError:
        raise RequestError(f"The request body did not arrive within {BODY_TIMEOUT_S:.0f} s.", status=408) from None
    except ClientDisconnect:
        raise RequestError("The request body ended early.") from None
    return bytes(body)


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Parse JSON into the decoder's type; unknown fields are ignored.

    Raises:
        RequestError: 400 with ``param`` naming the field, e.g. ``messages[1].content``.
    """
    if not body:
        raise RequestError("The request body is empty; send a JSON object.")
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _key_error(decoder, body, str(error)) or _field_error(str(error)) from None
    except RecursionError:
        raise RequestError("The JSON body is nested too deeply.") from None
    except ValueError as error:  # malformed, truncated, not UTF-8
        raise RequestError(f"The body is not valid JSON: {str(error).removeprefix('JSON is malformed: ')}.") from None


def convert(value: Any, type: type[T], where: str) -> T:
    """Check a part of a body that was decoded as plain JSON; unknown fields are ignored.

    Args:
        value: as decoded.
        type: that it must have.
        where: its path in the body.

    Raises:
        RequestError: 400 with ``param`` naming the field, e.g. ``input[1].call_id``.
    """
    try:
        return msgspec.convert(value, type)
    except msgspec.ValidationError as error:
        raise _field_error(str(error), where) from None


def missing(param: str) -> RequestError:
    """A 400 for a field that is not there."""
    return RequestError(f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter")


def refuse_deep(value: Any, where: str) -> None:
    """Refuse a value that is repeated or kept and has more than `MAX_DEPTH` levels: not all that reads can write it."""
    if _is_deeper(value, MAX_DEPTH):
        raise refuse(where, f"'{where}' is nested more than {MAX_DEPTH} levels deep.")


def _is_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    if levels == 0:
        return True
    return any(_is_deeper(child, levels - 1) for child in (value.values() if isinstance(value, dict) else value))


def refuse(param: str, message: str) -> RequestError:
    """A 400 for a value that cannot be honoured."""
    return RequestError(message, param=param, code="invalid_value")


def unsupported(param: str, what: str) -> RequestError:
    """A 400 for something that a client may rightly ask, and that is not there yet."""
    return RequestError(f"{what} is not supported yet.", param=param, code="unsupported_parameter")


def _too_large() -> RequestError:
    return RequestError(f"The request body is larger than {MAX_BODY // 2**20} MiB.", status=413)


def _key_error(decoder: msgspec.json.Decoder[T], body: bytes, problem: str) -> RequestError | None:
    """The error about one entry of a mapping, with its key, which msgspec does not tell; None for other problems.

    Found by decoding the entries one by one, each as the whole of its mapping.
    """
    at = _AT.search(problem)
    if at is None or not ("`key` in" in at[0] or at["path"].endswith("[...]")):
        return None
    field = at["path"].removesuffix("[...]")
    try:
        mapping = msgspec.json.decode(body, type=dict[str, msgspec.Raw])[field]
        entries = msgspec.json.decode(mapping, type=dict[str, msgspec.Raw])
    except (KeyError, ValueError, RecursionError):  # a field inside another, or what follows it is broken
        return None
    for key, value in islice(entries.items(), _NUM_KEYS_SEARCHED):
        try:
            decoder.decode(msgspec.json.encode({field: {key: value}}))
        except msgspec.ValidationError as error:
            if str(error) == problem:  # not that the other fields are missing
                name = f"{field}.{key[:64]}"
                what = problem[: at.start()]
                message = f"Invalid entry '{name}': {what[0].lower()}{what[1:]}."
                return RequestError(message, param=field, code="invalid_value")
    return None


def _field_error(problem: str, within: str = "") -> RequestError:
    """msgspec's ``Expected `int`, got `str` - at `$.messages[0].content``` as a `RequestError`.

    ``within`` is the path of what msgspec was given.
    """
    at = _AT.search(problem)
    path = at["path"] if at else ""
    if within:
        path = f"{within}.{path}" if path and path[0] != "[" else within + path
    what = problem[: at.start()] if at else problem
    if absent := _MISSING.search(what):
        return missing(f"{path}.{absent['field']}" if path else absent["field"])
    path = path.removesuffix("[...]")  # of a mapping whose key was not found
    where = f" for '{path}'" if path else ""
    return RequestError(f"Invalid value{where}: {what[0].lower()}{what[1:]}.", param=path or None, code="invalid_value")
