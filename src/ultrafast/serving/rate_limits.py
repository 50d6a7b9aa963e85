"""The ``x-ratelimit-*`` headers: what the tier that serves a request has room for when its answer begins.

Nothing here is counted by the minute. The limits are room: *requests* is the tier's slots and its queue, *tokens* is
what the model's KV cache holds, which all tiers share. ``reset`` is the time until that room is there again, guessed
from how long the last requests took.
"""

from __future__ import annotations

import math

from ultrafast.engine.loop import EngineLoop
from ultrafast.engine.native import KV_BLOCK
from ultrafast.engine.tiers import TIERS


def rate_limits(loop: EngineLoop, tier: str) -> dict[str, str]:
    """The headers.

    Args:
        loop: of the model.
        tier: that serves the request; of one that was refused, the tier that it asked for.
    """
    room = loop.admission.room(tier)
    stats = loop.stats()
    blocks = stats["num_blocks"]
    free_s = max(loop.admission.room(other).reset_s for other in TIERS)
    return {
        "x-ratelimit-limit-requests": str(room.limit),
        "x-ratelimit-remaining-requests": str(room.remaining),
        "x-ratelimit-reset-requests": duration(room.reset_s),
        "x-ratelimit-limit-tokens": str(blocks * KV_BLOCK),
        "x-ratelimit-remaining-tokens": str(max(0, blocks - stats["held_blocks"]) * KV_BLOCK),
        "x-ratelimit-reset-tokens": duration(free_s),
    }


def duration(seconds: float) -> str:
    """A time as OpenAI writes it, rounded up: ``12ms``, ``1s``, ``6m0s``, ``1h0m0s``."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{rest}s" if hours else f"{minutes}m{rest}s" if minutes else f"{rest}s"
