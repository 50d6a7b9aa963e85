"""`verify --local`: the engine against itself in every way, and against plain fp32."""

from __future__ import annotations

from pathlib import Path

import pytest

from ultrafast.bench.verify import local
from ultrafast.bench.verify.local import bit_identity, closeness
from ultrafast.bench.verify.prompts import prompts
from ultrafast.bench.verify.verdict import Margins, Verdict
from ultrafast.engine.engine import Engine


def quiet(title: str, done: int, total: int) -> None:
    assert 0 <= done <= total


def test_a_model_is_the_same_in_every_way_and_close_to_fp32(tiny_model_path: Path) -> None:
    model = str(tiny_model_path)
    level, texts = bit_identity(model, prompts(10), max_tokens=12, threads=2, progress=quiet)
    assert level.verdict is Verdict.PASS, level.words
    names = [way.way for way in level.figures["ways"]]
    assert {"tier ultrafast", "2 threads", "8 at once", "prefix cache, asked again"} <= {*names}
    assert all(way.tokens > 0 and way.equal == way.answers == 20 for way in level.figures["ways"])
    near = closeness(model, texts, threads=1, margins=Margins(), progress=quiet)
    assert near.verdict is Verdict.PASS, near.words
    far = closeness(model, texts, threads=1, margins=Margins(kl=1e-12), progress=quiet)
    assert far.verdict is Verdict.FAIL
    assert closeness(model, texts[:2], threads=1, margins=Margins(), progress=quiet).verdict is Verdict.UNDERPOWERED


def test_one_token_that_differs_is_a_fail(tiny_model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = local._run

    def spoiled(engine: Engine, requests: list[object], crowd: int) -> list[list[int]]:
        answers = honest(engine, requests, crowd)  # type: ignore[arg-type]
        if crowd > 2:
            answers[3][4] += 1
        return answers

    monkeypatch.setattr(local, "_run", spoiled)
    level, _ = bit_identity(str(tiny_model_path), prompts(10), max_tokens=8, threads=1, progress=quiet)
    assert level.verdict is Verdict.FAIL
    assert "'8 at once' does after 4 tokens" in level.words


def test_few_prompts_pass_nobody(tiny_model_path: Path) -> None:
    level, _ = bit_identity(str(tiny_model_path), prompts(2), max_tokens=4, threads=1, progress=quiet)
    assert level.verdict is Verdict.UNDERPOWERED
