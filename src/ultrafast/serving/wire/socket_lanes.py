"""The lanes of one WebSocket connection: in order within each, at once across them, and what each remembers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field

import msgspec

from ultrafast.errors import QueueFull, RequestError
from ultrafast.serving.wire.response_run import Turn
from ultrafast.serving.wire.socket_frames import Frame

MAX_STREAM_IDS = 32  # beside the default lane
MAX_RUNNING = 16  # responses, over all lanes
MAX_WAITING = 256  # frames, over all lanes
MAX_WAITING_BYTES = 64 * 1024 * 1024  # of those; one frame of any size may wait
MAX_REMEMBERED_BYTES = 128 * 1024 * 1024  # of turns, as JSON

Meanwhile = Callable[[], Coroutine[None, None, None]]
"""What is to be done in a lane until its next frame comes, and is cancelled then."""

Answer = Callable[["Lane", Frame], Awaitable[Meanwhile | None]]


@dataclass(eq=False, slots=True)
class Lane:
    """One conversation, or one branch of it.

    Attributes:
        stream_id: its name; None for the default lane.
        waiting: frames that are not answered yet, in order.
        working: a task answers them.
        in_progress: id of the response in the making.
        meanwhile: what is done until its next frame comes.
    """

    stream_id: str | None
    waiting: deque[Frame] = field(default_factory=deque)
    working: bool = False
    in_progress: str | None = None
    meanwhile: asyncio.Task[None] | None = None


class Lanes:
    """Has frames answered: those of a lane one after the other, and up to `MAX_RUNNING` lanes at once.

    Args:
        tasks: of the connection; when they end, what waits here is forgotten.
        answer: answers one frame; must not fail.
    """

    def __init__(self, tasks: asyncio.TaskGroup, answer: Answer) -> None:
        self.idle = asyncio.Event()
        self.idle.set()
        self._tasks = tasks
        self._answer = answer
        self._lanes: dict[str | None, Lane] = {None: Lane(None)}
        self._running = asyncio.Semaphore(MAX_RUNNING)
        self._num_working = 0
        self._num_waiting = 0
        self._waiting_bytes = 0

    def take(self, frame: Frame) -> None:
        """Queue a frame in its lane.

        Raises:
            RequestError: 400, one lane too many; 429, too much waits already.
        """
        lane = self._lanes.get(frame.stream_id)
        if lane is None and len(self._lanes) > MAX_STREAM_IDS:
            raise RequestError(
                f"This connection has used {MAX_STREAM_IDS} values of 'stream_id', which is the limit; use one of "
                "them again, or another connection.",
                code="websocket_stream_limit_reached",
                param="stream_id",
            )
        if self._num_waiting >= MAX_WAITING or (
            self._num_waiting and self._waiting_bytes + len(frame.body) > MAX_WAITING_BYTES
        ):
            raise QueueFull(
                f"Too many events wait on this connection; the limits are {MAX_WAITING} and "
                f"{MAX_WAITING_BYTES // 2**20} MiB. Send more when responses have ended."
            )
        if lane is None:
            lane = self._lanes[frame.stream_id] = Lane(frame.stream_id)
        if lane.meanwhile is not None:
            lane.meanwhile.cancel()
        lane.waiting.append(frame)
        self._num_waiting += 1
        self._waiting_bytes += len(frame.body)
        if not lane.working:
            lane.working = True
            self._num_working += 1
            self.idle.clear()
            self._tasks.create_task(self._work(lane))

    def lane_of(self, response_id: object) -> str | None:
        """The name of the lane in which that response is in the making, if there is one and it has a name."""
        for lane in self._lanes.values():
            if lane.in_progress is not None and lane.in_progress == response_id:
                return lane.stream_id
        return None

    async def _work(self, lane: Lane) -> None:
        meanwhile: Meanwhile | None = None
        while lane.waiting:
            async with self._running:
                frame = lane.waiting.popleft()
                self._num_waiting -= 1
                self._waiting_bytes -= len(frame.body)
                meanwhile = await self._answer(lane, frame)
        if meanwhile is not None:
            lane.meanwhile = self._tasks.create_task(meanwhile())
        lane.working = False
        self._num_working -= 1
        if not self._num_working:
            self.idle.set()


class Memory:
    """The latest turn of each lane; the oldest are forgotten when all take more than `MAX_REMEMBERED_BYTES`."""

    def __init__(self) -> None:
        self._latest: dict[str | None, Turn] = {}  # by lane, the oldest first
        self._sizes: dict[str, int] = {}  # by response

    def find(self, response_id: str) -> Turn | None:
        """The turn with that id, in whatever lane."""
        return next((turn for turn in self._latest.values() if turn.id == response_id), None)

    def keep(self, lane: Lane, turn: Turn) -> None:
        """A lane has got further."""
        self._drop(lane.stream_id)
        self._latest[lane.stream_id] = turn
        self._sizes[turn.id] = len(msgspec.json.encode(turn.items))
        while sum(self._sizes.values()) > MAX_REMEMBERED_BYTES:
            self._drop(next(iter(self._latest)))

    def forget(self, lane: Lane, response_id: object) -> None:
        """Forget that turn, if it is the latest of that lane."""
        latest = self._latest.get(lane.stream_id)
        if latest is not None and latest.id == response_id:
            self._drop(lane.stream_id)

    def _drop(self, stream_id: str | None) -> None:
        turn = self._latest.pop(stream_id, None)
        if turn is not None:
            del self._sizes[turn.id]
