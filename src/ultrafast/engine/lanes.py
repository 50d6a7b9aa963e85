"""Whose turn it is: the two lanes share time, not slots. Pure arithmetic on seconds."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ultrafast.engine.native import Lane

# Each burst costs Python's work on the way of its tokens to the client. An interrupt ends it early, so its length
# decides about the grain of streams alone: fine at first, coarser once they are steady.
_FIRST_BURST_S, _STEADY_BURST_S = 0.008, 0.025
_STEADY_AFTER_S = 0.2  # since the first token
# While both lanes have work. An urgent stream then waits for a slice and one step of its own at most.
_SLICE_S = 0.008  # of the shared lane, at least
_MOST_OWED_S = 0.05  # to the shared lane: after a long step of the urgent one, it gets no more than that at once
_CONTESTED_BURST_S = 0.01  # of the urgent lane
# Prompts are cut so that a step takes about this long.
_STEP_S = 0.05  # a running stream of the same lane, or a cancel, waits for one
_URGENT_STEP_S = 0.02  # the same beside urgent streams
_CONTESTED_CYCLE_S = 0.1  # while the shared lane has but slices, one of its steps is spread over this long


@dataclass(frozen=True, slots=True)
class Turn:
    """Who computes next and for how long.

    Attributes:
        time_limit_s: of the burst.
        slice: whether the step is suspended at its end.
        step_s: how long a step with prompts in it should take.
    """

    lane: Lane
    time_limit_s: float
    slice: bool
    step_s: float


class LaneClock:
    """Shares time between the lanes: the urgent one goes first, and the shared one is owed its part of that time.

    Args:
        share: part of the time that the urgent lane gets while both have work: above 0, below 1.
    """

    def __init__(self, share: float) -> None:
        self._owed_per_s = (1.0 - share) / share
        self._shared_part = 1.0 - share
        self._owed_s = 0.0  # to the shared lane
        self._just_sliced = False
        self._contested = False  # both lanes had work at the last turn

    def next_turn(self, *, working: Collection[Lane], decoding: Collection[Lane], youngest_s: float) -> Turn:
        """The next turn.

        Args:
            working: lanes with something to compute, one at least.
            decoding: those of them with streams, as opposed to prompts alone: nobody waits for the latter's steps.
            youngest_s: seconds since the first token of the youngest stream of the first such lane, 0 before it.
        """
        urgent_step_s = _URGENT_STEP_S if Lane.URGENT in decoding else _STEP_S
        self._contested = len(working) > 1
        if not self._contested:
            self._owed_s = 0.0
            self._just_sliced = False
            burst_s = _STEADY_BURST_S if youngest_s > _STEADY_AFTER_S else _FIRST_BURST_S
            if Lane.URGENT in working:
                return Turn(Lane.URGENT, burst_s, False, urgent_step_s)
            return Turn(Lane.SHARED, burst_s, False, _STEP_S)
        if self._owed_s >= _SLICE_S and not self._just_sliced:
            step_s = max(_SLICE_S, _CONTESTED_CYCLE_S * self._shared_part) if Lane.SHARED in decoding else _STEP_S
            return Turn(Lane.SHARED, self._owed_s, True, step_s)
        # After a slice one step only: its tokens have waited long enough.
        until_due_s = max(0.0, _SLICE_S - self._owed_s) / self._owed_per_s
        burst_s = 0.0 if self._just_sliced else min(_CONTESTED_BURST_S, until_due_s)
        return Turn(Lane.URGENT, burst_s, False, urgent_step_s)

    def ran(self, turn: Turn, seconds: float) -> None:
        """Take note of what the last turn took."""
        self._just_sliced = turn.slice
        if not self._contested:
            return
        if turn.lane is Lane.URGENT:
            self._owed_s = min(self._owed_s + seconds * self._owed_per_s, _MOST_OWED_S)
        else:
            self._owed_s -= seconds
