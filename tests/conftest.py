"""Fixtures for all tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.tiny import write_tiny_model
from ultrafast.models import fetch
from ultrafast.serving.wire import socket

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Shells start background jobs so, and children inherit it; the tests of Ctrl-C need programs that hear it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _state_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Servers that tests start as programs store responses in a folder of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", os.fspath(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def _nothing_ahead_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of tests compute what was asked, and no more, but where looking ahead is what is tested."""
    monkeypatch.setattr(socket, "AHEAD_AFTER_S", 3600.0)


@pytest.fixture(scope="session")
def embedded_model_path() -> Path:
    """The default model; downloaded into the user's cache when it is not there yet."""
    return fetch.resolve("smollm2-135m")


@pytest.fixture(scope="session")
def tiny_model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A seeded two-layer model; see `support.tiny` for others."""
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf")
