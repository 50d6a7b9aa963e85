"""Every architecture against Hugging Face transformers in fp32, on small random models (tools/make_tiny_golden.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from support.numpy_llama import mean_kl
from support.tiny import write_tiny_model
from ultrafast import Engine
from ultrafast.engine.native import REFERENCE, supported_isas
from ultrafast.models.architectures import ARCHITECTURES
from ultrafast.types import GenerateRequest, SamplingParams

TINY = Path(__file__).parent.parent / "golden" / "tiny"
MARGIN = 0.05  # the smallest of the golden ones is larger; 16-bit keys and values change logits by up to 0.03

Golden = dict[str, npt.NDArray[Any]]

each_architecture = pytest.mark.parametrize("architecture", ARCHITECTURES)


def model_of(architecture: str) -> Path:
    return TINY / f"{architecture}.gguf"


def golden_of(architecture: str) -> Golden:
    with np.load(TINY / f"{architecture}.npz") as file:
        return dict(file)


@each_architecture
def test_the_reference_is_transformers(architecture: str) -> None:
    golden = golden_of(architecture)
    with Engine(model_of(architecture), isa=REFERENCE, threads=1) as engine:
        logits = engine.logits(golden["ids"].tolist())
    np.testing.assert_allclose(logits[golden["positions"]], golden["logits"], rtol=1e-4, atol=5e-5)


@each_architecture
@pytest.mark.parametrize("isa", supported_isas())
def test_the_engine_is_close(architecture: str, isa: str) -> None:
    golden = golden_of(architecture)
    with Engine(model_of(architecture), isa=isa, threads=1) as engine:
        logits = engine.logits(golden["ids"].tolist())[golden["positions"]]
    assert mean_kl(golden["logits"], logits) < 2e-5
    np.testing.assert_allclose(logits, golden["logits"], atol=MARGIN)


@each_architecture
@pytest.mark.parametrize("isa", [REFERENCE, *supported_isas()])
def test_greedy_tokens_are_those_of_transformers(architecture: str, isa: str) -> None:
    golden = golden_of(architecture)
    assert golden["margins"].min() > MARGIN
    with Engine(model_of(architecture), isa=isa, threads=1) as engine:
        output = engine.generate(golden["ids"].tolist(), max_tokens=len(golden["greedy_ids"]), ignore_eos=True)
    assert output.token_ids == golden["greedy_ids"].tolist()


@each_architecture
def test_isa_threads_and_chunks_do_not_matter(architecture: str) -> None:
    ids = golden_of(architecture)["ids"].tolist()[:110]
    prints = set()
    for isa in supported_isas():
        for threads, chunk in [(1, 512), (1, 1), (2, 64), (3, 37)]:
            with Engine(model_of(architecture), isa=isa, threads=threads, prefill_chunk=chunk) as engine:
                output = engine.generate(ids, max_tokens=3, ignore_eos=True, temperature=1.0, seed=3)
                prints.add((engine.logits(ids).tobytes(), tuple(output.token_ids)))
    assert len(prints) == 1


@pytest.mark.parametrize("isa", [REFERENCE, *supported_isas()])
@pytest.mark.parametrize("window", [1, 9, 64])
def test_what_lies_before_the_window_does_not_matter(tmp_path: Path, isa: str, window: int) -> None:
    """Two local layers reach back ``2 (window - 1)`` positions together, and not one more."""
    keys = {"attention.sliding_window": window, "attention.sliding_window_pattern": 3}
    path = write_tiny_model(
        tmp_path / "local.gguf",
        architecture="gemma3",
        edit=lambda meta, _: meta.update({f"gemma3.{key}": value for key, value in keys.items()}),
    )
    ids = np.random.default_rng(2).integers(3, 280, 200).tolist()
    with Engine(path, isa=isa, threads=1) as engine:
        logits = engine.logits(ids)
        for position in (130, 150, 199):
            first = position - 2 * (window - 1)
            before = engine.logits([5] * first + ids[first:])
            assert np.array_equal(before[position], logits[position])
            within = engine.logits([5] * (first + 1) + ids[first + 1 :])
            assert not np.array_equal(within[position], logits[position])


@pytest.mark.parametrize("isa", [REFERENCE, supported_isas()[0]])
def test_prompts_side_by_side(isa: str) -> None:
    """Sequences that stand at different places of their windows, in the same steps."""
    ids = golden_of("gemma3")["ids"].tolist()
    with Engine(model_of("gemma3"), isa=isa, threads=2) as engine:
        prompts = [ids[:n] for n in (3, 44, 46, 64, 110, 150)]
        alone = [engine.generate(prompt, max_tokens=30, ignore_eos=True).token_ids for prompt in prompts]
        sequences = [
            engine.add(GenerateRequest(prompt, SamplingParams(max_tokens=30, ignore_eos=True))) for prompt in prompts
        ]
        together: dict[Any, list[int]] = {sequence: [] for sequence in sequences}
        while engine.has_work:
            for sequence, delta in engine.step():
                together[sequence] += delta.token_ids
    assert [together[sequence] for sequence in sequences] == alone
