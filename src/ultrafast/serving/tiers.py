"""Service tiers on the wire: which words a request may use, and which tier each means.

The echo is the serving tier's own name: always one of `engine.tiers.TIERS`, never ``auto``, ``scale`` or an alias.
"""

from __future__ import annotations

from collections.abc import Mapping

from ultrafast.engine.tiers import DEFAULT, FAST, FLEX, ULTRAFAST
from ultrafast.errors import RequestError

OPENAI = {
    "auto": DEFAULT,
    "default": DEFAULT,
    "scale": DEFAULT,
    "flex": FLEX,
    "priority": FAST,
    "fast": FAST,
    "ultrafast": ULTRAFAST,
}
"""The words of OpenAI's API."""

ANTHROPIC = {"standard_only": DEFAULT, **OPENAI}
"""Those of Anthropic's (``auto`` and ``standard_only``), and ours."""


def tier_of(service_tier: str | None, words: Mapping[str, str] = OPENAI) -> str:
    """The tier a ``service_tier`` value asks for; absent and null mean ``default``.

    Args:
        service_tier: as sent.
        words: those that the API at hand accepts, and their tiers.

    Raises:
        RequestError: 400 listing the accepted values.
    """
    if service_tier is None:
        return DEFAULT
    tier = words.get(service_tier)
    if tier is None:
        raise RequestError(
            f"Invalid service_tier argument {service_tier[:64]!r}. Accepted values: {', '.join(words)}.",
            code="invalid_value",
            param="service_tier",
        )
    return tier
