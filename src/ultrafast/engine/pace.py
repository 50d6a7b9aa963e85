"""How many prompt tokens one step computes: enough to be fast, few enough to be short."""

from __future__ import annotations

_SMALLEST = 8  # every step reads all weights, whatever its tokens: with fewer, that is most of the work
_SHORT_STEP_S = 0.04  # steps meant to be shorter than this may be smaller still
_START = 32


class PrefillPace:
    """Steers the length of steps that carry prompts, by their number of tokens.

    A controller on the time itself: what a token costs grows with its position and with what else the machine does,
    and a step has a cost of its own, so no model of it stays true.

    Args:
        fixed: prompt tokens per step whatever their time; 0: steer.
        most: upper bound.
    """

    def __init__(self, fixed: int, most: int) -> None:
        self.fixed = fixed
        self._most = most
        self._tokens = float(_START)
        self._step_s = 0.05

    def budget(self, step_s: float) -> int:
        """Prompt tokens for the next step, which should take ``step_s`` seconds."""
        if step_s != self._step_s:
            self._set(self._tokens * step_s / self._step_s, step_s)
            self._step_s = step_s
        return self.fixed or int(self._tokens)

    def learn(self, rows: int, steps: int, seconds: float) -> None:
        """Take note of a burst of ``steps`` that computed ``rows`` prompt tokens in ``seconds``."""
        if rows < self._tokens / 2 * steps:
            return  # the end of a prompt, or no prompt at all: that says nothing about a full step
        change = self._step_s * steps / seconds
        right = rows / steps * min(max(change, 0.5), 1.5)
        # A step that was short because it had few tokens does not say that more than these would be right.
        self._set(right if change < 1.0 else max(right, self._tokens), self._step_s)

    def _set(self, tokens: float, step_s: float) -> None:
        smallest = _SMALLEST if step_s >= _SHORT_STEP_S else 2
        self._tokens = min(max(tokens, smallest), self._most)
