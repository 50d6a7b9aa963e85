"""The embedded model behind a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.served import Served, served
from ultrafast.engine.engine import Engine


@pytest.fixture(scope="module")
def embedded(embedded_model_path: Path) -> Iterator[Served]:
    with served(Engine("smollm2-135m", threads=1)) as server:
        yield server
