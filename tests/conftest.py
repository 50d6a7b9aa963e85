"""Fixtures for all tests."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from support.tiny import write_tiny_model
from ultrafast.models import fetch

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Shells start background jobs so, and children inherit it; the tests of Ctrl-C need programs that hear it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def embedded_model_path() -> Path:
    """The default model; downloaded into the user's cache when it is not there yet."""
    return fetch.resolve("smollm2-135m")


@pytest.fixture(scope="session")
def tiny_model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A seeded two-layer model; see `support.tiny` for others."""
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf")
