"""The service on the real engine: a tiny model for most, the embedded one where a request must last."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, OpenAI

from support.asgi import client_of
from support.fuzz import fuzz
from support.idle import needs_proc, num_wake_ups_when_idle
from support.served import Served, served
from ultrafast.engine.engine import Engine

MESSAGES: Any = [{"role": "system", "content": "Be quick."}, {"role": "user", "content": "Hi 🚀"}]
FOREVER = ", ".join(str(number) for number in range(1, 40)) + ","  # what any model goes on with


def tiny_engine(path: Path) -> Engine:
    return Engine(str(path), threads=1)


@pytest.fixture(scope="module")
def tiny(tiny_model_path: Path) -> Iterator[Served]:
    with served(tiny_engine(tiny_model_path)) as server:
        yield server


@pytest.fixture(scope="module")
def client(tiny: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=tiny.url, api_key="none", max_retries=0) as client:
        yield client


def endless(engine: Engine) -> dict[str, int]:
    """A logit_bias under which no sequence ends by itself."""
    return {str(token): -100 for token in engine.tokenizer.eog_ids}


def test_completions_continue_as_the_engine_does(tiny_model_path: Path, client: OpenAI) -> None:
    """Texts and token ids, several at once, and what is streamed."""
    prompts = ["Speed is", "Eins, zwei"]
    with tiny_engine(tiny_model_path) as alone:
        outputs = [alone.generate(prompt, max_tokens=9, logprobs=2) for prompt in prompts]
        ids = [alone.encode_prompt(prompt) for prompt in prompts]
        texts = [alone.tokenizer.decode(prompt) for prompt in ids]
    ask: Any = {"model": "tiny", "max_tokens": 9, "temperature": 0, "logprobs": 2}
    for prompt, echoed in [(prompts, prompts), (ids, texts)]:
        answer = client.completions.create(prompt=prompt, echo=False, **ask)
        assert [choice.text for choice in answer.choices] == [output.text for output in outputs]
        assert [choice.finish_reason for choice in answer.choices] == [output.finish_reason for output in outputs]
        for choice, output in zip(answer.choices, outputs, strict=True):
            assert choice.logprobs.token_logprobs == pytest.approx(
                [entry.logprob for entry in output.logprobs], abs=1e-3
            )
        told = ["", ""]
        for chunk in client.completions.create(prompt=prompt, echo=True, stream=True, **ask):
            for choice in chunk.choices:
                told[choice.index] += choice.text
        assert told == [text + output.text for text, output in zip(echoed, outputs, strict=True)]


@pytest.mark.parametrize("seed", range(8))
def test_the_service_gives_the_engines_tokens(tiny_model_path: Path, client: OpenAI, tiny: Served, seed: int) -> None:
    """The same text and counts, plain or streamed, in both formats, as the engine gives alone."""
    limit = 5 + 6 * seed
    with tiny_engine(tiny_model_path) as alone:
        greedy = alone.generate(MESSAGES, max_tokens=limit)
        sampled = alone.generate(MESSAGES, max_tokens=limit, temperature=1.0, seed=seed)
        prompt_tokens = len(alone.tokenizer.encode(alone.tokenizer.apply_chat_template(MESSAGES)))

    chat = client.chat.completions.create(
        model="tiny", messages=MESSAGES, max_tokens=limit, seed=seed, logprobs=True, top_logprobs=2
    )
    assert chat.choices[0].message.content == sampled.text
    assert chat.usage is not None
    assert chat.usage.prompt_tokens == prompt_tokens
    assert chat.usage.completion_tokens == len(sampled.token_ids) == sampled.usage.completion_tokens
    assert chat.choices[0].finish_reason == sampled.finish_reason
    entries = chat.choices[0].logprobs.content
    assert [bytes(entry.bytes) for entry in entries] == [
        tiny.loop.engine.tokenizer.token_bytes(token) for token in sampled.token_ids
    ]

    with client.chat.completions.create(
        model="tiny",
        messages=MESSAGES,
        max_tokens=limit,
        seed=seed,
        stream=True,
        stream_options={"include_usage": True},
    ) as stream:
        chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == sampled.text
    usage = chunks[-1].usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (prompt_tokens, chat.usage.completion_tokens)
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == prompt_tokens - 1  # the second time

    response = client.responses.create(model="tiny", input=MESSAGES, max_output_tokens=limit, temperature=0)
    assert response.output_text == greedy.text
    assert response.usage.input_tokens == prompt_tokens
    assert response.usage.output_tokens == len(greedy.token_ids)
    with client.responses.stream(model="tiny", input=MESSAGES, max_output_tokens=limit, temperature=0) as events:
        last = list(events)[-1].response
    assert last.output_text == greedy.text
    assert last.usage is not None
    assert last.usage.output_tokens == response.usage.output_tokens
    assert last.status == ("completed" if greedy.finish_reason == "stop" else "incomplete")


def test_two_hundred_at_once_each_get_their_own_tokens(tiny_model_path: Path, tiny: Served) -> None:
    with tiny_engine(tiny_model_path) as alone:
        expected = [
            alone.generate([{"role": "user", "content": f"{i % 20}"}], max_tokens=12, temperature=1.0, seed=i % 20).text
            for i in range(20)
        ]

    async def main() -> None:
        async with AsyncOpenAI(base_url=tiny.url, api_key="none", max_retries=0) as client:

            async def ask(index: int) -> str:
                answer = await client.chat.completions.create(
                    model="tiny",
                    messages=[{"role": "user", "content": f"{index % 20}"}],
                    max_tokens=12,
                    seed=index % 20,
                    service_tier=["default", "fast"][index % 2],
                )
                return answer.choices[0].message.content or ""

            async with asyncio.timeout(120):
                texts = await asyncio.gather(*(ask(index) for index in range(200)))
        assert texts == [expected[index % 20] for index in range(200)]

    asyncio.run(main())
    tiny.wait_for(lambda stats: stats["running"] == stats["waiting"] == 0)


def test_a_thousand_fuzzed_bodies(tiny_model_path: Path) -> None:
    async def main() -> None:
        async with client_of(tiny_engine(tiny_model_path)) as client:
            statuses = await fuzz(client, "tiny", num_bodies=1_000, seed=2)
            assert min(statuses[200], statuses[400]) > 200, f"one-sided: {statuses}"

    asyncio.run(main())


def test_prompts_that_do_not_fit(client: OpenAI, tiny: Served) -> None:
    long = "word " * tiny.loop.engine.max_context
    for path, body, param in [
        ("chat/completions", {"messages": [{"role": "user", "content": long}]}, "messages"),
        ("responses", {"input": long}, "input"),
        ("responses", {"input": "Hi", "max_output_tokens": tiny.loop.engine.max_context}, "max_output_tokens"),
    ]:
        error = httpx.post(f"{tiny.url}/{path}", json={"model": "tiny", **body}, timeout=20)
        assert error.status_code == 400
        assert error.json()["error"]["code"] == "context_length_exceeded"
        assert error.json()["error"]["param"] == param


@pytest.fixture(scope="module")
def embedded(embedded_model_path: Path) -> Iterator[Served]:
    with served(Engine("smollm2-135m", threads=1)) as server:
        yield server


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_slot_and_blocks_within_100_ms(embedded: Served, stream: bool) -> None:
    body = {
        "model": "smollm2-135m",
        "messages": [{"role": "user", "content": FOREVER}],
        "stream": stream,
        "logit_bias": endless(embedded.loop.engine),
    }
    with httpx.Client(base_url=embedded.url, timeout=20) as client:
        if stream:
            with client.stream("POST", "chat/completions", json=body) as answer:
                lines = answer.iter_lines()
                for _ in range(20):
                    next(lines)
                assert embedded.loop.stats()["running"] == 1
        else:
            with pytest.raises(httpx.ReadTimeout):
                client.post("chat/completions", json=body, timeout=0.5)
    assert embedded.wait_for(lambda stats: stats["running"] == 0) < 0.1
    stats = embedded.loop.stats()
    assert stats["free_blocks"] + stats["cached_blocks"] == stats["num_blocks"]


def test_short_requests_pass_long_ones(embedded: Served) -> None:
    """Four long answers run; a short one, come later, does not wait for their ends."""
    bias = endless(embedded.loop.engine)

    def ask(text: str, limit: int) -> None:
        body = {"model": "smollm2-135m", "messages": [{"role": "user", "content": text}], "max_tokens": limit}
        answer = httpx.post(f"{embedded.url}/chat/completions", json=body | {"logit_bias": bias}, timeout=60)
        assert answer.json()["usage"]["completion_tokens"] == limit

    longs = [threading.Thread(target=ask, args=(f"{FOREVER} {i}", 80)) for i in range(4)]
    for thread in longs:
        thread.start()
    embedded.wait_for(lambda stats: stats["running"] == 4)
    for _ in range(2):
        ask("Hi", 3)
    assert all(thread.is_alive() for thread in longs)
    assert embedded.loop.stats()["running"] == 4
    for thread in longs:
        thread.join()


@pytest.fixture
def program(embedded_model_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`ultrafast serve` itself, and its address."""
    command = [sys.executable, "-c", "from ultrafast.cli.main import main; main()", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            ready = re.fullmatch(r"Ultrafast serving smollm2-135m at (\S+/v1)  \(ready in \d+\.\d s\)\n", line)
            assert ready, line
            yield process, ready[1]
        finally:
            process.kill()


def test_the_program_drains_on_ctrl_c(program: tuple[subprocess.Popen[str], str]) -> None:
    """An answer is cut by nothing, and the exit status is 0."""
    process, url = program
    body = {"model": "smollm2-135m", "messages": [{"role": "user", "content": FOREVER}], "max_tokens": 200, "seed": 1}
    with httpx.stream("POST", f"{url}/chat/completions", json=body | {"stream": True}, timeout=60) as answer:
        lines = answer.iter_lines()
        next(lines)
        process.send_signal(signal.SIGINT)
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert json.loads(rest[-2].removeprefix("data: "))["choices"][0]["finish_reason"] in ("stop", "length")
    out, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (0, "")
    # Nothing is said where the answer was quicker than the signal.
    assert out in ("", "Draining: 1 running; Ctrl-C again leaves at once\n")


@needs_proc
def test_the_program_sleeps_when_idle(program: tuple[subprocess.Popen[str], str]) -> None:
    process, url = program
    for _ in range(2):
        body = {"model": "smollm2-135m", "input": "Hi", "max_output_tokens": 3}
        assert httpx.post(f"{url}/responses", json=body, timeout=60).status_code == 200
        assert num_wake_ups_when_idle(process.pid) <= 1
