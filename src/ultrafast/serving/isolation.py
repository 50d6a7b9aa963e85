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
    if isolation is Isolation.KEY:
        return f"{_key_hash(connection)}:{salt}"
    return salt


def owner_of(connection: HTTPConnection) -> str:
    """Who may see what this connection stores: those with the same key, or everybody unless keys separate."""
    return _key_hash(connection) if connection.app.state.isolation is Isolation.KEY else ""


def _key_hash(connection: HTTPConnection) -> str:
    """Only the hash of a key is kept."""
    key = connection.headers.get("authorization") or connection.headers.get("x-api-key", "")
    return hashlib.sha256(key.encode()).hexdigest()
