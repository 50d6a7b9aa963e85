"""Where the time of runs went, and what a faster tier can do about it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ultrafast.bench.ab.run.records import Run
from ultrafast.bench.client.call import Call

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Split:
    """Seconds of runs, by what the workflow was waiting for. Where calls overlap, an instant counts once, for the first
    of these that goes on.

    Attributes:
        output: tokens came. Of an answer that was not streamed, all of its time.
        waiting: a call was sent and no token had come: network, queue, prompt.
        failed: calls that came to nothing, which harnesses make again.
        between: from the end of one call to the next: tools, and the harness itself.
        ends: before the first call and after the last.
    """

    output: float = 0.0
    waiting: float = 0.0
    failed: float = 0.0
    between: float = 0.0
    ends: float = 0.0

    @property
    def total(self) -> float:
        return self.output + self.waiting + self.failed + self.between + self.ends

    @property
    def output_share(self) -> float:
        """The part that a faster tier makes shorter: Amdahl's ``f``. ``nan`` of no time at all."""
        return self.output / self.total if self.total > 0 else math.nan


def split(run: Run) -> Split:
    """Of one run."""
    begin, end = run.start_s, run.start_s + run.wall_s
    output, waiting, failed = list[Span](), list[Span](), list[Span]()
    for call in run.calls:
        sent, done = call.intended_s, end if call.done_s is None else call.done_s
        if not call.is_ok:
            failed.append((sent, done))
        elif call.first_token_s is None:
            output.append((sent, done))
        else:
            waiting.append((sent, call.first_token_s))
            output.append((call.first_token_s, done))
    calls = [_clipped(span, begin, end) for span in (*output, *waiting, *failed)]
    first, last = (min(span[0] for span in calls), max(span[1] for span in calls)) if calls else (end, end)
    in_output = _covered([_clipped(span, begin, end) for span in output])
    in_ok = _covered([_clipped(span, begin, end) for span in (*output, *waiting)])
    in_all = _covered(calls)
    return Split(
        output=in_output,
        waiting=in_ok - in_output,
        failed=in_all - in_ok,
        between=max(last - first - in_all, 0.0),
        ends=max(run.wall_s - (last - first), 0.0),
    )


def total(runs: Iterable[Run]) -> Split:
    """Of all of them together."""
    splits = [split(run) for run in runs]
    names = ("output", "waiting", "failed", "between", "ends")
    return Split(*(sum(getattr(part, name) for part in splits) for name in names))


def output_speed(calls: Sequence[Call]) -> float:
    """Tokens a second while they came, over all streamed calls that tell; the first token of each is not counted, as
    its time is not. ``nan`` where none does."""
    tokens = seconds = 0.0
    for call in calls:
        if call.is_ok and call.first_token_s is not None and call.last_token_s is not None and call.output_tokens:
            tokens += call.output_tokens - 1
            seconds += call.last_token_s - call.first_token_s
    return tokens / seconds if seconds > 0 else math.nan


def amdahl(output_share: float, speed_ratio: float) -> float:
    """The speed-up of the whole if only output gets faster, by ``speed_ratio``; ``inf`` there gives the bound."""
    rest = 1 - output_share + output_share / speed_ratio
    return math.inf if rest <= 0 else 1 / rest  # `nan` stays so


def _clipped(span: Span, begin: float, end: float) -> Span:
    return min(max(span[0], begin), end), min(max(span[1], begin), end)


def _covered(spans: Sequence[Span]) -> float:
    """Seconds in at least one of them."""
    seconds, reached = 0.0, -math.inf
    for begin, end in sorted(spans):
        seconds += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return seconds
