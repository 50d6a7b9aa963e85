"""What the lanes did: counters, and figures of the last seconds.

One thread, that of the engine, calls ``tokens`` and ``finished``; any thread may call the others. ``status`` takes no
lock, so that it never holds the engine up. In return its counts may belong to two neighbouring moments: a request that
ends while it reads may be in both its lane and its counters, or in neither.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from statistics import median
from typing import NamedTuple, Protocol

from ultrafast.engine.status import CacheStatus, LaneStatus, ModelStatus, RequestStatus, State
from ultrafast.engine.tiers import TierPolicy, Tiers
from ultrafast.types import FinishReason, GenerateRequest, Timings, Usage

_BUCKET_S = 0.25
_NUM_BUCKETS = 40  # whole ones: 10 s
_RECENT_S = 60.0
_MAX_RECENT = 512  # finished requests a tier whose speed is kept
_STEADY_S = 0.1  # of decoding, before it has a speed: the first tokens come several at once


class Watched(Protocol):
    """What the meter reads of a sequence, or of a stream that the engine has not taken yet."""

    @property
    def request(self) -> GenerateRequest: ...
    @property
    def tier(self) -> str: ...
    @property
    def timings(self) -> Timings: ...
    @property
    def usage(self) -> Usage: ...


class Meter:
    """Counts for every tier of one model, in bounded memory.

    Args:
        tiers: the lanes there are.
    """

    def __init__(self, tiers: Tiers) -> None:
        self._tiers = tiers
        self._lanes = {tier: _Lane() for tier in tiers.policies}
        self._lock = threading.Lock()  # the three below, which any thread may change
        self._refused: Counter[str] = Counter()
        self._downgraded: Counter[str] = Counter()
        self._cancelled: Counter[str] = Counter()

    def tokens(self, tier: str, count: int, now: float) -> None:
        """A burst brought ``count`` output tokens to a request of the tier."""
        self._lanes[tier].rate.add(count, now)

    def finished(self, sequence: Watched, reason: FinishReason, now: float) -> None:
        """A request that the engine had taken ended, whatever way; who cancels for a client also says `cancelled`."""
        self._lanes[sequence.tier].finish(sequence, reason, now)

    def refused(self, tier: str, count: int = 1) -> None:
        """Requests that asked for the tier got a 429, at the door or after waiting."""
        with self._lock:
            self._refused[tier] += count

    def downgraded(self, tier: str, count: int = 1) -> None:
        """Requests that asked for the tier went on as ``default``."""
        with self._lock:
            self._downgraded[tier] += count

    def cancelled(self, tier: str) -> None:
        """A request of the tier was cut short by its client."""
        with self._lock:
            self._cancelled[tier] += 1

    def status(
        self,
        model: str,
        running: Seq[Watched],
        waiting: Seq[Watched],
        *,
        blocks: int,
        free_blocks: int,
        cached_blocks: int,
        block_tokens: int,
        bytes_per_block: int,
        now: float,
    ) -> ModelStatus:
        """Everything at this moment.

        Args:
            model: its id.
            running, waiting: all that have a slot; all that wait for one.
            blocks, free_blocks, cached_blocks, block_tokens, bytes_per_block: see `CacheStatus`.
            now: seconds, on the clock of all other calls and of the sequences' timings.
        """
        begun = [sequence for sequence in (*running, *waiting) if sequence.timings.started]
        spent = [*(lane.spent for lane in self._lanes.values()), *map(_Spent.of, begun)]
        return ModelStatus(
            model=model,
            share=self._tiers.share,
            lanes=[
                self._lane_status(tier, policy, running, waiting, now) for tier, policy in self._tiers.policies.items()
            ],
            cache=CacheStatus(
                blocks=blocks,
                free_blocks=free_blocks,
                cached_blocks=cached_blocks,
                block_tokens=block_tokens,
                bytes_per_block=bytes_per_block,
                prompt_tokens=sum(tokens.prompt for tokens in spent),
                cached_tokens=sum(tokens.cached for tokens in spent),
            ),
            requests=[
                *(_request_status(s, "decode" if s.timings.first_token else "prefill", now) for s in running),
                *(_request_status(s, "queued", now) for s in waiting),
            ],
        )

    def _lane_status(
        self, tier: str, policy: TierPolicy, running: Seq[Watched], waiting: Seq[Watched], now: float
    ) -> LaneStatus:
        lane, running = self._lanes[tier], [sequence for sequence in running if sequence.tier == tier]
        samples = [*lane.recent_samples(now), *(_Sample.of(sequence, now) for sequence in running)]
        speed = _median(sample.tokens_per_s for sample in samples)
        ttft_s = _median(sample.ttft_s for sample in samples)
        spent = [lane.spent, *map(_Spent.of, running)]
        return LaneStatus(
            tier=tier,
            slots=policy.slots,
            running=len(running),
            queued=sum(sequence.tier == tier for sequence in waiting),
            queue=policy.queue,
            overflow=policy.overflow.value,
            queue_timeout_s=policy.queue_timeout_s,
            speculation=policy.speculation,
            price=policy.price,
            tokens_per_s=round(lane.rate.per_s(now), 1),
            tokens_per_s_per_request=None if speed is None else round(speed, 1),
            ttft_ms=None if ttft_s is None else round(ttft_s * 1e3, 2),
            served=lane.served,
            refused=self._refused[tier],
            downgraded=self._downgraded[tier],
            cancelled=self._cancelled[tier],
            acceptance=_acceptance(sum(tokens.accepted for tokens in spent), sum(tokens.rejected for tokens in spent)),
        )


class _Lane:
    """What one tier did."""

    def __init__(self) -> None:
        self.rate = Rate()
        self.served = 0
        self.spent = _Spent(0, 0, 0, 0)
        self._recent: deque[_Sample] = deque(maxlen=_MAX_RECENT)

    def finish(self, sequence: Watched, reason: FinishReason, now: float) -> None:
        self.served += reason is not FinishReason.CANCELLED
        if sequence.timings.started:
            self.spent = _Spent(*map(sum, zip(self.spent, _Spent.of(sequence), strict=True)))
            self._recent.append(_Sample.of(sequence, now))

    def recent_samples(self, now: float) -> list[_Sample]:
        return [sample for sample in list(self._recent) if sample.at > now - _RECENT_S]


class Rate:
    """Events a second over the last 10 s; from one thread counted, from any read."""

    def __init__(self) -> None:
        self._counts = [0] * (_NUM_BUCKETS + 1)  # a ring; the newest bucket is not over yet
        self._newest = 0

    def add(self, count: int, now: float) -> None:
        """``count`` events at ``now``, which never goes back."""
        bucket = int(now // _BUCKET_S)
        for old in range(max(self._newest + 1, bucket - _NUM_BUCKETS), bucket + 1):
            self._counts[old % len(self._counts)] = 0
        self._newest = bucket
        self._counts[bucket % len(self._counts)] += count

    def per_s(self, now: float) -> float:
        """The mean rate of the 40 whole buckets before ``now`` and the one begun."""
        begun = int(now // _BUCKET_S)
        first = begun - _NUM_BUCKETS
        counted = range(max(first, self._newest - _NUM_BUCKETS), min(begun, self._newest) + 1)
        total = sum(self._counts[bucket % len(self._counts)] for bucket in counted)
        return total / (now - first * _BUCKET_S)


class _Spent(NamedTuple):
    """Tokens."""

    prompt: int
    cached: int
    accepted: int
    rejected: int

    @classmethod
    def of(cls, sequence: Watched) -> _Spent:
        usage = sequence.usage
        return cls(usage.prompt_tokens, usage.cached_tokens, usage.accepted_draft_tokens, usage.rejected_draft_tokens)


class _Sample(NamedTuple):
    """The speed of one request, at a moment."""

    at: float
    ttft_s: float | None
    tokens_per_s: float | None

    @classmethod
    def of(cls, sequence: Watched, now: float) -> _Sample:
        timings, tokens = sequence.timings, sequence.usage.completion_tokens
        if not timings.first_token:
            return cls(now, None, None)
        seconds = now - timings.first_token
        speed = (tokens - 1) / seconds if tokens > 1 and seconds >= _STEADY_S else None
        return cls(now, timings.ttft_s, speed)


def _request_status(sequence: Watched, state: State, now: float) -> RequestStatus:
    timings, usage, speed = sequence.timings, sequence.usage, _Sample.of(sequence, now).tokens_per_s
    return RequestStatus(
        id=sequence.request.id,
        tier=sequence.tier,
        asked=sequence.request.tier,
        state=state,
        prompt_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        cached_tokens=usage.cached_tokens,
        tokens_per_s=None if speed is None else round(speed, 1),
        acceptance=_acceptance(usage.accepted_draft_tokens, usage.rejected_draft_tokens),
        age_s=round(now - timings.arrived, 2) if timings.arrived else 0.0,
    )


def _acceptance(accepted: int, rejected: int) -> float | None:
    return round(accepted / (accepted + rejected), 3) if accepted + rejected else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
