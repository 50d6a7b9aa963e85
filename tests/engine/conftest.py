"""Engines for the tests, and the check that every test leaves them as it found them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.engines import OpenEngine, assert_idle
from support.tiny import write_tiny_model
from ultrafast import Engine


@pytest.fixture(scope="session")
def _shared_engine(tiny_model_path: Path) -> Iterator[Engine]:
    with Engine(tiny_model_path) as engine:
        yield engine


@pytest.fixture
def engine(_shared_engine: Engine) -> Iterator[Engine]:
    """An engine over the plain tiny model, shared by all tests; idle before and after each."""
    yield _shared_engine
    assert_idle(_shared_engine)


@pytest.fixture
def open_engine(tmp_path: Path) -> Iterator[OpenEngine]:
    """Opens engines: ``open_engine(path, threads=1)``, or over a new tiny model: ``open_engine(layers=1)``."""
    engines: list[Engine] = []

    def open_(path: Path | None = None, **options: Any) -> Engine:
        names = ("threads", "isa", "context", "prefill_chunk", "tiers", "cache_mib", "draft_model")
        model = {name: options.pop(name) for name in list(options) if path is None and name not in names}
        engine = Engine(path or write_tiny_model(tmp_path / f"model{len(engines)}.gguf", **model), **options)
        engines.append(engine)
        return engine

    yield open_
    for engine in engines:
        if not engine._closed:
            assert_idle(engine)
            engine.close()
