"""The OpenAPI document is true: it has every route, and a generator of requests finds nothing that breaks it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx
from starlette.routing import Route

from support.scripted_engine import ScriptedEngine
from support.served import served
from ultrafast.engine.loop import EngineLoop
from ultrafast.serving.app import create_app
from ultrafast.serving.openapi import document
from ultrafast.serving.operations import OPERATIONS

# What a schema cannot say, such as that a choice names a tool that is there, is refused with a 400 naming the field.
CHECKS = ["--checks", "all", "--exclude-checks", "positive_data_acceptance"]
ONLY_REFUSES = ("POST", "/v1/responses/compact")


def test_every_route_is_documented() -> None:
    app = create_app([EngineLoop(ScriptedEngine())])
    routes = {
        (method, re.sub(r":\w+}", "}", route.path))
        for route in app.routes
        if isinstance(route, Route)
        for method in route.methods or ()
        if method != "HEAD"
    }
    assert {(operation.method.upper(), operation.path) for operation in OPERATIONS} == routes - {ONLY_REFUSES}


def test_ids_are_unique() -> None:
    assert len({operation.id for operation in OPERATIONS}) == len(OPERATIONS)


def test_requests_are_described_by_what_decodes_them() -> None:
    described = document(OPERATIONS, ["one", "two"])
    chat = described["components"]["schemas"]["ChatRequest"]
    assert set(chat["required"]) == {"model", "messages"}
    assert chat["properties"]["model"] == {"enum": ["one", "two"]}
    assert {"type": "number", "minimum": 0, "maximum": 2} in chat["properties"]["temperature"]["anyOf"]


def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    """All its checks but one, in requests that the document allows and in others; no 5xx among them."""
    with served(ScriptedEngine(num_slots=8)) as server:
        address = server.url.removesuffix("/v1")
        assert httpx.get(f"{address}/openapi.json").json()["openapi"] == "3.1.0"
        how = [
            "--phases",
            "coverage,fuzzing,stateful",
            "--max-examples",
            "25",
            "--seed",
            "1",
            "--no-shrink",
            "--no-color",
        ]
        command = [sys.executable, "-m", "schemathesis.cli", "run", f"{address}/openapi.json", *CHECKS, *how]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        tested = re.search(r"Test cases:\s+(\d+) generated", ran.stdout)
        assert tested, ran.stdout
        assert int(tested[1]) > 500
