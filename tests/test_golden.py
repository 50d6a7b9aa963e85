"""The engine against the golden data: Hugging Face transformers in fp32 on the same file (tools/make_golden.py)."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ultrafast import Engine
from ultrafast.engine.native import REFERENCE, supported_isas
from ultrafast.models.catalog import KNOWN
from ultrafast.types import FinishReason

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden"
PROMPTS: list[dict[str, Any]] = json.loads((GOLDEN / "golden.json").read_text(encoding="utf-8"))["prompts"]
LONG_IDS: list[int] = next(prompt["prompt_ids"] for prompt in PROMPTS if prompt["name"] == "long_text")

# The scalar kernels are slow and define what the others must give: they are held to equality on a short text instead.
FAST_ISAS = [isa for isa in supported_isas() if isa != "scalar"] or ["scalar"]

each_prompt = pytest.mark.parametrize("prompt", PROMPTS, ids=[prompt["name"] for prompt in PROMPTS])

Logits = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def metrics() -> ModuleType:
    """tools/accuracy_metrics.py: the tools that fill docs/accuracy.md measure with the same code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tools"))
        return importlib.import_module("accuracy_metrics")


@pytest.fixture(scope="module")
def reference(embedded_model_path: Path) -> Iterator[Engine]:
    with Engine(str(embedded_model_path), isa=REFERENCE) as engine:
        yield engine


@pytest.fixture(scope="module")
def reference_logits(reference: Engine) -> Logits:
    """Of the long text, from our own fp32 path: computed once."""
    return reference.logits(LONG_IDS)


@pytest.fixture(scope="module", params=FAST_ISAS)
def engine(request: pytest.FixtureRequest, embedded_model_path: Path) -> Iterator[Engine]:
    with Engine(str(embedded_model_path), isa=request.param) as engine:
        assert engine.isa == request.param
        yield engine


def test_golden_data_belongs_to_the_embedded_model() -> None:
    reference = json.loads((GOLDEN / "golden.json").read_text(encoding="utf-8"))["reference"]
    assert reference["sha256"] == KNOWN["smollm2-135m"].sha256
    assert len(LONG_IDS) == 1500


@each_prompt
def test_prompt_text_and_ids(prompt: dict[str, Any], engine: Engine) -> None:
    tokenizer = engine.tokenizer
    if "messages" in prompt:
        assert tokenizer.apply_chat_template(prompt["messages"]) == prompt["prompt_text"]
        assert engine.encode_prompt(prompt["messages"]) == prompt["prompt_ids"]
    assert tokenizer.encode(prompt["prompt_text"]) == prompt["prompt_ids"]
    assert tokenizer.decode(prompt["prompt_ids"]) == prompt["prompt_text"]


def test_reference_logits_are_those_of_transformers(reference_logits: Logits) -> None:
    golden = np.load(GOLDEN / "long_text.npz")
    top = np.take_along_axis(reference_logits, golden["top_ids"], axis=1)
    assert np.abs(top - golden["top_logits"]).max() < 2e-3
    assert np.abs(reference_logits[:, golden["fixed_ids"]] - golden["fixed_logits"]).max() < 2e-3
    assert np.abs(_logsumexp(reference_logits) - golden["logsumexp"]).max() < 1e-3
    assert (reference_logits.argmax(axis=1) == golden["top_ids"][:, 0]).mean() >= 0.999


@pytest.mark.parametrize("name", ["chat_short", "chinese"])
def test_reference_logits_at_greedy_steps(name: str, reference: Engine) -> None:
    prompt = next(prompt for prompt in PROMPTS if prompt["name"] == name)
    golden = np.load(GOLDEN / "greedy.npz")
    logits = reference.logits([*prompt["prompt_ids"], *prompt["greedy_ids"][:-1]])[len(prompt["prompt_ids"]) - 1 :]
    top = np.take_along_axis(logits, golden[f"{name}.top_ids"], axis=1)
    assert np.abs(top - golden[f"{name}.top_logits"]).max() < 1e-3
    assert np.abs(_logsumexp(logits) - golden[f"{name}.logsumexp"]).max() < 1e-3
    assert (top.argmax(axis=1) == 0).all()


def test_logits_are_close_to_fp32(engine: Engine, reference_logits: Logits, metrics: ModuleType) -> None:
    divergence = metrics.divergence(reference_logits, engine.logits(LONG_IDS))
    assert divergence.positions == 1500
    assert divergence.mean_kl <= 1e-5
    assert divergence.top1 >= 0.998


def test_scalar_logits_are_bit_identical(engine: Engine, embedded_model_path: Path) -> None:
    with Engine(str(embedded_model_path), isa="scalar") as scalar:
        assert np.array_equal(scalar.logits(LONG_IDS[:24]), engine.logits(LONG_IDS[:24]))


def test_greedy_tokens_after_golden_ones(
    engine: Engine, metrics: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each golden token is fed in whatever the engine would have said; only near-ties may differ, and are listed."""
    misses = [miss for prompt in PROMPTS for miss in metrics.greedy_misses(prompt, engine.logits)]
    steps = sum(len(prompt["greedy_ids"]) for prompt in PROMPTS)
    with capsys.disabled():
        print(f"\n{engine.isa}: {steps - len(misses)} of {steps} greedy tokens equal", *misses, sep="\n  ")
    assert not [miss for miss in misses if miss.margin > metrics.MARGIN]


@each_prompt
def test_greedy_generation(prompt: dict[str, Any], engine: Engine, metrics: ModuleType) -> None:
    """Free-running, up to the first near-tie that the engine decides otherwise."""
    golden = prompt["greedy_ids"]
    output = engine.generate(prompt.get("messages", prompt["prompt_text"]), max_tokens=len(golden))
    expected = golden[:-1] if prompt["ended"] else golden  # the end mark is a signal, not output
    pairs = zip([*output.token_ids, None], [*expected, None], strict=False)
    first = next((step for step, (actual, wanted) in enumerate(pairs) if actual != wanted), None)
    if first is not None:
        assert prompt["margins"][first] <= metrics.MARGIN, f"other token at step {first}"
        return
    assert output.finish_reason == (FinishReason.STOP if prompt["ended"] else FinishReason.LENGTH)
    assert output.text == engine.tokenizer.decode(expected)
    assert output.usage.prompt_tokens == len(prompt["prompt_ids"])


def _logsumexp(logits: Logits) -> npt.NDArray[np.float64]:
    peak = logits.max(axis=1, keepdims=True).astype(np.float64)
    total: npt.NDArray[np.float64] = np.log(np.exp(logits - peak).sum(axis=1)) + peak[:, 0]
    return total
