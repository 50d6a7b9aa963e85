"""Content blocks of ``/v1/messages``, as they grow from the pieces of an answer, and the events that tell of it."""

from __future__ import annotations

import hashlib
import secrets
from enum import Enum
from typing import Any

import msgspec

from ultrafast.types import AnswerEnd, CallArguments, CallBegin, CallEnd, Piece, Text, Thought

Event = dict[str, Any]


class Thoughts(Enum):
    """What becomes of thoughts."""

    SHOWN = "shown"
    OMITTED = "omitted"  # an empty block in their place
    LEFT_OUT = "left out"


class Blocks:
    """The content of one answer.

    Attributes:
        content: blocks in order; only the last one may be growing.
        end: the last piece, once it has come.
    """

    def __init__(self, thoughts: Thoughts) -> None:
        self.content: list[dict[str, Any]] = []
        self.end: AnswerEnd | None = None
        self._thoughts = thoughts
        self._open: str | None = None  # type of the block that is growing
        self._parts: list[str] = []  # what it has grown by

    def push(self, piece: Piece) -> list[Event]:
        """Take in the next piece; the ``content_block_…`` events that it makes."""
        match piece:
            case Text(text):
                return self._grow("text", text)
            case Thought(text):
                return [] if self._thoughts is Thoughts.LEFT_OUT else self._grow("thinking", text)
            case CallBegin(name):
                call_id = f"toolu_{secrets.token_hex(12)}"
                return self._begin({"type": "tool_use", "id": call_id, "name": name, "input": {}})
            case CallArguments(text):
                return self._add({"type": "input_json_delta", "partial_json": text}, text)
            case CallEnd():
                self.content[-1]["input"] = _input("".join(self._parts))
                return self._close()
            case AnswerEnd():
                self.end = piece
                return self._close()  # of a call that was cut, the input stays empty

    def _grow(self, kind: str, text: str) -> list[Event]:
        """More of a block of text or thoughts."""
        if not text:
            return []
        begun = []
        if self._open != kind:
            signature = {"signature": ""} if kind == "thinking" else {}
            begun = self._begin({"type": kind, kind: "", **signature})
        return begun + self._add({"type": f"{kind}_delta", kind: text}, text)

    def _begin(self, block: dict[str, Any]) -> list[Event]:
        closed = self._close()
        self._open = block["type"]
        self.content.append(block)
        return [*closed, self._event("content_block_start", content_block=dict(block))]

    def _add(self, delta: dict[str, str], text: str) -> list[Event]:
        self._parts.append(text)
        if self._open == "thinking" and self._thoughts is Thoughts.OMITTED:
            return []
        return [self._event("content_block_delta", delta=delta)]

    def _close(self) -> list[Event]:
        kind, text = self._open, "".join(self._parts)
        self._open, self._parts = None, []
        if kind is None:
            return []
        events = []
        if kind == "text":
            self.content[-1]["text"] = text
        elif kind == "thinking":
            # Clients drop thoughts without a signature. Nobody checks it when they come back: a digest will do.
            signature = hashlib.sha256(text.encode()).hexdigest()
            shown = text if self._thoughts is Thoughts.SHOWN else ""
            self.content[-1] |= {"thinking": shown, "signature": signature}
            delta = {"type": "signature_delta", "signature": signature}
            events.append(self._event("content_block_delta", delta=delta))
        return [*events, self._event("content_block_stop")]

    def _event(self, type: str, **fields: Any) -> Event:
        return {"type": type, "index": len(self.content) - 1, **fields}


def _input(arguments: str) -> Any:
    """The arguments of a call as an object: the very text, so that no number is rounded; empty if they are none."""
    try:
        msgspec.json.decode(arguments, type=dict[str, Any])
    except (ValueError, RecursionError):
        return {}
    return msgspec.Raw(arguments.encode())
