"""All that the gateway writes into requests: the tier and model of the arm, whose cache it is, and a wish for usage."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

_END_OF_EVENT = re.compile(rb"(\r?\n\r?\n)")


@dataclass(frozen=True, slots=True)
class Sent:
    """A request's body on its way out.

    Attributes:
        raw: what goes to the endpoint.
        adds_usage: the answer will have a chunk with the usage that the workflow did not ask for.
    """

    raw: bytes
    adds_usage: bool = False


def for_arm(raw: bytes, path: str, fields: Mapping[str, str]) -> Sent:
    """Sets what the arm says; every other field keeps its very bytes. What is no JSON object goes as it is.

    Args:
        raw: the body as the workflow sent it.
        path: below the base URL, without a slash at the start: ``chat/completions``.
        fields: to set, whatever the workflow says of them.
    """
    try:
        body: dict[str, Any] = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Sent(raw)
    changed: dict[str, Any] = dict(fields)
    adds_usage = path in ("chat/completions", "completions") and _streams_without_usage(body)
    if adds_usage:
        changed["stream_options"] = {**_object(body.get("stream_options")), "include_usage": True}
    if not changed:
        return Sent(raw)
    return Sent(msgspec.json.encode(body | changed), adds_usage)


def _streams_without_usage(body: dict[str, Any]) -> bool:
    stream = body.get("stream")
    if stream is None or bytes(stream) != b"true":
        return False
    return not _object(body.get("stream_options")).get("include_usage")


def _object(raw: msgspec.Raw | None) -> dict[str, Any]:
    value = msgspec.json.decode(raw) if raw is not None else None
    return value if isinstance(value, dict) else {}


class UsageFilter:
    """Takes the usage chunk, for which the workflow did not ask, out of a stream; every other byte goes through.

    Whole events go on as they come; only one that is not all there yet waits for its end.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        *whole, self._rest = _END_OF_EVENT.split(self._rest + data)
        events = zip(whole[::2], whole[1::2], strict=True)
        return b"".join(event + end for event, end in events if not _is_usage(event))

    def end(self) -> bytes:
        """What is left when the stream has ended in the middle of an event."""
        return b"" if _is_usage(self._rest) else self._rest


def _is_usage(event: bytes) -> bool:
    if b'"usage"' not in event or not event.startswith(b"data:"):
        return False
    try:
        chunk = msgspec.json.decode(event[5:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(chunk, dict) and chunk.get("choices") == [] and isinstance(chunk.get("usage"), dict)
