"""What the tests of the engine ask of every engine."""

from __future__ import annotations

from collections.abc import Callable

from ultrafast import Engine

OpenEngine = Callable[..., Engine]
"""Of the fixture ``open_engine``."""


def assert_idle(engine: Engine) -> None:
    """No request is left, and every KV block is free again."""
    engine._scheduler.check_integrity()
    stats = engine.stats()
    assert (stats["running"], stats["waiting"]) == (0, 0)
    assert stats["free_blocks"] + stats["cached_blocks"] == stats["num_blocks"]
    assert not engine.has_work
    assert engine._callers.count == 0
