"""What travels over a WebSocket: the client's events, read as far as it takes to route them, and ours, written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ultrafast.errors import RequestError
from ultrafast.serving.errors import error_body, retry_headers
from ultrafast.serving.wire.body import decode

_STREAM_ID = re.compile(r"[A-Za-z0-9_.-]{1,256}")


class _Envelope(Struct):
    """The fields that a frame is routed by; no type is required of them here, so that each gets an error of its own."""

    type: Any = None
    stream_id: Any = None
    previous_response_id: Any = None


class _Steer(Struct):
    input: Raw = Raw(b'""')
    previous_response_id: Raw = Raw(b'""')


_ENVELOPE = msgspec.json.Decoder(_Envelope)
_STEER = msgspec.json.Decoder(_Steer)
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Frame:
    """One event of the client.

    Attributes:
        type: whatever was sent as ``type``.
        stream_id: a valid one, or None for the default lane.
        continues: whatever was sent as ``previous_response_id``.
        body: the whole JSON object.
    """

    type: Any
    stream_id: str | None
    continues: Any
    body: bytes


def read_frame(message: Mapping[str, Any]) -> Frame:
    """Read a ``websocket.receive`` message.

    Raises:
        RequestError: 400; it is no JSON object in a text frame, or its ``stream_id`` is invalid.
    """
    text: str | None = message.get("text")
    if text is None:
        raise RequestError("Binary frames are not understood here; send each event as JSON in a text frame.")
    body = text.encode()
    envelope = decode(_ENVELOPE, body)
    stream_id = envelope.stream_id
    if stream_id is not None and not (isinstance(stream_id, str) and _STREAM_ID.fullmatch(stream_id)):
        raise RequestError(
            "Invalid 'stream_id': it is a string of 1 to 256 letters, digits, '_', '.' and '-'.",
            code="invalid_stream_id",
            param="stream_id",
        )
    return Frame(envelope.type, stream_id, envelope.previous_response_id, body)


def unknown_type(type: Any) -> RequestError:
    """The 400 for an event that is neither ``response.create`` nor ``response.steer``."""
    if not isinstance(type, str):
        return RequestError(
            "Missing required parameter: 'type', the name of an event.",
            code="missing_required_parameter",
            param="type",
        )
    return RequestError(
        f"Unknown event type {type[:64]!r}; there are 'response.create' and 'response.steer'.",
        code="invalid_value",
        param="type",
    )


def steer_failed(frame: Frame) -> dict[str, Any]:
    """The answer to a ``response.steer``, which gives its input back."""
    steer = _STEER.decode(frame.body)
    return {
        "type": "response.steer.failed",
        "sequence_number": 0,
        "steer": {"input": steer.input, "previous_response_id": steer.previous_response_id},
        "error": {
            "type": "invalid_request_error",
            "code": "steering_not_supported",
            "message": "Responses cannot be steered here; send the input in a response.create that continues them.",
        },
    }


def error_event(error: RequestError) -> dict[str, Any]:
    """A request that failed before its response began, or a frame that is none."""
    about = error_body(error)
    if headers := retry_headers(error):
        about["headers"] = headers
    return {"type": "error", "status": error.status, "error": about}


def event_text(event: Mapping[str, Any], stream_id: str | None) -> str:
    """An event as a text frame; it names its lane if that has a name."""
    return _encode(event if stream_id is None else {**event, "stream_id": stream_id}).decode()
