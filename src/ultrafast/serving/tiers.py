"""Service tiers on the wire: which words a request may use, and which tier each means.

The echo is the serving tier's own name: always one of `engine.tiers.TIERS`, never ``auto``, ``scale`` or an alias.
"""

from __future__ import annotations

from ultrafast.engine.tiers import DEFAULT, FAST, FLEX, ULTRAFAST
from ultrafast.errors import RequestError

_TIER_OF = {
    "auto": DEFAULT,
    "default": DEFAULT,
    "scale": DEFAULT,
    "flex": FLEX,
    "priority": FAST,
    "fast": FAST,
    "ultrafast": ULTRAFAST,
}


def tier_of(service_tier: str | None) -> str:
    """The tier a ``service_tier`` value asks for; absent and null mean ``default``.

    Raises:
        RequestError: 400 listing the accepted values.
    """
    if service_tier is None:
        return DEFAULT
    tier = _TIER_OF.get(service_tier)
    if tier is None:
        raise RequestError(
            f"Invalid service_tier argument {service_tier[:64]!r}. Accepted values: {', '.join(_TIER_OF)}.",
            code="invalid_value",
            param="service_tier",
        )
    return tier
