"""Serves a scripted engine as a program of its own: ``python scripted_server.py`` (for tests of signals).

Each line on standard input grants the engine that many steps; the end of input grants any number.
"""

from __future__ import annotations

import sys
import threading
import time

from support.scripted_engine import ScriptedEngine
from ultrafast.engine.loop import EngineLoop
from ultrafast.serving.server import bind, run


def main() -> None:
    engine = ScriptedEngine(paced=True)

    def grant() -> None:
        for line in sys.stdin:
            engine.allow(int(line))
        engine.allow(None)

    threading.Thread(target=grant, daemon=True).start()
    run([EngineLoop(engine)], bind("127.0.0.1", 0), started_at=time.monotonic())  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
