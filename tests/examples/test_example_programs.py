"""What the four example programs have in common: their options, their errors, and both tiers in one run."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from examples.endpoint import Spent, endpoints, options, run
from support.client_servers import answering

ROOT = Path(__file__).parents[2]
NAMES = ["incident", "voice", "research", "coding"]


def main_of(name: str) -> Any:
    return importlib.import_module(f"examples.{name}.__main__").main


@pytest.mark.parametrize("name", NAMES)
def test_help_says_what_it_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        asyncio.run(main_of(name)(["--help"]))
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert f"python -m examples.{name}" in said
    assert all(option in said for option in ("--url", "--model", "--tier", "--api-key-env"))


def test_every_example_has_its_section() -> None:
    readme = (ROOT / "examples/README.md").read_text(encoding="utf-8")
    assert sorted(path.parent.name for path in ROOT.glob("examples/*/__main__.py")) == sorted(NAMES)
    assert all(f"python -m examples.{name}" in readme for name in NAMES)


def test_examples_need_nothing_of_ours() -> None:
    """They are there to be copied."""
    for path in ROOT.glob("examples/**/*.py"):
        assert not re.search(r"^\s*(from|import) ultrafast", path.read_text(encoding="utf-8"), re.M), path


def test_a_program_that_finds_no_server_says_so_in_one_line() -> None:
    command = [sys.executable, "-m", "examples.voice", "--url", "http://127.0.0.1:9/v1"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("No answer from http://127.0.0.1:9/v1/models.")
    assert len(ran.stderr.splitlines()) == 1


def test_a_tier_that_is_not_there_is_one_line() -> None:
    with answering("Hello there, good morning.") as server, pytest.raises(SystemExit, match="--tier, or 'none'"):
        run(lambda: main_of("voice")(["--url", server.url, "--tier", "warp"]))


def test_tiers_have_the_same_prompts_and_caches_apart() -> None:
    async def both(url: str) -> list[Any]:
        async with endpoints(options("x", "y").parse_args(["--url", url])) as made:
            for endpoint in made:
                assert await endpoint.json("Do it.", "Now.", {"type": "object"}, max_tokens=5)
            return made

    with answering("{}") as server:
        made = asyncio.run(both(server.url))
        requests = server.loop.engine.requests  # type: ignore[attr-defined]
    assert [endpoint.name for endpoint in made] == ["default", "ultrafast"] == [request.tier for request in requests]
    assert requests[0].prompt_ids == requests[1].prompt_ids
    assert requests[0].cache_salt != requests[1].cache_salt
    assert made[0].spent.output_tokens == 2


def test_without_a_tier_or_temperature_neither_is_sent() -> None:
    async def one(url: str) -> Any:
        asked = options("x", "y").parse_args(["--url", url, "--tier", "none", "--no-temperature", "--model", "other"])
        async with endpoints(asked) as (endpoint,):
            return endpoint

    with answering("{}") as server:
        endpoint = asyncio.run(one(server.url))
    assert endpoint.fields == {"model": "other", "extra_body": {}}
    assert endpoint.mark  # not a model of ours: prompts differ from run to run, as no cache can be set apart


def test_what_was_spent_is_added_up_for_both_apis() -> None:
    chat = SimpleNamespace(
        usage=SimpleNamespace(
            prompt_tokens=5, completion_tokens=3, prompt_tokens_details=SimpleNamespace(cached_tokens=2)
        ),
        service_tier="fast",
        model_extra={"ultrafast": {"decode_ms": 1500}},
    )
    response = SimpleNamespace(
        usage=SimpleNamespace(input_tokens=7, output_tokens=4, input_tokens_details=None),
        service_tier="default",
        model_extra={},
    )
    spent = Spent()
    spent.add(chat)
    assert spent.decode_s == 1.5
    spent.add(response)
    assert (spent.requests, spent.prompt_tokens, spent.cached_tokens, spent.output_tokens) == (2, 12, 2, 7)
    assert spent.decode_s is None  # one of them does not say
    assert spent.served == {"fast", "default"}


def test_incident_runs_in_both_tiers(capsys: pytest.CaptureFixture[str]) -> None:
    quote = "payments-db: max_connections 400 -> 40"
    finding = json.dumps({"quote": quote, "meaning": "M", "confidence": 9})
    verdict = json.dumps({"quote": quote, "explanation": "Too few."})
    with answering(*[*[finding] * 2, verdict] * 2) as server:
        asyncio.run(main_of("incident")(["--url", server.url, "--chunk", "20", "--at-once", "1"]))
    said = capsys.readouterr().out
    assert said.count("(that is what was planted) Too few.") == 2
    assert "== scripted, default" in said
    assert "== scripted, ultrafast" in said


def test_research_runs_on_its_samples(capsys: pytest.CaptureFixture[str]) -> None:
    with answering('{"citation": "[2] $412.6 million", "sentence": "It rose."}') as server:
        asyncio.run(main_of("research")(["--url", server.url, "--tier", "default", "--deadline", "1000"]))
    said = capsys.readouterr().out
    assert "4 of 12 facts have their source, 1 are right" in said
    assert "ready within 1000 s: 12 of 24 parts" in said  # of each: market, comment; of one also 4 facts and 2 figures


def test_voice_prints_the_budget(capsys: pytest.CaptureFixture[str]) -> None:
    with answering("Good evening, we have a room for you and the dog.") as server:
        asyncio.run(main_of("voice")(["--url", server.url, "--tier", "default", "--patience", "1500"]))
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[:4] == ["300", "ms", "18", "225"] for line in lines)
    assert "Of 1500 ms of silence, the pipeline leaves 925 ms for the model." in lines
