"""The two arms, from what the user says of each and what their endpoints say of themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ultrafast.bench.ab.run.records import Arm
from ultrafast.bench.ab.run.setup import RELATIVE
from ultrafast.bench.client.discover import discover
from ultrafast.bench.client.endpoint import Endpoint, Price
from ultrafast.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Wanted:
    """An arm as the user wants it; `key_env` names the variable with its API key."""

    url: str
    model: str | None
    tier: str | None
    key_env: str
    env: Mapping[str, str] = field(default_factory=dict)


def changed(wanted: Wanted, settings: Sequence[str], option: str) -> Wanted:
    """With what ``KEY=VALUE`` settings say: url, model, tier, key-env, and env.NAME for the workflow's own variables.

    Raises:
        ConfigError: a setting is no such thing.
    """
    said = {"url": wanted.url, "model": wanted.model, "tier": wanted.tier, "key-env": wanted.key_env}
    env = dict(wanted.env)
    for setting in settings:
        name, equals, value = setting.partition("=")
        if equals and name.startswith("env.") and len(name) > 4:
            env[name[4:]] = value
        elif equals and name in said:
            said[name] = value
        else:
            raise ConfigError(f"{option} {setting!r}: write KEY=VALUE; KEY is url, model, tier, key-env or env.NAME")
    return Wanted(said["url"] or "", said["model"] or None, said["tier"] or None, said["key-env"] or "", env)


async def arm_of(
    name: str, wanted: Wanted, *, api_key: str | None, price: Price | None, is_base: bool
) -> tuple[Arm, str]:
    """The arm, and the unit of its prices.

    Args:
        price: as the user says; of this arm's calls, or, if `is_base`, of the tier ``default``, of which the other
            tiers of an Ultrafast server cost multiples.

    Raises:
        ConfigError: the address is none.
        ServerError: nobody answers there, or it has no such model.
    """
    found = await discover(wanted.url, api_key=api_key, model=wanted.model)
    endpoint = Endpoint(wanted.url, found.model, tier=wanted.tier, api_key=api_key)
    prices: dict[str | None, Price] = {}
    if price is None:
        prices.update(found.prices)
    elif is_base and found.prices:
        prices = {tier: _times(price, multiple.output) for tier, multiple in found.prices.items()}
    else:
        prices[None] = price
    return Arm(name, endpoint, wanted.env, prices, cold=found.is_ours), RELATIVE if price is None and prices else "$"


def shared_prices(a: Arm, b: Arm) -> tuple[Arm, Arm]:
    """With each arm's price for the other's tier too, which serves calls that fall back to it."""
    known: dict[str | None, Price] = {
        arm.endpoint.tier: arm.prices[None] for arm in (a, b) if None in arm.prices and arm.endpoint.tier
    }
    return replace(a, prices={**known, **a.prices}), replace(b, prices={**known, **b.prices})


def _times(price: Price, multiple: float) -> Price:
    cached = None if price.cached_input is None else price.cached_input * multiple
    return Price(price.input * multiple, price.output * multiple, cached)
