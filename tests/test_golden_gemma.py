"""gemma3-270m against Hugging Face transformers in fp32 on the same file, where that model has been pulled."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from ultrafast import Engine
from ultrafast.engine.native import REFERENCE, supported_isas
from ultrafast.models.catalog import KNOWN

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "tests" / "golden" / "gemma3-270m"
MODEL = KNOWN["gemma3-270m"]
GOLDEN: dict[str, Any] = json.loads((FOLDER / "golden.json").read_text(encoding="utf-8"))
PROMPTS: list[dict[str, Any]] = GOLDEN["prompts"]
LONG_IDS: list[int] = next(prompt["prompt_ids"] for prompt in PROMPTS if prompt["name"] == "long_text")

pytestmark = pytest.mark.skipif(
    not MODEL.path.is_file(),
    reason="gemma3-270m is not on this disk: `ultrafast pull gemma3-270m` gets it, under Google's Gemma Terms of Use",
)


@pytest.fixture(scope="module")
def metrics() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tools"))
        return importlib.import_module("accuracy_metrics")


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine("gemma3-270m", isa=supported_isas()[0], context=1024) as engine:
        yield engine


def test_golden_data_belongs_to_the_model() -> None:
    assert GOLDEN["reference"]["sha256"] == MODEL.sha256
    assert len(LONG_IDS) == 600


@pytest.mark.parametrize("prompt", PROMPTS, ids=[prompt["name"] for prompt in PROMPTS])
def test_prompt_ids(prompt: dict[str, Any], engine: Engine) -> None:
    ids = engine.encode_prompt(prompt["prompt_text"])
    assert ids[: len(prompt["prompt_ids"])] == prompt["prompt_ids"]
    if prompt["name"] != "long_text":  # of which the beginning is kept
        assert len(ids) == len(prompt["prompt_ids"])
    assert engine.tokenizer.decode(ids, skip_special=True) == prompt["prompt_text"]


def test_logits_of_a_text_longer_than_the_window(engine: Engine) -> None:
    assert len(LONG_IDS) > engine.shape.windows[0]
    golden = np.load(FOLDER / "long_text.npz")
    logits = engine.logits(LONG_IDS)
    top = np.take_along_axis(logits, golden["top_ids"], axis=1)
    assert np.abs(top - golden["top_logits"]).max() < 0.1
    assert np.abs(top - golden["top_logits"]).mean() < 0.01
    assert (logits.argmax(axis=1) == golden["top_ids"][:, 0]).mean() >= 0.995


def test_the_reference_is_transformers() -> None:
    prompt = next(prompt for prompt in PROMPTS if prompt["name"] == "completion")
    golden = np.load(FOLDER / "greedy.npz")
    with Engine("gemma3-270m", isa=REFERENCE, context=128) as engine:
        ids = [*prompt["prompt_ids"], *prompt["greedy_ids"][:-1]]
        logits = engine.logits(ids)[len(prompt["prompt_ids"]) - 1 :]
    top = np.take_along_axis(logits, golden["completion.top_ids"], axis=1)
    assert np.abs(top - golden["completion.top_logits"]).max() < 2e-3


def test_greedy_tokens_after_golden_ones(
    engine: Engine, metrics: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each golden token is fed in whatever the engine would have said; only near-ties may differ, and are listed."""
    misses = [miss for prompt in PROMPTS for miss in metrics.greedy_misses(prompt, engine.logits)]
    steps = sum(len(prompt["greedy_ids"]) for prompt in PROMPTS)
    with capsys.disabled():
        print(f"\n{engine.isa}: {steps - len(misses)} of {steps} greedy tokens equal", *misses, sep="\n  ")
    assert not [miss for miss in misses if miss.margin > metrics.MARGIN]


@pytest.mark.parametrize("name", ["completion", "completion_code", "long_text"])
def test_greedy_generation(name: str, engine: Engine, metrics: ModuleType) -> None:
    """Free-running, up to the first near-tie that the engine decides otherwise."""
    prompt = next(prompt for prompt in PROMPTS if prompt["name"] == name)
    output = engine.generate(prompt["prompt_ids"], max_tokens=len(prompt["greedy_ids"]), ignore_eos=True)
    pairs = zip(output.token_ids, prompt["greedy_ids"], strict=True)
    first = next((step for step, (actual, wanted) in enumerate(pairs) if actual != wanted), None)
    assert first is None or prompt["margins"][first] <= metrics.MARGIN, f"other token at step {first}"
