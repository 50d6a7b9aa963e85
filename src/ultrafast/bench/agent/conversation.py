"""One conversation: its messages, and which of them the next request sends."""

from __future__ import annotations

import secrets
from typing import Any

from ultrafast.bench.agent.task import arguments_of
from ultrafast.bench.agent.ways import Arm, Way
from ultrafast.bench.client.call import Ask, Call


class Conversation:
    """Messages as Chat Completions has them, and what of them the server remembers.

    Every conversation has caches of its own, so that no arm of a round reads what another one has computed.
    """

    def __init__(self, arm: Arm) -> None:
        self.messages: list[dict[str, Any]] = []
        self._arm = arm
        self._salt = secrets.token_hex(8)
        self._num_known = 0  # messages that the server remembers
        self._previous: str | None = None

    def add(self, role: str, content: str, **fields: Any) -> None:
        self.messages.append({"role": role, "content": content, **fields})

    def ask(self, **fields: Any) -> Ask:
        """The next request; `fields` are those of `Ask`, without prompt and `extra`."""
        new = self.messages[self._num_known :]
        extra: dict[str, Any] = {"parallel_tool_calls": False} if fields.get("tools") else {}
        if self._arm.takes_salt:
            extra["cache_salt"] = self._salt
        elif not self._num_known:
            new = _marked(new, self._salt)
        if self._arm.way is not Way.CHAT:
            extra["store"] = self._arm.way is Way.CONTINUED
        if self._previous is not None:
            extra["previous_response_id"] = self._previous
        return Ask(prompt=new, extra=extra, **fields)

    def answered(self, call: Call) -> None:
        """Put the answer into the conversation. A call that was cut is left out, as no server takes it back."""
        message: dict[str, Any] = {"role": "assistant", "content": call.text or None}
        whole = [tool for tool in call.tool_calls if arguments_of(tool) is not None]
        if whole:
            message["tool_calls"] = [
                {"id": tool.id, "type": "function", "function": {"name": tool.name, "arguments": tool.arguments}}
                for tool in whole
            ]
        elif not call.text:
            message["content"] = "(nothing)"
        self.messages.append(message)
        if self._arm.way.continues and call.response_id is not None:
            self._previous, self._num_known = call.response_id, len(self.messages)


def _marked(messages: list[dict[str, Any]], salt: str) -> list[dict[str, Any]]:
    """The messages with something of their own at their very start."""
    mark = f"Case {salt}."
    first = messages[0]
    if first["role"] not in ("system", "developer"):
        return [{"role": "system", "content": mark}, *messages]
    content = first.get("content")
    own = [{"type": "text", "text": mark}, *content] if isinstance(content, list) else f"{mark} {content or ''}"
    return [{**first, "content": own}, *messages[1:]]
