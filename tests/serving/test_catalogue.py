"""The list of models, as OpenAI's clients, Anthropic's and Codex read it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support.asgi import Answer, client_of
from support.scripted_engine import ScriptedEngine
from ultrafast.engine.tiers import TIERS
from ultrafast.serving.tiers import tier_of

# What Codex needs of each entry: without any of these it drops the list and asks for no tier.
CODEX_FIELDS = {
    "slug": str,
    "display_name": str,
    "supported_reasoning_levels": list,
    "shell_type": str,
    "visibility": str,
    "supported_in_api": bool,
    "priority": int,
    "support_verbosity": bool,
    "truncation_policy": dict,
    "experimental_supported_tools": list,
    "base_instructions": str,
    "service_tiers": list,
    "additional_speed_tiers": list,
    "context_window": int,
}


def get(path: str) -> Answer:
    class Other(ScriptedEngine):
        model_id = "other"

    async def main() -> Answer:
        async with asyncio.timeout(30), client_of(ScriptedEngine(), Other()) as client:
            return await client.get(path)

    return asyncio.run(main())


@pytest.fixture(scope="module")
def listed() -> Any:
    return get("/v1/models?client_version=0.171.0").json()


def test_data_is_for_openais_and_anthropics_clients(listed: Any) -> None:
    assert listed["object"] == "list"
    assert [entry["id"] for entry in listed["data"]] == ["scripted", "other"]
    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == ("scripted", "other", False)
    for entry in listed["data"]:
        assert (entry["object"], entry["type"], entry["owned_by"]) == ("model", "model", "ultrafast")
        assert entry["display_name"] == "Scripted"
        assert entry["created_at"].endswith("Z")
        assert entry["service_tiers"] == list(TIERS)


def test_models_has_what_codex_needs(listed: Any) -> None:
    assert [entry["slug"] for entry in listed["models"]] == ["scripted", "other"]
    for entry in listed["models"]:
        assert {name: type(entry[name]) for name in CODEX_FIELDS} == CODEX_FIELDS
        assert entry["truncation_policy"]["mode"] == "tokens"
        assert 0 < entry["truncation_policy"]["limit"] < entry["context_window"] == 4096


def test_every_advertised_tier_is_one_that_requests_may_name(listed: Any) -> None:
    for entry in listed["models"]:
        ids = [tier["id"] for tier in entry["service_tiers"]]
        assert [tier_of(tier) for tier in [*ids, *entry["additional_speed_tiers"], entry["default_service_tier"]]] == [
            "ultrafast",
            "fast",
            "flex",
            "fast",
            "default",
        ]
        assert all(tier["name"] and tier["description"] for tier in entry["service_tiers"])


def test_one_model(listed: Any) -> None:
    times = ("created", "created_at")
    one = get("/v1/models/other").json()
    assert {name: value for name, value in one.items() if name not in times} == {
        name: value for name, value in listed["data"][1].items() if name not in times
    }


def test_a_model_that_is_not_there() -> None:
    answer = get("/v1/models/gpt-9")
    assert answer.status == 404
    assert (answer.error["code"], answer.error["param"]) == ("model_not_found", "model")
