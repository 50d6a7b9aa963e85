"""Picking tokens: every parameter does what its definition says, and a seed decides all."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from support.engines import OpenEngine
from support.numpy_llama import log_softmax
from ultrafast import Engine, _native

PROMPT = [41, 42, 43, 44, 45]
VOCAB = 288


def pick(engine: Engine, prompt: list[int] = PROMPT, **params: Any) -> int:
    """The first token."""
    return engine.generate(prompt, max_tokens=1, ignore_eos=True, **params).token_ids[0]


def picks(engine: Engine, num_seeds: int, **params: Any) -> Counter[int]:
    """How often each token comes first, over the seeds 0, 1, 2, …"""
    return Counter(pick(engine, seed=seed, **params) for seed in range(num_seeds))


def tokens(engine: Engine, max_tokens: int = 30, **params: Any) -> list[int]:
    return engine.generate(PROMPT, max_tokens=max_tokens, ignore_eos=True, **params).token_ids


def ranked(engine: Engine) -> tuple[list[int], npt.NDArray[np.float64]]:
    """Tokens after `PROMPT`, most likely first, and the probability of every token."""
    logits = engine.logits(PROMPT)[-1]
    return np.argsort(-logits, kind="stable").tolist(), np.exp(log_softmax(logits))


# ---- greedy, and what amounts to it ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 1e-3},
        {"temperature": 1e-38},
        {"temperature": 1e-40},  # subnormal: its reciprocal is infinite in 32 bits
        {"temperature": 1e-60},
        {"temperature": 100.0, "top_k": 1},
        {"temperature": 100.0, "top_p": 1e-9},
        {"temperature": 100.0, "top_p": 1e-60},
        {"temperature": 100.0, "min_p": 1.0},
        {"temperature": 1.0, "top_k": 1, "top_p": 0.5, "min_p": 0.5},
        {"temperature": 0, "top_k": 50, "top_p": 0.9, "min_p": 0.1, "seed": 5},
    ],
)
def test_what_amounts_to_greedy_is_greedy(engine: Engine, params: dict[str, Any]) -> None:
    greedy = tokens(engine)
    assert tokens(engine, **params) == greedy
    ids = PROMPT + greedy
    assert engine.logits(ids)[len(PROMPT) - 1 : -1].argmax(-1).tolist() == greedy


# ---- seeds ----------------------------------------------------------------------------------------------------------


def test_a_seed_decides_all(engine: Engine) -> None:
    seeds = [0, 1, 2, -1, -(2**63), 2**63, 2**64 - 1, 2**32]
    texts = [tokens(engine, temperature=1.0, seed=seed) for seed in seeds]
    assert [tokens(engine, temperature=1.0, seed=seed) for seed in seeds] == texts
    assert texts[seeds.index(-1)] == texts[seeds.index(2**64 - 1)]  # the same 64 bits
    assert texts[seeds.index(-(2**63))] == texts[seeds.index(2**63)]
    assert len({tuple(text) for text in texts}) == len({seed % 2**64 for seed in seeds}) == 6


def test_the_generator_is_philox() -> None:
    """The first two words of Philox4x32-10 for counter 0 and key 0, as its authors publish them (Random123)."""
    bits = 0x6627E8D5_E169C58D >> 11
    assert _native.uniform_at(0, 0) == bits * 2.0**-53
    assert all(0 <= _native.uniform_at(seed, position) < 1 for seed in range(50) for position in range(50))


def test_draws_are_even() -> None:
    draws = np.array([_native.uniform_at(seed, position) for seed in range(100) for position in range(100)])
    counts = np.histogram(draws, bins=20, range=(0, 1))[0]
    assert ((counts - 500) ** 2 / 500).sum() < 43.8  # chi-square, 19 degrees of freedom, p = 0.001
    grid = draws.reshape(100, 100)
    assert abs(np.corrcoef(grid[:-1].ravel(), grid[1:].ravel())[0, 1]) < 0.04  # neighbouring seeds
    assert abs(np.corrcoef(grid[:, :-1].ravel(), grid[:, 1:].ravel())[0, 1]) < 0.04  # neighbouring positions


# ---- the distribution -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 1.0},
        {"temperature": 2.5},
        {"temperature": 1.5, "top_k": 6},
        {"temperature": 1.5, "top_p": 0.8},
        {"temperature": 1.5, "min_p": 0.2},
        {"temperature": 2.0, "top_k": 40, "top_p": 0.7, "min_p": 0.15},
    ],
)
def test_frequencies_are_the_probabilities(engine: Engine, params: dict[str, Any]) -> None:
    num_seeds = 1000
    order, _ = ranked(engine)
    p = np.exp(log_softmax(engine.logits(PROMPT)[-1] / params["temperature"]))
    if (top_k := params.get("top_k", 0)) > 0:
        p[order[top_k:]] = 0.0
    top_p = params.get("top_p", 1.0) * p.sum()
    kept = int((np.cumsum(p[order]) < top_p).sum()) + 1 if top_p < p.sum() else VOCAB
    p[order[kept:]] = 0.0
    p[p < params.get("min_p", 0.0) * p.max()] = 0.0
    p /= p.sum()
    counts = picks(engine, num_seeds, **params)
    assert all(p[token] > 0 for token in counts)
    likely = [token for token in order if p[token] * num_seeds >= 5]
    observed = np.array([counts[token] for token in likely])
    expected = p[likely] * num_seeds
    rest = num_seeds - expected.sum()
    chi_square = ((observed - expected) ** 2 / expected).sum()
    if rest >= 5:
        chi_square += (num_seeds - observed.sum() - rest) ** 2 / rest
    degrees = len(likely) - (rest < 5)
    assert chi_square < degrees + 4 * np.sqrt(2 * degrees) + 4  # far beyond p = 0.001


# ---- penalties and bias ---------------------------------------------------------------------------------------------


def adjusted(engine: Engine, ids: list[int], num_prompt: int, params: dict[str, float]) -> npt.NDArray[np.float64]:
    """Logits after ``ids`` with the penalties, as their definitions have them."""
    logits = engine.logits(ids)[-1].astype(np.float64)
    for token in set(ids):
        factor = params.get("repetition_penalty", 1.0)
        logits[token] = logits[token] / factor if logits[token] > 0 else logits[token] * factor
    for token, count in Counter(ids[num_prompt:]).items():
        logits[token] -= params.get("presence_penalty", 0.0) + params.get("frequency_penalty", 0.0) * count
    return logits


@pytest.mark.parametrize(
    "params",
    [
        {"repetition_penalty": 1.5},
        {"repetition_penalty": 0.5},
        {"presence_penalty": 2.0},
        {"presence_penalty": -2.0},
        {"frequency_penalty": 1.0},
        {"frequency_penalty": -0.7},
        {"repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.5},
    ],
)
def test_penalties_follow_their_definitions(engine: Engine, params: dict[str, float]) -> None:
    output = tokens(engine, **params)
    assert output != tokens(engine)
    ids = list(PROMPT)
    for token in output:
        logits = adjusted(engine, ids, len(PROMPT), params)
        assert logits[token] > logits.max() - 1e-4
        ids.append(token)


def test_presence_and_frequency_do_not_look_at_the_prompt(engine: Engine) -> None:
    best = pick(engine)
    prompt = [best, best, *PROMPT[:-1], PROMPT[-1]]
    expected = pick(engine, prompt)
    assert pick(engine, prompt, presence_penalty=100.0, frequency_penalty=100.0) == expected


def test_a_full_presence_penalty_never_repeats(engine: Engine) -> None:
    output = tokens(engine, 200, presence_penalty=100.0)
    assert len(set(output)) == 200


def test_bias_forces_and_forbids(engine: Engine) -> None:
    order, _ = ranked(engine)
    unlikely = order[-1]
    assert tokens(engine, 5, logit_bias={unlikely: 100}) == [unlikely] * 5
    assert pick(engine, logit_bias={order[0]: -100}) == order[1]
    assert pick(engine, logit_bias=dict.fromkeys(order[:20], -100.0)) == order[20]
    forbidden = dict.fromkeys(order[:50], -100.0)
    assert not set(picks(engine, 200, temperature=1.0, logit_bias=forbidden)) & set(order[:50])
    assert set(picks(engine, 50, temperature=1.0, logit_bias={unlikely: 100})) == {unlikely}
    assert pick(engine, logit_bias=dict.fromkeys(range(VOCAB), 37.5)) == order[0]


def test_forbidding_the_end_token(engine: Engine) -> None:
    end = sorted(engine.tokenizer.eog_ids)
    assert engine.generate(PROMPT, max_tokens=5, logit_bias={end[0]: 100}).token_ids == []
    output = engine.generate(PROMPT, max_tokens=200, temperature=3.0, logit_bias=dict.fromkeys(end, -100))
    assert len(output.token_ids) == 200


# ---- log-probabilities ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("top", [0, 1, 5, 20])
@pytest.mark.parametrize("params", [{}, {"temperature": 1.5, "repetition_penalty": 1.3, "logit_bias": {50: 9.0}}])
def test_logprobs_are_the_models_own(engine: Engine, top: int, params: dict[str, Any]) -> None:
    output = engine.generate(PROMPT, max_tokens=25, ignore_eos=True, logprobs=top, **params)
    assert output.logprobs is not None
    assert [entry.token_id for entry in output.logprobs] == output.token_ids
    expected = log_softmax(engine.logits(PROMPT + output.token_ids)[len(PROMPT) - 1 : -1])
    for row, entry in zip(expected, output.logprobs, strict=True):
        assert entry.logprob == pytest.approx(row[entry.token_id], abs=1e-4)
        assert len(entry.top) == top
        values = [value for _, value in entry.top]
        assert values == sorted(values, reverse=True)
        assert values == pytest.approx(np.sort(row)[::-1][:top], abs=1e-4)
        assert values == pytest.approx([row[token] for token, _ in entry.top], abs=1e-4)
        assert len({token for token, _ in entry.top}) == top
        assert sum(np.exp(values)) <= 1 + 1e-4
        assert entry.logprob <= max(values, default=0.0) + 1e-6


def test_greedy_picks_head_their_logprobs(engine: Engine) -> None:
    output = engine.generate(PROMPT, max_tokens=25, ignore_eos=True, logprobs=1)
    assert all(entry.top == ((entry.token_id, entry.logprob),) for entry in output.logprobs or ())


def test_logprobs_change_no_token(engine: Engine) -> None:
    params: dict[str, Any] = {"temperature": 1.2, "seed": 3, "top_p": 0.9}
    assert tokens(engine, logprobs=20, **params) == tokens(engine, **params)


def test_logprobs_stop_where_the_text_stops(engine: Engine) -> None:
    text = engine.generate(PROMPT, max_tokens=100, ignore_eos=True).text
    output = engine.generate(PROMPT, max_tokens=100, ignore_eos=True, logprobs=2, stop=[text[20:23]])
    assert output.text == text[: text.index(text[20:23])]
    assert [entry.token_id for entry in output.logprobs or ()] == output.token_ids


def test_logprobs_over_a_real_sized_vocabulary(open_engine: OpenEngine) -> None:
    engine = open_engine(vocab=40_003, layers=1, threads=1)
    output = engine.generate([5, 6, 7], max_tokens=3, ignore_eos=True, logprobs=20, temperature=1.0, top_p=0.97)
    expected = log_softmax(engine.logits([5, 6, 7, *output.token_ids])[2:-1])
    for row, entry in zip(expected, output.logprobs or (), strict=True):
        assert [entry.logprob, *(v for _, v in entry.top)] == pytest.approx(
            [row[entry.token_id], *np.sort(row)[::-1][:20]], abs=1e-4
        )
