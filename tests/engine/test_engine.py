"""The Python surface: generate, stream, logits, prompts, limits, threads, closing."""

from __future__ import annotations

import gc
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

import ultrafast
from support.engines import OpenEngine, assert_idle
from support.tiny import write_tiny_model
from ultrafast import Engine
from ultrafast.engine.native import KV_BLOCK, REFERENCE, supported_isas
from ultrafast.errors import ConfigError, ModelNotFound, PromptTooLong, RequestError, UltrafastError
from ultrafast.types import FinishReason, GenerateRequest, SamplingParams, Usage

MESSAGES = [{"role": "user", "content": "hello"}]


def prompt_of(length: int) -> list[int]:
    return [3 + i % 250 for i in range(length)]


def emit(engine: Engine, *texts: str, end: bool = True) -> dict[str, Any]:
    """Parameters that make greedy decoding say the tokens of ``texts`` in turn, each at most once, then stop.

    Forced by falling biases and a presence penalty that takes each token out once it was said.
    """
    ids = [token for text in texts for token in engine.tokenizer.encode(text)]
    assert len(ids) == len(set(ids)) <= 4
    ids += sorted(engine.tokenizer.eog_ids)[:1] if end else []
    return {"logit_bias": {token: 100.0 - 20 * i for i, token in enumerate(ids)}, "presence_penalty": 100.0}


# ---- answers --------------------------------------------------------------------------------------------------------


def test_generate_tells_all_about_an_answer(engine: Engine) -> None:
    before = time.monotonic()
    output = engine.generate("hello world", max_tokens=12, temperature=0, seed=0, stop=[], ignore_eos=True)
    after = time.monotonic()
    assert len(output.token_ids) == 12
    assert output.finish_reason is FinishReason.LENGTH
    assert output.finish_reason == "length"
    assert output.text == engine.tokenizer.decode(output.token_ids, skip_special=True)
    assert output.usage == Usage(len(engine.tokenizer.encode("hello world")), 12)
    assert output.logprobs is None
    times = output.timings
    assert before <= times.arrived <= times.started <= times.first_token <= times.finished <= after
    assert times.ttft_s == pytest.approx(times.queue_s + times.prefill_s)
    assert output.tokens_per_s == pytest.approx(11 / times.decode_s)


def test_a_stream_adds_up_to_the_answer(engine: Engine) -> None:
    params: dict[str, Any] = {"max_tokens": 300, "temperature": 0.9, "seed": 7, "ignore_eos": True, "logprobs": 1}
    whole = engine.generate(MESSAGES, **params)
    deltas = list(engine.stream(MESSAGES, **params))
    assert "".join(delta.text for delta in deltas) == whole.text
    assert [token for delta in deltas for token in delta.token_ids] == whole.token_ids
    assert [entry for delta in deltas for entry in delta.logprobs or ()] == whole.logprobs
    assert [delta.finish_reason for delta in deltas] == [None] * (len(deltas) - 1) + [whole.finish_reason]
    assert len(deltas[0].token_ids) == 1  # the first token is not made to wait for others
    assert len(deltas) > 2


def test_the_end_token_ends_the_answer_and_is_no_part_of_it(engine: Engine) -> None:
    output = engine.generate("a", max_tokens=50, **emit(engine, "hello"))
    assert output.text == "hello"
    assert output.finish_reason is FinishReason.STOP
    assert not engine.tokenizer.eog_ids & set(output.token_ids)
    assert output.usage.completion_tokens == len(output.token_ids)
    assert output.token_ids == engine.tokenizer.encode("hello")
    at_once = engine.generate("a", max_tokens=50, logprobs=2, **emit(engine))
    assert (at_once.text, at_once.token_ids, at_once.logprobs) == ("", [], [])
    assert at_once.finish_reason is FinishReason.STOP
    assert at_once.timings.first_token > 0


def test_ignore_eos_goes_on(engine: Engine) -> None:
    output = engine.generate("a", max_tokens=50, ignore_eos=True, **emit(engine, "hello"))
    assert output.finish_reason is FinishReason.LENGTH
    assert len(output.token_ids) == 50
    assert engine.tokenizer.eog_ids & set(output.token_ids)
    assert output.text.startswith("hello")
    assert "<|" not in output.text


def test_the_end_token_as_last_token_allowed_is_a_stop(engine: Engine) -> None:
    num_tokens = len(engine.tokenizer.encode("hello"))
    output = engine.generate("a", max_tokens=num_tokens + 1, **emit(engine, "hello"))
    assert (output.text, output.finish_reason) == ("hello", FinishReason.STOP)
    output = engine.generate("a", max_tokens=num_tokens, **emit(engine, "hello"))
    assert (output.text, output.finish_reason) == ("hello", FinishReason.LENGTH)


@pytest.mark.parametrize(
    ("stop", "text"), [("world", "hello "), ("lo w", "hel"), (["zzz", "o"], "hell"), (" ", "hello")]
)
def test_stop_strings_end_the_text_before_them(engine: Engine, stop: Any, text: str) -> None:
    params = emit(engine, "hello", " world")
    assert engine.generate("a", max_tokens=50, **params).text == "hello world"
    output = engine.generate("a", max_tokens=50, stop=stop, logprobs=0, **params)
    assert (output.text, output.finish_reason) == (text, FinishReason.STOP)
    assert output.usage.completion_tokens == len(output.token_ids) == len(output.logprobs or ())
    shorter = engine.generate("a", max_tokens=len(output.token_ids) - 1, stop=stop, **params)
    assert shorter.finish_reason is FinishReason.LENGTH  # the last token is the one that completed the stop string


def test_a_stop_string_that_never_comes_is_given_back(engine: Engine) -> None:
    output = engine.generate("a", max_tokens=50, stop=["world!"], **emit(engine, "hello", " world"))
    assert (output.text, output.finish_reason) == ("hello world", FinishReason.STOP)


def test_stop_strings_in_a_long_answer(engine: Engine) -> None:
    params: dict[str, Any] = {"max_tokens": 400, "ignore_eos": True, "temperature": 1.0, "seed": 3}
    text = engine.generate("hello", **params).text
    for stop in (text[100:103], text[200:201], text[300:310]):
        output = engine.generate("hello", stop=[stop], **params)
        assert output.text == text[: text.index(stop)]
        assert output.finish_reason is FinishReason.STOP


# ---- prompts --------------------------------------------------------------------------------------------------------


def test_text_messages_and_token_ids_are_the_same_prompt(engine: Engine) -> None:
    text = engine.tokenizer.apply_chat_template(MESSAGES)
    outputs = [engine.generate(prompt, max_tokens=8) for prompt in (MESSAGES, text, engine.tokenizer.encode(text))]
    assert outputs[0].token_ids == outputs[1].token_ids == outputs[2].token_ids
    assert outputs[0].usage.prompt_tokens == len(engine.tokenizer.encode(text))


@pytest.mark.parametrize(
    "prompt", ["", [], (), None, 5, b"abc", {}, [1.5], ["a"], [[1]], [None], [1, MESSAGES[0]], [True]]
)
def test_what_is_no_prompt_is_refused(engine: Engine, prompt: Any) -> None:
    with pytest.raises(RequestError) as refusal:
        engine.generate(prompt, max_tokens=1)
    assert refusal.value.param == "prompt"


@pytest.mark.parametrize("token", [-1, 288, 2**31, 2**40, 2**64, -(2**63), 10**4000])
def test_token_ids_must_be_in_the_vocabulary(engine: Engine, token: int) -> None:
    for call in (engine.generate, engine.stream, engine.logits):
        with pytest.raises(RequestError, match="vocabulary") as refusal:
            call([1, token])
        assert refusal.value.param == "prompt"


def test_the_beginning_token_is_added_once_where_the_file_wants_it(open_engine: OpenEngine) -> None:
    engine = open_engine(tokenizer="spm")
    bos = engine.tokenizer.bos_id
    assert engine.encode_prompt("hello") == [bos, *engine.tokenizer.encode("hello")]
    assert engine.encode_prompt("<s>hello").count(bos or 0) == 1
    assert engine.encode_prompt("") == [bos]
    assert engine.encode_prompt([5, 6]) == [5, 6]
    assert engine.generate("", max_tokens=3).usage.prompt_tokens == 1


# ---- the context ----------------------------------------------------------------------------------------------------


def test_prompt_and_output_fill_the_context_and_no_more(open_engine: OpenEngine) -> None:
    engine = open_engine(context=130, threads=1)
    assert engine.max_context == 130
    output = engine.generate(prompt_of(129), ignore_eos=True)
    assert (len(output.token_ids), output.finish_reason) == (1, FinishReason.LENGTH)
    assert len(engine.generate(prompt_of(100), max_tokens=30, ignore_eos=True).token_ids) == 30
    assert len(engine.generate(prompt_of(1), ignore_eos=True).token_ids) == 129
    for length in (130, 131, 1000):
        with pytest.raises(PromptTooLong, match=rf"{length} tokens.* 130 ") as refusal:
            engine.generate(prompt_of(length))
        assert (refusal.value.param, refusal.value.code) == ("prompt", "context_length_exceeded")
    with pytest.raises(PromptTooLong, match=r"100 .*31 .*131.* 130 .*at most 30") as refusal:
        engine.generate(prompt_of(100), max_tokens=31)
    assert refusal.value.param == "max_tokens"


@pytest.mark.parametrize("context", [63, 64, 65, 128, 129])
def test_a_context_that_ends_beside_a_kv_block(open_engine: OpenEngine, context: int) -> None:
    engine = open_engine(context=context, threads=1)
    outputs = [engine.generate(prompt_of(n), ignore_eos=True) for n in (1, context // 2, context - 2, context - 1)]
    assert [o.usage.total_tokens for o in outputs] == [context] * 4
    assert engine.logits(prompt_of(context)).shape == (context, 288)


def test_the_context_is_the_model_s_unless_smaller(tiny_model_path: Path, open_engine: OpenEngine) -> None:
    assert open_engine(tiny_model_path).max_context == 512
    for context in (0, -1, 513, 2**40, True, 1.5, "512"):
        with pytest.raises(ConfigError, match="context must be a whole number from 1 to 512"):
            Engine(tiny_model_path, context=context)  # type: ignore[arg-type]


# ---- logits ---------------------------------------------------------------------------------------------------------


def test_logits_of_every_position(engine: Engine) -> None:
    ids = prompt_of(150)
    logits = engine.logits(ids)
    assert logits.shape == (150, 288)
    assert logits.dtype == np.float32
    assert np.isfinite(logits).all()
    assert np.array_equal(engine.logits(ids[:70]), logits[:70])
    assert np.array_equal(engine.logits(np.array(ids)), logits)
    assert engine.generate(ids, max_tokens=1, ignore_eos=True).token_ids == [logits[-1].argmax()]


def test_logits_beside_a_stream_change_nothing(engine: Engine) -> None:
    expected = engine.generate("hello", max_tokens=200, ignore_eos=True).token_ids
    logits = engine.logits([4, 5, 6])
    token_ids = []
    for delta in engine.stream("hello", max_tokens=200, ignore_eos=True):
        token_ids += delta.token_ids
        assert np.array_equal(engine.logits([4, 5, 6]), logits)
    assert token_ids == expected


def test_logits_need_a_prompt_that_fits(engine: Engine) -> None:
    assert engine.logits(prompt_of(512)).shape[0] == 512
    with pytest.raises(PromptTooLong, match=r"513 .*512"):
        engine.logits(prompt_of(513))
    for ids in ([], [1.5], [True], "abc"):
        with pytest.raises(RequestError):
            engine.logits(ids)  # type: ignore[arg-type]


# ---- models ---------------------------------------------------------------------------------------------------------


def test_a_model_is_named_by_its_path(tiny_model_path: Path, open_engine: OpenEngine) -> None:
    engine = open_engine(tiny_model_path)
    assert (engine.model_id, engine.path, engine.shape.num_layers) == ("tiny", tiny_model_path, 2)
    assert engine.weight_bytes > 0
    assert engine.num_pinned <= engine.threads
    assert ultrafast.Engine(str(tiny_model_path), threads=1).threads == 1


def test_a_model_that_is_not_there() -> None:
    with pytest.raises(ModelNotFound, match="nowhere"):
        Engine("/nowhere/model.gguf")


@pytest.mark.parametrize("threads", [0, -1, 1025, 2**31, True, 1.0, "2"])
def test_threads_are_checked(tiny_model_path: Path, threads: Any) -> None:
    with pytest.raises(ConfigError, match="threads must be a whole number from 1 to 1024"):
        Engine(tiny_model_path, threads=threads)


def test_many_more_threads_than_rows(open_engine: OpenEngine, engine: Engine) -> None:
    crowd = open_engine(threads=24)
    assert crowd.generate("hello", max_tokens=5).token_ids == engine.generate("hello", max_tokens=5).token_ids


def test_two_engines_in_one_process(open_engine: OpenEngine) -> None:
    engines = [open_engine(seed=seed, isa=isa, threads=1) for seed in (1, 2) for isa in (*supported_isas(), REFERENCE)]
    solo = [engine.generate("hello", max_tokens=20, ignore_eos=True).token_ids for engine in engines]
    assert solo[0] != solo[-1]
    with ThreadPoolExecutor(len(engines)) as pool:
        asked = [pool.submit(engine.generate, "hello", max_tokens=20, ignore_eos=True) for engine in engines]
        assert [future.result().token_ids for future in asked] == solo


# ---- several callers, and callers who leave -------------------------------------------------------------------------


def test_eight_threads_get_what_each_would_alone(engine: Engine) -> None:
    def ask(i: int) -> tuple[str, list[int]]:
        params: dict[str, Any] = {"max_tokens": 20 + 15 * i, "temperature": i % 2, "seed": i, "ignore_eos": True}
        output = engine.generate(prompt_of(1 + 40 * i), **params)
        return output.text, output.token_ids

    solo = [ask(i) for i in range(8)]
    for _ in range(5):
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(ask, range(8))) == solo


def test_more_callers_than_slots(open_engine: OpenEngine) -> None:
    engine = open_engine(threads=1)
    expected = engine.generate("hello", max_tokens=9, ignore_eos=True).token_ids
    with ThreadPoolExecutor(engine.num_slots + 8) as pool:
        asked = [pool.submit(engine.generate, "hello", max_tokens=9, ignore_eos=True) for _ in range(80)]
        assert all(future.result().token_ids == expected for future in asked)


def test_closing_a_stream_frees_its_slot_and_blocks(engine: Engine) -> None:
    stream = engine.stream("hello", max_tokens=500, ignore_eos=True)
    next(stream)
    assert engine.stats()["running"] == 1
    stream.close()  # type: ignore[attr-defined]
    assert_idle(engine)
    for _ in engine.stream("hello", max_tokens=500, ignore_eos=True):
        break
    gc.collect()
    assert_idle(engine)


def test_a_stream_that_nobody_reads_holds_nothing(engine: Engine) -> None:
    streams = [engine.stream("hello", max_tokens=500) for _ in range(5)]
    assert_idle(engine)
    with pytest.raises(RequestError):
        engine.stream("hello", max_tokens=0)  # refused now, not when it is read
    del streams


def test_one_stream_closed_beside_others(engine: Engine) -> None:
    expected = engine.generate("hello", max_tokens=300, ignore_eos=True).token_ids
    leaving = engine.stream("world", max_tokens=300, ignore_eos=True)
    staying = engine.stream("hello", max_tokens=300, ignore_eos=True)
    token_ids = list(next(staying).token_ids)
    next(leaving)
    leaving.close()  # type: ignore[attr-defined]
    token_ids += [token for delta in staying for token in delta.token_ids]
    assert token_ids == expected


def test_a_cancelled_request_keeps_its_usage_and_gets_no_more(engine: Engine) -> None:
    sequence = engine.add(GenerateRequest(prompt_of(10), SamplingParams(max_tokens=400, ignore_eos=True)))
    assert engine.has_work
    assert [owner for owner, _ in engine.step()] == [sequence]
    generated = sequence.usage.completion_tokens
    assert generated == 1
    engine.cancel(sequence)
    engine.cancel(sequence)
    assert sequence.finish_reason is FinishReason.CANCELLED
    assert engine.step() == []
    assert sequence.usage.completion_tokens == generated


def test_a_request_cancelled_in_the_queue(open_engine: OpenEngine) -> None:
    engine = open_engine(threads=1)
    ask = GenerateRequest(prompt_of(3), SamplingParams(max_tokens=2, ignore_eos=True))
    sequences = [engine.add(ask) for _ in range(engine.num_slots + 3)]
    engine.step()
    assert engine.stats()["waiting"] == 3
    engine.cancel(sequences[-2])
    while engine.has_work:
        engine.step()
    assert [s.usage.completion_tokens for s in sequences] == [2] * (engine.num_slots + 1) + [0, 2]


def test_an_interrupt_ends_a_burst_and_harms_nothing(engine: Engine) -> None:
    expected = engine.generate("hello", max_tokens=300, ignore_eos=True).token_ids
    token_ids: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(engine.generate, "hello", max_tokens=300, ignore_eos=True)
        while not answer.done():
            engine.interrupt()
        token_ids = answer.result().token_ids
    assert token_ids == expected


# ---- the end --------------------------------------------------------------------------------------------------------


def test_a_closed_engine_says_so(tiny_model_path: Path) -> None:
    with Engine(tiny_model_path, threads=1) as engine:
        stream = engine.stream("hello", max_tokens=400, ignore_eos=True)
        next(stream)
        waiting = engine.add(GenerateRequest([1], SamplingParams(max_tokens=4)))
    assert list(stream) == []
    assert waiting.finish_reason is FinishReason.CANCELLED
    for call in (engine.generate, engine.stream, engine.logits):
        with pytest.raises(UltrafastError, match="closed"):
            call([1, 2, 3])
    with pytest.raises(UltrafastError, match="closed"):
        engine.step()
    engine.interrupt()
    engine.close()
    assert_idle(engine)
    assert engine.tokenizer.encode("hello")


def test_close_ends_a_generation_in_another_thread(tiny_model_path: Path) -> None:
    engine = Engine(tiny_model_path, threads=1)
    with ThreadPoolExecutor(1) as pool:
        answers = [pool.submit(engine.generate, "hello", max_tokens=500, ignore_eos=True)]
        while not engine.has_work:
            pass
        engine.close()
        output = answers[0].result()
    assert output.finish_reason in (FinishReason.CANCELLED, FinishReason.LENGTH)


def test_default_threads_are_the_machine_s(tmp_path: Path, open_engine: OpenEngine) -> None:
    path = write_tiny_model(tmp_path / "model.gguf", type=Type.F32, layers=1)
    assert open_engine(path).threads >= 1


def test_a_stop_string_found_at_the_very_end_is_a_stop(engine: Engine) -> None:
    ids = [next(i for i in range(300) if engine.tokenizer.token_bytes(i) == bytes([byte])) for byte in "🎉".encode()]
    bias = {token: 100 - 20 * place for place, token in enumerate(ids)}
    cut = engine.generate("x", max_tokens=3, logit_bias=bias, presence_penalty=100, stop="\ufffd")
    assert (cut.text, cut.finish_reason) == ("", "stop")


def test_an_idle_engine_gives_kv_memory_back(
    open_engine: OpenEngine, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ultrafast.engine.engine._KEPT_KV_BYTES", 0)
    frugal = open_engine(cache_mib=0)
    released: list[int] = []
    release = frugal._native.release_blocks
    monkeypatch.setattr(frugal._native, "release_blocks", lambda blocks: (released.extend(blocks), release(blocks)))
    prompt = prompt_of(400)
    expected = engine.generate(prompt, max_tokens=9, ignore_eos=True).token_ids
    for _ in range(2):
        assert frugal.generate(prompt, max_tokens=9, ignore_eos=True).token_ids == expected
        assert len(released) >= 400 // KV_BLOCK
        released.clear()
