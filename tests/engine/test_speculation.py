"""Drafts make tokens come sooner; they are the same tokens."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from support.engines import OpenEngine
from support.tiny import write_tiny_model
from ultrafast import Engine
from ultrafast.engine.native import KV_BLOCK, MAX_DRAFT, Lane, NativeModel, NativeSequence, choose_isa
from ultrafast.errors import ConfigError
from ultrafast.models.gguf import GgufFile
from ultrafast.models.shape import ModelShape
from ultrafast.types import FinishReason, Output, SamplingParams

PROMPT = random.Random(1).sample(range(20, 280), 40)  # no token twice: nothing to draft from

WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"logprobs": 2},
    "penalties": {"repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.2, "logprobs": 0},
    "sampled": {"temperature": 0.9, "top_k": 50, "top_p": 0.95, "seed": 3, "logprobs": 1},
    "biased": {"temperature": 1.1, "min_p": 0.01, "logit_bias": {30: 1.5}, "seed": 4},
}


def drafted(output: Output) -> int:
    return output.usage.accepted_draft_tokens + output.usage.rejected_draft_tokens


@pytest.mark.parametrize("way", WAYS)
def test_drafts_change_nothing(open_engine: OpenEngine, way: str) -> None:
    engine = open_engine()
    params = WAYS[way] | {"max_tokens": 60, "ignore_eos": True}
    plain = engine.generate(PROMPT, **params)
    right = plain.token_ids
    shifted = [*right[:20], 5, 6, 7, *right[22:]]
    others = [right[30:], shifted, [(token + index % 3) % 280 for index, token in enumerate(right)], PROMPT[::-1]]
    for prediction in [right, *others]:
        fast = engine.generate(PROMPT, tier="ultrafast", prediction=prediction, cache_salt="other", **params)
        assert fast.token_ids == right
        assert fast.logprobs == plain.logprobs
        assert fast.text == plain.text
        if prediction is right:  # nothing is known yet of what rows cost: the first step drafts
            assert fast.usage.accepted_draft_tokens > 0
        assert fast.usage.accepted_draft_tokens < 60


def test_drafts_end_where_the_output_does(open_engine: OpenEngine) -> None:
    engine = open_engine()
    plain = engine.generate(PROMPT, max_tokens=24, ignore_eos=True)
    for length in range(1, 20):
        fast = engine.generate(PROMPT, max_tokens=length, ignore_eos=True, tier="ultrafast", prediction=plain.token_ids)
        assert fast.token_ids == plain.token_ids[:length]
        assert fast.finish_reason is FinishReason.LENGTH


def test_drafts_end_at_a_stop(open_engine: OpenEngine) -> None:
    engine = open_engine()
    params = {"temperature": 1.0, "seed": 5, "max_tokens": 40}
    text = engine.generate(PROMPT, **params).text
    stop = text[len(text) // 2 :][:3]
    plain = engine.generate(PROMPT, stop=stop, **params)
    whole = engine.generate(PROMPT, **params).token_ids
    fast = engine.generate(PROMPT, stop=stop, tier="ultrafast", prediction=whole, **params)
    assert plain.finish_reason is FinishReason.STOP
    assert (fast.token_ids, fast.text, fast.finish_reason) == (plain.token_ids, plain.text, plain.finish_reason)
    assert fast.usage.accepted_draft_tokens <= fast.usage.completion_tokens


def test_only_some_tiers_draft(engine: Engine) -> None:
    right = engine.generate(PROMPT, max_tokens=30).token_ids
    for tier in ("fast", "default", "flex"):
        assert drafted(engine.generate(PROMPT, max_tokens=30, tier=tier, prediction=right)) == 0


def test_what_a_salt_said_is_drafted_for_it_alone(open_engine: OpenEngine) -> None:
    engine = open_engine()
    output = engine.generate(PROMPT, max_tokens=4, cache_salt="a", ignore_eos=True)
    pairs = list(pairwise([*PROMPT, *output.token_ids]))
    assert len({*pairs}) == len(pairs)  # else a sequence could draft from itself
    others = engine.generate(PROMPT, max_tokens=4, cache_salt="b", ignore_eos=True, tier="ultrafast")
    assert drafted(others) == 0
    again = engine.generate(PROMPT, max_tokens=4, cache_salt="a", ignore_eos=True, tier="ultrafast")
    assert again.usage.accepted_draft_tokens == 3
    assert again.token_ids == others.token_ids == output.token_ids


def test_a_draft_model_is_of_the_same_vocabulary(open_engine: OpenEngine, tmp_path: Path) -> None:
    drafts = write_tiny_model(tmp_path / "draft.gguf", vocab=300)
    with pytest.raises(ConfigError, match=r"draft\.gguf cannot draft: it has a vocabulary of 300 tokens"):
        open_engine(draft_model=drafts)


@pytest.mark.parametrize("way", WAYS)
def test_a_draft_model_changes_nothing(open_engine: OpenEngine, tmp_path: Path, way: str) -> None:
    params = WAYS[way] | {"max_tokens": 60, "ignore_eos": True}
    plain = open_engine().generate(PROMPT, **params)
    drafts = write_tiny_model(tmp_path / "draft.gguf", seed=1, layers=1, hidden=32, heads=2, kv_heads=1, context=90)
    fast = open_engine(draft_model=drafts).generate(PROMPT, tier="ultrafast", **params)
    assert (fast.token_ids, fast.logprobs) == (plain.token_ids, plain.logprobs)
    assert drafted(fast) > 0


# ---- the native side by itself ------------------------------------------------------------------------------


@pytest.fixture
def model(tiny_model_path: Path) -> Iterator[NativeModel]:
    with GgufFile(tiny_model_path) as file:
        model = NativeModel(
            file,
            ModelShape.from_gguf(file),
            isa=choose_isa(),
            cpus=[-1],
            num_blocks=8,
            max_rows=64,
            max_logits=16,
            max_context=512,
        )
    yield model
    model.close()


def run(model: NativeModel, params: SamplingParams | None = None, **options: Any) -> NativeSequence:
    sequence = NativeSequence(PROMPT, params or SamplingParams(), max_tokens=30, stop_ids=[], **options)
    sequence.begin(list(range(-(-(len(PROMPT) + 30) // KV_BLOCK))), 0)
    while sequence.finish_reason is None:
        model.run(Lane.URGENT, [(sequence, 16)], max_steps=100, time_limit_s=10.0)
    return sequence


def test_a_replay_says_what_it_is_told(model: NativeModel) -> None:
    replay = random.Random(2).choices(range(280), k=30)
    plain = run(model, SamplingParams(temperature=1.0, logprobs=1), replay=replay)
    tokens, logprobs = plain.handle.take()
    assert tokens == replay
    fast = run(
        model,
        SamplingParams(temperature=1.0, logprobs=1),
        replay=replay,
        prediction=replay,
        draft_limit=MAX_DRAFT,
    )
    assert fast.handle.take() == (replay, logprobs)
    assert fast.num_accepted > 0
    assert (plain.num_accepted, plain.num_rejected) == (0, 0)


def test_a_token_that_is_none_is_refused(model: NativeModel) -> None:
    for wrong in (-1, 10_000):
        with pytest.raises(ValueError, match="token id out of range"):
            model.remember("", [1, wrong])
        with pytest.raises(ValueError, match="token id out of range"):
            run(model, replay=[1, wrong])
        right = run(model, draft_limit=3, prediction=[wrong, wrong])  # of a draft it is only never true
        assert right.handle.take()[0] == run(model).handle.take()[0]


def test_more_than_can_be_drafted_is_refused() -> None:
    with pytest.raises(ValueError, match="draft limit"):
        NativeSequence([1], SamplingParams(), max_tokens=1, stop_ids=[], draft_limit=MAX_DRAFT + 1)
