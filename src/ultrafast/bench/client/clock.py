"""The clock of a run: one monotonic clock for all that is recorded in it."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class RunClock:
    """Seconds since it was made, on the system's monotonic clock.

    Attributes:
        started_at: the wall-clock time of its zero, ISO 8601 in UTC.
        zero: its zero on `time.monotonic`, which all processes of a Linux machine share.
    """

    def __init__(self) -> None:
        self.started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.zero = time.monotonic()

    def now(self) -> float:
        """Seconds since the clock was made."""
        return time.monotonic() - self.zero
