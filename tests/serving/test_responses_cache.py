"""Turns that continue from each other find their prefix in the cache of a real engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from support.served import served
from ultrafast.engine.engine import Engine

RULES: Any = [{"type": "message", "role": "developer", "content": "Be quick, and be kind. " * 20}]


@pytest.fixture
def client(tiny_model_path: Path) -> Iterator[OpenAI]:
    with (
        served(Engine(str(tiny_model_path), threads=1)) as server,
        OpenAI(base_url=server.url, api_key="none", max_retries=0) as client,
    ):
        yield client


def make(client: OpenAI, input: Any, **fields: Any) -> Any:
    return client.responses.create(model="tiny", input=input, max_output_tokens=4, temperature=0, **fields)


def test_a_turn_finds_what_the_turns_before_it_computed(client: OpenAI) -> None:
    first = make(client, [*RULES, {"role": "user", "content": "Hi"}])
    second = make(client, "And?", previous_response_id=first.id)
    assert first.usage.input_tokens_details.cached_tokens == 0
    assert second.usage.input_tokens > first.usage.input_tokens
    assert second.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens - 1


def test_a_warm_up_computes_what_the_next_turn_needs(client: OpenAI) -> None:
    warm = make(client, RULES, extra_body={"generate": False})
    assert (warm.output, warm.status, warm.usage.output_tokens) == ([], "completed", 0)
    shared = client.responses.input_tokens.count(model="tiny", input=RULES).input_tokens
    turn = make(client, "Hi", previous_response_id=warm.id)
    assert turn.usage.input_tokens_details.cached_tokens >= shared - 10  # all but the head of the answer


def test_a_whole_conversation_sent_again_finds_it_too(client: OpenAI) -> None:
    conversation = [*RULES, {"role": "user", "content": "Hi"}]
    first = make(client, conversation, store=False)
    again = make(client, [*conversation, *first.output, {"role": "user", "content": "And?"}], store=False)
    assert again.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens - 1
