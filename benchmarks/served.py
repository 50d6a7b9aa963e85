"""`ultrafast serve` in a process of its own, for measurements over HTTP."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def served(model: str, threads: int | None) -> Iterator[int]:
    """Serve ``model`` until the end of the block; yields the port, a free one of the loopback."""
    program = Path(sys.executable).with_name("ultrafast")
    command = [str(program), "serve", "--port", "0", "--model", model]
    if threads is not None:
        command += ["--threads", str(threads)]
    # A session of its own: Ctrl-C is for the measurement, which then ends the server itself.
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout
    try:
        ready = re.search(r"http://[^:]+:(\d+)/", process.stdout.readline())
        if ready is None:
            raise SystemExit(f"{' '.join(command)}: the server did not start")
        yield int(ready[1])
    finally:
        process.terminate()
        process.communicate()
