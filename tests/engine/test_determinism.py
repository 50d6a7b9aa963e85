"""Promise 1: the same tokens, bit for bit, whatever the threads, the chunks, the neighbours and the instruction set."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from gguf import GGMLQuantizationType as Type

from support.engines import OpenEngine
from support.tiny import write_tiny_model
from ultrafast import Engine
from ultrafast.engine.native import REFERENCE, available_isas, choose_isa, supported_isas
from ultrafast.engine.sequence import Sequence
from ultrafast.errors import IsaError
from ultrafast.types import GenerateRequest, SamplingParams

MODELS: dict[str, dict[str, Any]] = {
    "q4_0": {"type": Type.Q4_0},
    "q4_1, three heads a kv head": {"type": Type.Q4_1, "hidden": 96, "heads": 6, "kv_heads": 2, "tied": False},
    "q8_0, biased": {"type": Type.Q8_0, "qkv_bias": True},
    "f16": {"type": Type.F16},
    "bf16, partial rope": {"type": Type.BF16, "rope_dim": 8},
    "f32, odd sizes": {"type": Type.F32, "hidden": 37, "heads": 2, "kv_heads": 1, "head_dim": 10, "ffn": 51},
    "q5_0 and q5_1": {"type": Type.Q5_0, "types": dict.fromkeys(("attn_q", "ffn_down", "token_embd"), Type.Q5_1)},
    "k formats": {
        "type": Type.Q4_K,
        "types": {"token_embd": Type.Q6_K, "attn_v": Type.Q6_K, "ffn_down": Type.Q5_K},
        "hidden": 256,
        "ffn": 256,
    },
    "mixed": {"types": {"attn_k": Type.F16, "ffn_up": Type.F32, "ffn_down": Type.Q8_0}},
}

WAYS = [(1, 512), (1, 1), (2, 7), (3, 64)]  # threads, prompt tokens a step

GREEDY: dict[str, Any] = {"max_tokens": 8, "ignore_eos": True, "logprobs": 3}
SAMPLED = GREEDY | {
    "temperature": 0.9,
    "top_p": 0.95,
    "top_k": 60,
    "seed": 11,
    "frequency_penalty": 0.3,
}


def prompt_of(length: int, seed: int = 0) -> list[int]:
    return [random.Random(seed * 1000 + i).randrange(3, 280) for i in range(length)]


def fingerprint(engine: Engine, length: int = 140) -> tuple[bytes, list[object]]:
    """Everything that must not change: the bits of the logits, the tokens and their logprobs."""
    outputs = [engine.generate(prompt_of(length), **GREEDY), engine.generate(prompt_of(3), **SAMPLED)]
    return engine.logits(prompt_of(length)).tobytes(), [(o.token_ids, o.logprobs, o.text) for o in outputs]


@pytest.mark.parametrize("name", MODELS)
def test_isa_threads_and_chunks_do_not_matter(tmp_path: Path, name: str) -> None:
    path = write_tiny_model(tmp_path / "model.gguf", **MODELS[name])
    with Engine(path, isa="scalar", threads=1, prefill_chunk=512) as engine:
        expected = fingerprint(engine)
    for isa in supported_isas():
        for threads, chunk in WAYS:
            with Engine(path, isa=isa, threads=threads, prefill_chunk=chunk) as engine:
                assert fingerprint(engine) == expected, (isa, threads, chunk)


def test_the_reference_is_as_steady(tiny_model_path: Path) -> None:
    fingerprints = []
    for threads, chunk in WAYS:
        with Engine(tiny_model_path, isa=REFERENCE, threads=threads, prefill_chunk=chunk) as engine:
            fingerprints.append(fingerprint(engine, 70))
    assert all(other == fingerprints[0] for other in fingerprints)


def request(length: int, which: int = 0, **params: Any) -> GenerateRequest:
    return GenerateRequest(prompt_of(length, which), SamplingParams(**params))


def run_beside_others(engine: Engine, mine: GenerateRequest, rng: random.Random, lengths: tuple[int, ...]) -> list[int]:
    """Tokens of ``mine`` among seven others that come, stay, and are cancelled at random moments."""
    others: list[Sequence] = []
    token_ids: list[int] = []
    ours: Sequence | None = None
    while ours is None or ours.finish_reason is None:
        if len(others) < 7:
            length = rng.choice(lengths)
            params = {
                "max_tokens": rng.randrange(1, 40),
                "temperature": rng.choice([0.0, 1.5]),
                "seed": rng.randrange(99),
            }
            others.append(engine.add(request(length, rng.randrange(99), **params)))
        if ours is None and (len(others) == 7 or rng.random() < 0.3):
            ours = engine.add(mine)
        for sequence, delta in engine.step():
            if sequence is ours:
                token_ids += delta.token_ids
        if rng.random() < 0.4:
            engine.cancel(others.pop(rng.randrange(len(others))))
        others = [other for other in others if other.finish_reason is None]
        engine._scheduler.check_integrity()
    for other in others:
        engine.cancel(other)
    return token_ids


@pytest.mark.parametrize("isa", [supported_isas()[0], REFERENCE])
def test_neighbours_do_not_matter(tiny_model_path: Path, open_engine: OpenEngine, isa: str) -> None:
    engine = open_engine(tiny_model_path, isa=isa)
    rng = random.Random(isa)
    for length in (1, 64, 150):
        for params in (GREEDY, SAMPLED):
            mine = request(length, 5, **params | {"max_tokens": 40})
            alone = engine.generate(mine.prompt_ids, **params | {"max_tokens": 40}).token_ids
            for _ in range(2):
                assert run_beside_others(engine, mine, rng, (1, 2, 5, 63, 64, 65, 130, 200)) == alone


def test_every_slot_gives_the_same_text_for_a_seed(engine: Engine) -> None:
    params: dict[str, Any] = {"max_tokens": 20, "temperature": 1.0, "ignore_eos": True}
    asked = [engine.add(request(9, **params, seed=i % 2)) for i in range(engine.num_slots)]
    tokens: dict[Sequence, list[int]] = {sequence: [] for sequence in asked}
    while engine.has_work:
        for sequence, delta in engine.step():
            tokens[sequence] += delta.token_ids
    even, odd = [tokens[s] for s in asked[0::2]], [tokens[s] for s in asked[1::2]]
    assert all(ids == even[0] for ids in even)
    assert all(ids == odd[0] for ids in odd)
    assert even[0] != odd[0]
    assert even[0] == engine.generate(prompt_of(9), **params, seed=0).token_ids


def test_the_embedded_model_is_as_steady(embedded_model_path: Path) -> None:
    fingerprints = []
    for threads, chunk in [(1, 512), (2, 7)]:
        with Engine(embedded_model_path, threads=threads, prefill_chunk=chunk, context=512) as engine:
            text = "Weights never move: they stay beside the cores that use them, and a token flows through the layers."
            ids = engine.tokenizer.encode(text * 2)
            mine = GenerateRequest(ids, SamplingParams(max_tokens=8, ignore_eos=True))
            alone = engine.generate(ids, max_tokens=8, ignore_eos=True).token_ids
            assert run_beside_others(engine, mine, random.Random(1), (1, 5, 20)) == alone
            fingerprints.append((engine.logits(ids[:40]).tobytes(), alone))
    assert fingerprints[0] == fingerprints[1]


# ---- choosing an instruction set ------------------------------------------------------------------------------------


def test_the_environment_chooses_the_isa(tiny_model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for isa in (*supported_isas(), REFERENCE):
        monkeypatch.setenv("ULTRAFAST_ISA", isa)
        with Engine(tiny_model_path, threads=1) as engine:
            assert engine.isa == isa
    assert choose_isa("scalar") == "scalar"  # an argument goes before the environment
    for nothing in ("", None):
        monkeypatch.delenv("ULTRAFAST_ISA", raising=False)
        if nothing is not None:
            monkeypatch.setenv("ULTRAFAST_ISA", nothing)
        assert choose_isa() == supported_isas()[0]


@pytest.mark.parametrize("name", ["avx", "AVX2", " scalar", "neon", "avx2,scalar", "\0"])
def test_an_unknown_isa_names_the_choices(tiny_model_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with pytest.raises(IsaError, match=r"isa=.*unknown.*scalar, reference"):
        Engine(tiny_model_path, isa=name)
    if "\0" not in name:
        monkeypatch.setenv("ULTRAFAST_ISA", name)
        with pytest.raises(IsaError, match=r"ULTRAFAST_ISA=.*unknown.*scalar, reference"):
            Engine(tiny_model_path)


def test_an_isa_that_this_processor_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ultrafast.engine.native.supported_isas", lambda: ["scalar"])
    lacking = available_isas()[0]
    if lacking == "scalar":
        pytest.skip("no vector instruction set is built in")
    with pytest.raises(IsaError, match=f"{lacking}.* not supported by this processor.*scalar, reference"):
        choose_isa(lacking)
