"""Options of the commands that ask an endpoint, so that they read alike everywhere; and the endpoints they mean."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from ultrafast.bench.client.endpoint import Api, Endpoint, Price
from ultrafast.errors import ConfigError

if TYPE_CHECKING:
    from ultrafast.bench.client.discover import Found

DEFAULT_BASE_URL = "http://127.0.0.1:8000/v1"
DEFAULT_KEY_ENV = "OPENAI_API_KEY"

BaseUrl = Annotated[str, typer.Option("--url", help="Address of an OpenAI-compatible API, up to and with /v1.")]
AskedModel = Annotated[str | None, typer.Option("--model", help="Model there; default: the first it lists.")]
Tier = Annotated[str | None, typer.Option("--tier", help="service_tier to send; default: none.")]
Tiers = Annotated[
    list[str] | None, typer.Option("--tier", help="service_tier to send; several times to compare; default: none.")
]
ApiOption = Annotated[Api, typer.Option("--api", help="API to ask by; socket is Responses over one WebSocket.")]
KeyEnv = Annotated[
    str, typer.Option("--api-key-env", metavar="NAME", help="Environment variable that holds the API key, if any.")
]
PriceInput = Annotated[
    list[float] | None,
    typer.Option(
        "--price-input",
        min=0,
        help="US dollars a million input tokens: once, or once a tier in their order; "
        "default: what an Ultrafast server says, else unknown.",
    ),
]
PriceOutput = Annotated[
    list[float] | None, typer.Option("--price-output", min=0, help="The same, a million output tokens.")
]


async def endpoints(
    url: str,
    model: str | None = None,
    tiers: Sequence[str] | None = None,
    api: Api = "chat",
    api_key_env: str = DEFAULT_KEY_ENV,
    prices: Sequence[Price] = (),
) -> list[Endpoint]:
    """One endpoint a tier, in their order; without tiers, one that asks for none.

    Args:
        prices: see `prices_of`.

    Raises:
        ConfigError: an option is wrong.
        ServerError: nobody answers at the URL, or it has no such model.
    """
    return endpoints_of(await found_at(url, model, api_key_env), url, tiers, api, api_key_env, prices)


async def found_at(url: str, model: str | None, api_key_env: str) -> Found:
    """What answers at the URL. Raises what `endpoints` raises."""
    from ultrafast.bench.client.discover import discover

    return await discover(base_url_of(url), api_key=key_from(api_key_env), model=model)


def endpoints_of(
    found: Found, url: str, tiers: Sequence[str] | None, api: Api, api_key_env: str, prices: Sequence[Price] = ()
) -> list[Endpoint]:
    """As `endpoints`, of what was found there already."""
    words: Sequence[str | None] = list(tiers or ()) or [None]
    twice = sorted({f"{word}" for word in words if words.count(word) > 1})
    if twice:
        raise ConfigError(f"--tier {twice[0]} is given twice")
    if len(prices) not in (0, 1, len(words)):
        raise ConfigError(f"{len(prices)} prices for {len(words)} tiers: give one for all, or one a tier")
    if prices:
        by_tier: Sequence[Price | None] = list(prices) * (len(words) // len(prices))
    else:
        by_tier = [found.prices.get(word or "default") for word in words]
    base_url, api_key = base_url_of(url), key_from(api_key_env)
    return [
        Endpoint(base_url, found.model, api, tier, api_key, price=price)
        for tier, price in zip(words, by_tier, strict=True)
    ]


def base_url_of(url: str) -> str:
    """The base URL; an address without a path gets the ``/v1`` that every such API has.

    Raises:
        ConfigError: this is no such URL.
    """
    base_url = Endpoint(url.rstrip("/"), model="").base_url
    return base_url if urlsplit(base_url).path else f"{base_url}/v1"


def key_from(name: str) -> str | None:
    """The API key in an environment variable; the usual one may be unset.

    Raises:
        ConfigError: another one is unset or empty.
    """
    key = os.environ.get(name, "").strip()
    if not key and name != DEFAULT_KEY_ENV:
        raise ConfigError(f"--api-key-env {name}: there is no such environment variable, or it is empty")
    return key or None


def prices_of(inputs: Sequence[float] | None, outputs: Sequence[float] | None) -> list[Price]:
    """Prices as options say them: none, one for all tiers, or one a tier.

    Raises:
        ConfigError: there are more of one kind than of the other.
    """
    if len(inputs or ()) != len(outputs or ()):
        raise ConfigError("--price-input and --price-output go together: give as many of one as of the other")
    return list(map(Price, inputs or (), outputs or ()))
