"""The embedded model under 200 random schemas: what it finishes satisfies its schema, and all else is a beginning."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from support.grammars import json_value, wander, write
from support.schemas import SchemaMaker
from support.scripted_engine import ByteTokenizer
from ultrafast import Engine
from ultrafast.chat.schema import library_schema
from ultrafast.engine.grammar import Grammars
from ultrafast.types import FinishReason, GenerateRequest, SamplingParams

SEED = 2024
NUM_SCHEMAS = 200


@pytest.fixture(scope="module")
def embedded(embedded_model_path: Any) -> Iterator[Engine]:
    with Engine(embedded_model_path) as engine:
        yield engine


def _schemas() -> list[tuple[dict[str, Any], str]]:
    """Schemas and their grammars."""
    print(f"schemas from seed {SEED} on")
    schemas = [SchemaMaker(SEED + number).schema(depth=2) for number in range(NUM_SCHEMAS)]
    return [(schema, f"start: %json {library_schema(schema)}") for schema in schemas]


def test_what_the_model_finishes_satisfies_its_schema(embedded: Engine) -> None:
    prompt = embedded.encode_prompt([{"role": "user", "content": "Give an example as JSON."}])
    schemas = _schemas()
    running = {}
    for number, (schema, grammar) in enumerate(schemas):
        params = SamplingParams(max_tokens=16, temperature=0.8 * (number % 2), seed=number)
        running[embedded.add(GenerateRequest(prompt, params, grammar=grammar))] = (schema, grammar)
    written: dict[Any, list[int]] = {sequence: [] for sequence in running}
    reasons = {}
    while len(reasons) < len(running):
        for sequence, delta in embedded.step():
            assert not isinstance(delta, Exception), delta
            written[sequence] += delta.token_ids
            if delta.finish_reason is not None:
                reasons[sequence] = delta.finish_reason
    bytewise = Grammars(ByteTokenizer())  # type: ignore[arg-type]
    for sequence, (schema, grammar) in running.items():
        text = b"".join(map(embedded.tokenizer.token_bytes, written[sequence]))
        if reasons[sequence] is FinishReason.STOP:
            jsonschema.Draft202012Validator(schema).validate(json_value(text))
        else:
            assert write(bytewise.constraint(grammar), list(text), ByteTokenizer.vocab_size), (schema, text)
    finished = list(reasons.values()).count(FinishReason.STOP)
    assert 30 < finished < NUM_SCHEMAS  # both kinds were seen


def test_what_is_written_at_random_satisfies_its_schema(embedded: Engine) -> None:
    """Any allowed token, where a model would write likely ones."""
    grammars, finished = Grammars(embedded.tokenizer), 0
    for number, (schema, grammar) in enumerate(_schemas()):
        rng = random.Random(number)
        text, complete = wander(grammars.constraint(grammar), embedded.tokenizer, rng, max_tokens=80)
        if complete:
            finished += 1
            jsonschema.Draft202012Validator(schema).validate(json_value(text))
    assert finished > NUM_SCHEMAS // 3
