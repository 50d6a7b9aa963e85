"""Who may share KV prefixes and drafts with whom: a shared cache tells, by its speed, what others have sent."""

from __future__ import annotations

import hashlib
from enum import StrEnum

from starlette.requests import HTTPConnection


class Isolation(StrEnum):
    """What separates requests beside their own ``cache_salt``."""

    NONE = "none"
    TIER = "tier"  # the tier asked for
    KEY = "key"  # the key they were sent with; those without one share


def cache_domain(connection: HTTPConnection, *, tier: str, salt: str) -> str:
    """The name of the domain that a request belongs to: requests share within one, never across.

    Args:
        connection: of an application whose state has the ``isolation`` in force.
        tier: the tier asked for.
        salt: what the client sent as ``cache_salt``.
    """
    isolation: Isolation = connection.app.state.isolation
    if isolation is Isolation.TIER:
        return f"{tier}:{salt}"
    if isolation is Isolation.KEY:  # only its hash is kept
        key = connection.headers.get("authorization") or connection.headers.get("x-api-key", "")
        return f"{hashlib.sha256(key.encode()).hexdigest()}:{salt}"
    return salt
