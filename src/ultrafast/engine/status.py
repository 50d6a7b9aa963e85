"""What an engine tells of itself while it works: the lanes, the KV blocks, the requests. Plain data, as on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

State = Literal["queued", "prefill", "decode"]


class LaneStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One tier: its policy (`engine.tiers.TierPolicy`), its load and its measured speed.

    Attributes:
        running, queued: requests with a slot; requests that wait for one.
        tokens_per_s: output of all its requests together, over the last 10 s.
        tokens_per_s_per_request: median decode speed of its requests of the last 60 s; None without any.
        ttft_ms: median time to first token of the same, waiting included.
        served, cancelled: requests that ran to their end; that their client cut short.
        refused, downgraded: requests that asked for this tier and got a 429; that went on as ``default``.
        acceptance: accepted of the tokens drafted, since the start; None without any.
    """

    tier: str
    slots: int
    running: int
    queued: int
    queue: int
    overflow: str
    queue_timeout_s: float
    speculation: bool
    price: float
    tokens_per_s: float
    tokens_per_s_per_request: float | None
    ttft_ms: float | None
    served: int
    refused: int
    downgraded: int
    cancelled: int
    acceptance: float | None


class CacheStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The KV blocks.

    Attributes:
        free_blocks: held by nobody.
        cached_blocks: held by the prefix cache, whether a request uses them as well or not.
        block_tokens: positions in a block.
        prompt_tokens, cached_tokens: of the prompts since the start; of these, those found in the cache.
    """

    blocks: int
    free_blocks: int
    cached_blocks: int
    block_tokens: int
    bytes_per_block: int
    prompt_tokens: int
    cached_tokens: int


class RequestStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One request that runs or waits.

    Attributes:
        id: of the HTTP request; the choices of one request share it.
        tier, asked: the tier that serves it; the one it asked for.
        state: ``queued`` is without a slot: not yet, or not just now when a higher tier needs it.
        tokens_per_s: its decode speed so far; None while that is too short to say.
    """

    id: str
    tier: str
    asked: str
    state: State
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    tokens_per_s: float | None
    acceptance: float | None
    age_s: float


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One model. ``share``: of the time, what ``ultrafast`` gets while other tiers have work as well."""

    model: str
    share: float
    lanes: Sequence[LaneStatus]
    cache: CacheStatus
    requests: Sequence[RequestStatus]
