"""Where requests go: an OpenAI-compatible endpoint, a model there, the tier and the API to ask it by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from ultrafast.errors import ConfigError

Api = Literal["chat", "completions", "responses", "socket"]
"""Chat Completions, Completions, Responses over HTTP, and Responses over one WebSocket."""


@dataclass(frozen=True, slots=True)
class Price:
    """What tokens cost, in US dollars a million.

    Attributes:
        cached_input: ``None``: as other input.
        is_relative: no dollars but multiples of what a token of the default tier costs, which is all that our own
            server can say of its prices.
    """

    input: float
    output: float
    cached_input: float | None = None
    is_relative: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One way to ask one model.

    Attributes:
        base_url: up to and with the ``/v1`` of API addresses.
        tier: ``service_tier`` as sent; ``None``: the field is left out.
        api_key: sent as a bearer token; never in `repr`, records or reports.
        headers: sent with every request, beside the usual ones.

    Raises:
        ConfigError: ``base_url`` is no such URL.
    """

    base_url: str
    model: str
    api: Api = "chat"
    tier: str | None = None
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    price: Price | None = None

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.base_url)
            valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            valid = False
        if not valid:
            raise ConfigError(f"{self.base_url!r} is not the address of an API; it looks like http://127.0.0.1:8000/v1")

    @property
    def name(self) -> str:
        """How reports call it: the model and the tier."""
        return f"{self.model} · {self.tier or 'no tier asked'}"
