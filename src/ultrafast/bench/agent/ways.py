"""The ways to hold a conversation: over which API, and whether each request sends all of it or only what is new.

The command line imports this to show its help: nothing heavy here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ultrafast.bench.client.endpoint import Api, Endpoint


class Way(StrEnum):
    """How a conversation is sent."""

    CHAT = "chat"  # Chat Completions, the whole conversation each time
    RESPONSES = "responses"  # Responses over HTTP, the whole conversation each time
    CONTINUED = "responses-continued"  # Responses over HTTP, from the stored response before
    SOCKET = "socket"  # Responses over one WebSocket, from the response before

    @property
    def api(self) -> Api:
        if self is Way.CONTINUED:
            return "responses"
        return self.value  # type: ignore[return-value]

    @property
    def continues(self) -> bool:
        """Whether a request sends only what is new, and names the response it continues."""
        return self in (Way.CONTINUED, Way.SOCKET)


@dataclass(frozen=True, slots=True)
class Arm:
    """One of those compared: an endpoint, with tier and API, and the way of conversing.

    Attributes:
        takes_salt: the server keeps caches apart by `cache_salt`, as ours does; for others, a line of its own at the
            start of each conversation does.
    """

    endpoint: Endpoint
    way: Way
    takes_salt: bool = False

    @property
    def name(self) -> str:
        return f"{self.endpoint.tier or 'no tier'} · {self.way}"
