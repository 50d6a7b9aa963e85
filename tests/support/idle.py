"""Whether a process sleeps when it has nothing to do."""

from __future__ import annotations

import re
from pathlib import Path

import psutil
import pytest

needs_proc = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="wake-ups are read from Linux's /proc")


def num_wake_ups_when_idle(pid: int) -> int:
    """How often any thread of a process runs in half a second, once what it was doing is done.

    uvicorn's own main loop would make five, a worker that spins many more, or CPU time.
    """
    process = psutil.Process(pid)
    while process.cpu_percent(interval=0.2):
        pass
    before = _num_sleeps(pid)
    assert process.cpu_percent(interval=0.5) == 0
    return _num_sleeps(pid) - before


def _num_sleeps(pid: int) -> int:
    statuses = [task.joinpath("status").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int(count) for count in re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", "".join(statuses), re.M))
