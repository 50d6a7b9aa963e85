"""How many prompt tokens one step computes: enough to be fast, few enough to be short."""

from __future__ import annotations

_STEP_S = 0.05  # a running stream waits at most about this long for a step that carries others' prompts
# Every step reads all weights, whatever its tokens: below about this many, halving the chunk hardly shortens the step
# but doubles their number, and a slow moment would talk the budget down for good.
_SMALLEST = 16


class PrefillPace:
    """Learns the speed of prefill and gives each step the tokens that fit its time.

    Args:
        fixed: prompt tokens per step whatever the speed; 0: learn.
        most: upper bound.
    """

    def __init__(self, fixed: int, most: int) -> None:
        self.fixed = fixed
        self._most = most
        self._row_s = _STEP_S / _SMALLEST

    @property
    def budget(self) -> int:
        """Prompt tokens for the next step."""
        return self.fixed or max(_SMALLEST, min(self._most, int(_STEP_S / self._row_s)))

    def learn(self, rows: int, steps: int, seconds: float) -> None:
        """Take note of a burst that computed ``rows`` prompt tokens."""
        if rows >= _SMALLEST // 2 * steps:  # with fewer, the time is that of decoding
            self._row_s += 0.3 * (seconds / rows - self._row_s)
