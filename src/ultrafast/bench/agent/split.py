"""Where the time of a task went: spans that follow each other without a gap, and their sums."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from ultrafast.bench.agent.records import Step, TaskRun
from ultrafast.bench.client.call import Call


class Part(StrEnum):
    """What a moment of a task was spent on.

    A server that states its times is told apart from the network; of any other, only the wait for the first token and
    the stream after it are seen, and the network is in both.
    """

    QUEUE = "queue"  # at the server, as it states
    PREFILL = "prefill"  # up to the first token, as the server states
    DECODE = "decode"  # from the first token, as the server states
    FIRST_TOKEN = "first token"  # sent, and no token yet: network, queue and prefill
    STREAM = "stream"  # from the first token to the end: decode and network
    NETWORK = "network"  # to connect and send, and what passed beside the times that the server states
    TOOLS = "tools"
    IDLE = "idle"  # the agent's own work between requests and tools


MODEL = (Part.QUEUE, Part.PREFILL, Part.DECODE, Part.FIRST_TOKEN, Part.STREAM)
OUTPUT = (Part.DECODE, Part.STREAM)
"""Parts that a faster decode shortens."""


@dataclass(frozen=True, slots=True)
class Span:
    """Seconds from the start of the task."""

    part: Part
    start_s: float
    end_s: float
    step: int
    attempt: int = 0  # that of the request; 0 for tools

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


def timeline(run: TaskRun) -> list[Span]:
    """The whole task, from 0 to its `wall_s`. What passed between its steps (the turns of other arms) is left out."""
    spans: list[Span] = []
    offset = 0.0
    for step in run.steps:
        offset -= step.start_s
        cursor = step.start_s
        for part, start, end, attempt in [*_busy(step), (Part.IDLE, step.end_s, step.end_s, 0)]:
            start = min(max(start, cursor), step.end_s)
            end = min(max(end, start), step.end_s)
            if start > cursor:
                spans.append(Span(Part.IDLE, cursor + offset, start + offset, step.number))
            if end > start:
                spans.append(Span(part, start + offset, end + offset, step.number, attempt))
            cursor = end
        offset += step.end_s
    return spans


def totals(spans: Iterable[Span]) -> dict[Part, float]:
    """Seconds by part; every part is there."""
    sums = dict.fromkeys(Part, 0.0)
    for span in spans:
        sums[span.part] += span.seconds
    return sums


def states_times(call: Call) -> bool:
    """Whether the server stated enough to be told apart from the network."""
    return call.server.prefill_s is not None and call.server.decode_s is not None


def _busy(step: Step) -> list[tuple[Part, float, float, int]]:
    spans = [(*piece, request.attempt) for request in step.requests for piece in call_pieces(request.call)]
    spans += [(Part.TOOLS, tool.start_s, tool.end_s, 0) for tool in step.tools]
    return sorted(spans, key=lambda span: span[1:3])


def call_pieces(call: Call) -> Iterator[tuple[Part, float, float]]:
    """What a request's time went to, from `intended_s` to its end, on the clock of the run.

    Times that the server states are put right before the end, and the network before them: how much of it came after is
    not known. Should they be longer than what passed here (they are of another clock), they are cut to that.
    """
    start = call.intended_s
    end = max(time for time in (start, call.sent_s, call.last_token_s, call.done_s) if time is not None)
    sent = end if call.sent_s is None else call.sent_s
    yield Part.NETWORK, start, sent
    if not states_times(call):
        first = end if call.first_token_s is None else call.first_token_s
        yield Part.FIRST_TOKEN, sent, first
        yield Part.STREAM, first, end
        return
    stated = [call.server.queue_s or 0.0, call.server.prefill_s or 0.0, call.server.decode_s or 0.0]
    fit = min(1.0, (end - sent) / sum(stated)) if sum(stated) > 0 else 1.0
    queue, prefill, decode = (seconds * fit for seconds in stated)
    yield Part.NETWORK, sent, end - decode - prefill - queue
    yield Part.QUEUE, end - decode - prefill - queue, end - decode - prefill
    yield Part.PREFILL, end - decode - prefill, end - decode
    yield Part.DECODE, end - decode, end
