"""Where the golden data lies, what is in it, and which model file it belongs to. Needs numpy only.

``tests/golden/`` holds, next to the inputs ``prompts.json`` and ``long_text.txt``:

* ``golden.json``: ``reference`` (versions, model checksum, settings) and ``prompts``; each prompt has ``name``, either
  ``messages`` or none (raw text), ``prompt_text``, ``prompt_ids``, ``greedy_ids``, ``margins`` (top-1 minus top-2 logit
  at each greedy step) and ``ended`` (the last greedy id is end-of-generation).
* ``greedy.npz``: ``<name>.top_ids`` int32 [steps, 10], ``<name>.top_logits`` float32 [steps, 10] and
  ``<name>.logsumexp`` float64 [steps], at each greedy step of each prompt.
* ``long_text.npz``: at each of the 1,500 positions of the long text ``top_ids`` int32 [1500, 8], ``top_logits`` float32
  [1500, 8], ``fixed_logits`` float32 [1500, 8] of the tokens ``fixed_ids`` [8], and ``logsumexp`` float64 [1500].
* ``gemma3-270m/``: the same three files for that model, but from the prompts as raw text (see `load_prompts`), 32
  greedy tokens each, and 600 tokens of the long text: more than the 512 that its local layers attend to.
* ``tiny/<architecture>.gguf`` and ``.npz`` (tools/make_tiny_golden.py): a random model, a text ``ids`` int32 [200] with
  ``logits`` float32 [23, vocab] after the tokens ``positions`` int32 [23], and ``greedy_ids`` int32 [40] that follow
  the text, with their ``margins`` float32 [40].
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"
MODEL = "smollm2-135m"


class Plan(NamedTuple):
    """What the golden data of a model consists of."""

    folder: Path
    chat: bool  # prompts are chats, rendered by the model's template; else raw text
    greedy_steps: int
    long_tokens: int | None  # of the long text; None: all


PLANS = {
    "smollm2-135m": Plan(GOLDEN, chat=True, greedy_steps=64, long_tokens=None),
    "gemma3-270m": Plan(GOLDEN / "gemma3-270m", chat=False, greedy_steps=32, long_tokens=600),
}


def npz(arrays: dict[str, np.ndarray]) -> bytes:
    """A compressed .npz; numpy stamps its members with a constant date, so equal arrays give equal bytes."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def load_prompts(chat: bool = True) -> list[dict[str, Any]]:
    """The inputs: ``name`` with ``messages`` or ``text``. Not ``chat``: the last message of each chat, as text."""
    prompts: list[dict[str, Any]] = json.loads((GOLDEN / "prompts.json").read_text(encoding="utf-8"))
    for prompt in prompts:
        if "text_file" in prompt:
            prompt["text"] = (GOLDEN / prompt.pop("text_file")).read_text(encoding="utf-8")
        if not chat and "messages" in prompt:
            prompt["text"] = prompt.pop("messages")[-1]["content"]
    return prompts


def load_golden(folder: Path = GOLDEN) -> dict[str, Any]:
    """The expected outputs, as described above."""
    golden: dict[str, Any] = json.loads((folder / "golden.json").read_text(encoding="utf-8"))
    return golden


def resolve_model(name: str = MODEL) -> Path:
    """The file of a model in Ultrafast's cache."""
    sys.path.insert(0, str(ROOT / "src"))
    from ultrafast.models import fetch

    return fetch.resolve(name)
