"""Prompts scored over HTTP as evaluation harnesses do it: what comes back is what the engine's own logits say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from support.served import Served, served
from ultrafast.engine.engine import Engine

CONTEXT = "The capital of France is"
CONTINUATIONS = [" Paris", " London, of course", " not known to me; ask 🚀"]


@pytest.fixture(scope="module", params=["tiny", "embedded"])
def engine(request: pytest.FixtureRequest, tiny_model_path: Path, embedded_model_path: Path) -> Iterator[Engine]:
    path = tiny_model_path if request.param == "tiny" else embedded_model_path
    with Engine(str(path), threads=1, context=512) as engine:
        yield engine


@pytest.fixture(scope="module")
def server(engine: Engine) -> Iterator[Served]:
    with Engine(str(engine.path), threads=1, context=512) as another, served(another) as server:
        yield server


def score(server: Served, **fields: Any) -> list[dict[str, Any]]:
    body = {"model": server.loop.engine.model_id, "temperature": 0, "seed": 1234, **fields}
    answer = httpx.post(f"{server.url}/completions", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    choices: list[dict[str, Any]] = sorted(answer.json()["choices"], key=lambda choice: choice["index"])
    return choices


def log_softmax(engine: Engine, ids: list[int]) -> np.ndarray:
    """Log-probabilities of every token after each of ``ids``: float64 [n, vocab_size]."""
    logits = engine.logits(ids).astype(np.float64)
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def test_as_harnesses_score_continuations(engine: Engine, server: Served) -> None:
    """Context and continuation as token ids, and one token more, cut off; also whether greedy would say the same."""
    context = engine.tokenizer.encode(CONTEXT)
    prompts = [context + engine.tokenizer.encode(text) for text in CONTINUATIONS]
    prompts.append(context + list(engine.generate(context, max_tokens=4, ignore_eos=True).token_ids))
    choices = score(server, prompt=prompts, max_tokens=1, logprobs=1, echo=True)
    greedy = []
    for ids, choice in zip(prompts, choices, strict=True):
        logprobs = choice["logprobs"]
        assert {len(column) for column in logprobs.values()} == {len(ids) + 1}
        scored = logprobs["token_logprobs"][len(context) : -1]
        likeliest = [max(top.values()) for top in logprobs["top_logprobs"][len(context) : -1]]
        expected = log_softmax(engine, ids)
        rows = range(len(context) - 1, len(ids) - 1)
        assert sum(scored) == pytest.approx(sum(expected[row, ids[row + 1]] for row in rows), abs=1e-2)
        assert likeliest == pytest.approx([expected[row].max() for row in rows], abs=1e-2)
        greedy.append(scored == likeliest)
    assert greedy[-1] is True
    assert not all(greedy[:-1])


def test_every_token_of_a_prompt_is_scored(engine: Engine, server: Served) -> None:
    ids = engine.tokenizer.encode(CONTEXT + CONTINUATIONS[2])
    (choice,) = score(server, prompt=[ids], max_tokens=0, logprobs=5, echo=True)
    logprobs = choice["logprobs"]
    expected = log_softmax(engine, ids)
    assert choice["text"] == engine.tokenizer.decode(ids)
    assert logprobs["token_logprobs"][0] is None
    assert logprobs["top_logprobs"][0] is None
    assert logprobs["token_logprobs"][1:] == pytest.approx(
        [expected[row, token] for row, token in enumerate(ids[1:])], abs=5e-3
    )
    for row, top in enumerate(logprobs["top_logprobs"][1:]):
        assert 5 <= len(top) <= 6
        assert sorted(top.values(), reverse=True)[:5] == pytest.approx(np.sort(expected[row])[::-1][:5], abs=5e-3)
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        if not token.startswith("bytes:"):
            assert choice["text"].startswith(token.removeprefix(" " if offset == 0 else ""), offset)


def test_scores_do_not_depend_on_what_is_cached(engine: Engine, server: Served) -> None:
    """The second time the prompt's keys and values are there already; its scores have to be the same."""
    ids = engine.tokenizer.encode(CONTEXT * 20)
    fields: Any = {"prompt": ids, "max_tokens": 1, "logprobs": 1, "echo": True}
    first, second = score(server, **fields), score(server, **fields)
    for one, other in zip(first, second, strict=True):
        scores = [choice["logprobs"]["token_logprobs"][1:] for choice in (one, other)]
        assert scores[0] == pytest.approx(scores[1], abs=5e-3)


def test_a_text_is_scored_with_what_the_engine_puts_before_it(engine: Engine, server: Served) -> None:
    ids = engine.encode_prompt(CONTEXT)
    (choice,) = score(server, prompt=CONTEXT, max_tokens=0, logprobs=0, echo=True)
    assert choice["text"] == CONTEXT
    expected = log_softmax(engine, ids)
    assert choice["logprobs"]["token_logprobs"][1:] == pytest.approx(
        [expected[row, token] for row, token in enumerate(ids[1:])], abs=5e-3
    )
