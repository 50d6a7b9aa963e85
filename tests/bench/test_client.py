"""The client against the reference endpoint: every API, every outcome, and the record of each."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.schedule_server import ReferenceEndpoint, reference_endpoint
from support.schedules import WORD, Schedule, Step, Truth
from ultrafast.bench.client.call import Ask, Call, Outcome
from ultrafast.bench.client.client import Client
from ultrafast.bench.client.clock import RunClock
from ultrafast.bench.client.endpoint import Api, Endpoint

APIS: list[Api] = ["chat", "completions", "responses", "socket"]
STEPS = [Step(0.02, 3), Step(0, 1), Step(0.01, 8), Step(0.01, 2)]
HANGS = Schedule(steps=[Step(0, 2), Step(3600)])


@pytest.fixture(scope="module")
def reference() -> Iterator[ReferenceEndpoint]:
    with reference_endpoint() as endpoint:
        yield endpoint


@asynccontextmanager
async def client_at(url: str, api: Api = "chat", **options: Any) -> AsyncIterator[tuple[Client, RunClock]]:
    clock = RunClock()
    async with Client(Endpoint(url, "reference", api, "fast"), clock, **options) as client:
        yield client, clock


def calls_of(reference: ReferenceEndpoint, api: Api, *schedules: Schedule, **options: Any) -> list[Call]:
    """One call after another, on one client."""

    async def main() -> list[Call]:
        async with client_at(reference.url, api, **options) as (client, _):
            return [
                await client.call(Ask("Hi", extra=schedule.asked(), tags={"n": n}), id=f"call-{n}")
                for n, schedule in enumerate(schedules)
            ]

    return asyncio.run(main())


def call_of(reference: ReferenceEndpoint, api: Api, schedule: Schedule, **options: Any) -> Call:
    (call,) = calls_of(reference, api, schedule, **options)
    return call


def wait_for(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)  # another process is to notice


@pytest.mark.parametrize("api", APIS)
def test_a_whole_call(reference: ReferenceEndpoint, api: Api) -> None:
    for call in calls_of(
        reference, api, Schedule(steps=STEPS), Schedule(steps=STEPS)
    ):  # the second one: a warm connection
        assert (call.outcome, call.status, call.error) == (Outcome.OK, 200, None)
        assert (call.tier_asked, call.tier_served, call.model_served) == ("fast", "fast", "reference")
        assert (call.prompt_tokens, call.cached_tokens, call.output_tokens, call.reasoning_tokens) == (10, 4, 14, 0)
        assert (call.text, call.finish_reason) == (WORD * 14, "stop")
        assert sum(chunk.tokens for chunk in call.chunks) == pytest.approx(14)
        assert [chunk.tokens for chunk in call.chunks] == pytest.approx([3, 1, 8, 2])
        assert call.token_source == ("chunks" if api in ("chat", "completions") else "estimated")
        times = [call.intended_s, call.sent_s, call.first_byte_s, call.first_token_s, call.last_token_s, call.done_s]
        assert times == sorted(times, key=lambda t: t or 0.0)
        truth = reference.truth_of(call.response_id)
        assert truth.body["model"] == "reference"
        assert truth.body["service_tier"] == "fast"
    assert call.id == "call-1"
    assert call.tags == {"n": 1}


@pytest.mark.parametrize("api", APIS)
def test_refusals(reference: ReferenceEndpoint, api: Api) -> None:
    for status, outcome in ((429, Outcome.REFUSED), (503, Outcome.REFUSED), (500, Outcome.ERROR), (401, Outcome.ERROR)):
        call, after = calls_of(reference, api, Schedule(refuse=status), Schedule(steps=STEPS))
        assert (call.outcome, call.status) == (outcome, status)
        assert call.error == f"the reference endpoint refuses with {status}"
        assert call.e2e_s is not None
        assert call.first_token_s is None
        assert after.is_ok


@pytest.mark.parametrize("api", APIS)
def test_an_error_in_the_middle(reference: ReferenceEndpoint, api: Api) -> None:
    call, after = calls_of(reference, api, Schedule(steps=STEPS, error_after=2), Schedule(steps=STEPS))
    assert (call.outcome, call.error, call.text) == (Outcome.ERROR, "the reference endpoint fails here", WORD * 4)
    assert after.is_ok


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("steps", [0, 2])
def test_a_connection_that_is_cut(reference: ReferenceEndpoint, api: Api, steps: int) -> None:
    call, after = calls_of(reference, api, Schedule(steps=STEPS, drop_after=steps), Schedule(steps=STEPS))
    assert call.outcome is Outcome.BROKEN
    assert call.error
    assert len(call.chunks) == steps
    assert after.is_ok


@pytest.mark.parametrize("api", APIS)
def test_a_stream_without_an_end(reference: ReferenceEndpoint, api: Api) -> None:
    call, after = calls_of(reference, api, Schedule(steps=STEPS, stop_after=2), Schedule(steps=STEPS))
    wanted = {
        "socket": "the server closed the WebSocket before the response had ended (code 1000)",
    }.get(api, "the stream stopped without an end")
    assert (call.outcome, call.error, call.text) == (Outcome.BROKEN, wanted, WORD * 4)
    assert after.is_ok


@pytest.mark.parametrize("api", APIS)
def test_the_limit_counts_from_the_intended_start(reference: ReferenceEndpoint, api: Api) -> None:
    async def main() -> tuple[Call, Call]:
        async with client_at(reference.url, api, timeout_s=5.0) as (client, clock):
            ask = Ask("Hi", extra=HANGS.asked())
            late = await client.call(ask, id="late", intended_s=clock.now() - 4.8)
            far_too_late = await client.call(ask, id="later", intended_s=clock.now() - 6.0)
            return late, far_too_late

    late, far_too_late = asyncio.run(main())
    assert (late.outcome, late.error, late.text) == (Outcome.TIMEOUT, "no end within 5 s", WORD * 2)
    assert late.e2e_s is not None
    assert 5.0 <= late.e2e_s < 7.0
    assert far_too_late.outcome is Outcome.TIMEOUT
    assert far_too_late.text == ""
    wait_for(lambda: reference.truth_of(late.response_id).left)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("way", ["cancel", "stop"])
def test_stopping_calls(reference: ReferenceEndpoint, api: Api, way: str) -> None:
    async def main() -> list[Call | BaseException]:
        async with client_at(reference.url, api) as (client, _):
            ask = Ask("Hi", extra=HANGS.asked())
            tasks = [asyncio.create_task(client.call(ask, id=str(n))) for n in range(3)]
            await in_flight(1 if api == "socket" else 3)
            if way == "stop":
                client.stop()
            else:
                for task in tasks:
                    task.cancel()
            return await asyncio.gather(*tasks, return_exceptions=True)

    def running() -> list[Truth]:
        return [truth for truth in reference.truths() if truth.ended_s is None and truth.written_s]

    async def in_flight(number: int) -> None:
        await asyncio.to_thread(wait_for, lambda: len(running()) == number)

    ended = asyncio.run(main())
    for call in ended:
        if way == "cancel":
            assert isinstance(call, asyncio.CancelledError)
        else:
            assert isinstance(call, Call)
            assert (call.outcome, call.error) == (Outcome.CANCELLED, "stopped by this client")
            assert call.e2e_s is not None
    wait_for(lambda: not running())


def test_nobody_listens() -> None:
    for api in APIS:

        async def main(api: Api = api) -> Call:
            async with client_at("http://127.0.0.1:9/v1", api) as (client, _):
                return await client.call(Ask("Hi"), id="1")

        call = asyncio.run(main())
        assert (call.outcome, call.status, call.sent_s) == (Outcome.BROKEN, None, None)
        assert call.error
        assert "127.0.0.1" in call.error


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_server_that_refuses_counts_is_asked_without(reference: ReferenceEndpoint, api: Api) -> None:
    strict = Schedule(steps=STEPS, strict=True)
    before = len(reference.truths())
    calls = calls_of(reference, api, strict, strict)
    assert [(call.outcome, call.token_source) for call in calls] == [(Outcome.OK, "estimated")] * 2
    assert len(reference.truths()) - before == 3  # it is remembered


def test_usage_in_other_places(reference: ReferenceEndpoint) -> None:
    at_end, none = calls_of(
        reference, "chat", Schedule(steps=STEPS, usage="end"), Schedule(steps=STEPS, usage="none")
    )  # fmt: skip
    assert (at_end.token_source, at_end.output_tokens) == ("estimated", 14)
    assert [chunk.tokens for chunk in at_end.chunks] == pytest.approx([3, 1, 8, 2])
    assert (none.outcome, none.token_source, none.output_tokens, none.output_speed) == (
        Outcome.OK,
        "unknown",
        None,
        None,
    )


@pytest.mark.parametrize("api", APIS)
def test_a_tokenizer_of_ones_own(reference: ReferenceEndpoint, api: Api) -> None:
    call = call_of(reference, api, Schedule(steps=STEPS), count=lambda text: 2 * len(text.split()))
    assert call.token_source == "recounted"
    assert [chunk.tokens for chunk in call.chunks] == pytest.approx([6, 2, 16, 4])
    assert call.output_tokens == 14  # what is billed


@pytest.mark.parametrize("api", ["chat", "completions", "responses"])
def test_events_that_come_in_two_reads_have_the_time_of_the_second(reference: ReferenceEndpoint, api: Api) -> None:
    call = call_of(reference, api, Schedule(steps=[Step(0, 1), Step(0, 2, cut_s=0.3)]))
    truth = reference.truth_of(call.response_id)
    assert truth.longest_gap_s >= 0.3
    assert call.longest_gap_s == pytest.approx(truth.longest_gap_s, abs=0.1)


@pytest.mark.parametrize("api", APIS)
def test_thoughts_and_calls(reference: ReferenceEndpoint, api: Api) -> None:
    if api == "completions":
        return
    steps = [Step(0, 2, "thought"), Step(0.05, 3), Step(0, 1, "tool")]
    call = call_of(reference, api, Schedule(steps=steps, reasoning_tokens=0))
    assert [chunk.kind for chunk in call.chunks] == ["thought", "answer", "tool"]
    assert (call.thoughts, call.text, call.finish_reason) == (WORD * 2, WORD * 3, "tool_calls")
    assert call.ttfat_s is not None
    assert call.ttft_s is not None
    assert call.ttfat_s > call.ttft_s


def test_a_stall_of_the_server_is_in_the_time_to_first_token(reference: ReferenceEndpoint) -> None:
    async def main() -> list[Call]:
        async with client_at(reference.url) as (client, _):
            reference.stall(after_s=0.0, for_s=0.5)
            ask = Ask("Hi", extra=Schedule(steps=[Step(0, 1)]).asked())
            return await asyncio.gather(*(client.call(ask, id=str(n)) for n in range(3)))

    for call in asyncio.run(main()):
        assert call.ttft_s is not None
        assert 0.3 < call.ttft_s < 5


def test_calls_on_one_socket_wait_for_each_other(reference: ReferenceEndpoint) -> None:
    async def main() -> list[Call]:
        async with client_at(reference.url, "socket") as (client, _):
            ask = Ask("Hi", extra=Schedule(steps=[Step(0.1)]).asked())
            return await asyncio.gather(*(client.call(ask, id=str(n)) for n in range(3)))

    calls = asyncio.run(main())
    assert all(call.is_ok for call in calls)
    lags = [call.lag_s or 0.0 for call in calls]
    assert lags[1] >= 0.1
    assert lags[2] >= 0.2


def test_a_cap_on_connections_makes_calls_late(reference: ReferenceEndpoint) -> None:
    async def main() -> list[Call]:
        async with client_at(reference.url, connections=2) as (client, _):
            ask = Ask("Hi", extra=Schedule(steps=[Step(0.2)]).asked())
            return await asyncio.gather(*(client.call(ask, id=str(n)) for n in range(4)))

    calls = asyncio.run(main())
    assert sorted((call.lag_s or 0.0) >= 0.2 for call in calls) == [False, False, True, True]
    assert all(call.ttft_s and call.ttft_s >= (call.lag_s or 0.0) + 0.2 for call in calls)


async def _answer_with(
    raw: bytes, use: Callable[[str], Awaitable[Call]]
) -> Call:  # fmt: skip
    """What a call makes of a server that answers those bytes and leaves."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        return await use(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("raw", "outcome"),
    [
        (b"", Outcome.BROKEN),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", Outcome.BROKEN),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", Outcome.BROKEN),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n", Outcome.BROKEN),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\ndata: {", Outcome.BROKEN),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000 + b"\r\n\r\n", Outcome.BROKEN),
        (b"HTTP/1.1 307 Elsewhere\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n", Outcome.ERROR),
        (b"HTTP/1.1 502 Bad\r\ncontent-type: text/html\r\ncontent-length: 9\r\n\r\n<p>no</p>", Outcome.ERROR),
        (b"HTTP/1.1 429 Busy\r\ncontent-length: 0\r\n\r\n", Outcome.REFUSED),
    ],
    ids=["nothing", "ssh", "no-stream", "chunks", "short", "header", "redirect", "gateway", "busy"],
)
def test_whatever_answers_there_is_a_record(api: Api, raw: bytes, outcome: Outcome) -> None:
    async def use(url: str) -> Call:
        async with client_at(url, api, timeout_s=10.0) as (client, _):
            return await client.call(Ask("Hi"), id="1")

    call = asyncio.run(_answer_with(raw, use))
    if api == "socket":  # a 200 is a refusal to upgrade, and a redirect is followed
        outcome = {b"HTTP/1.1 200 OK\r\nc": Outcome.ERROR, b"HTTP/1.1 307 Elsew": Outcome.BROKEN}.get(raw[:18], outcome)
    assert call.outcome is outcome, call
    assert call.error
    assert call.done_s is not None


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_tls_with_a_certificate_that_nobody_signed(tmp_path: Path) -> None:
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=localhost"
    subprocess.run([*make.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    async def main() -> list[Call]:
        async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context) as server:
            url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
            calls = []
            for api in ("chat", "socket"):
                async with client_at(url, api) as (client, _):  # type: ignore[arg-type]
                    calls.append(await client.call(Ask("Hi"), id=api))
            return calls

    for call in asyncio.run(main()):
        assert call.outcome is Outcome.BROKEN
        assert "is not trusted" in (call.error or "")


def test_an_answer_beyond_all_bounds() -> None:
    async def use(url: str) -> Call:
        async with client_at(url) as (client, _):
            return await client.call(Ask("Hi"), id="1")

    head = b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n"
    call = asyncio.run(_answer_with(head + (b":" + b" " * 1021 + b"\n\n") * (65 << 10), use))
    assert (call.outcome, call.error) == (Outcome.BROKEN, "the answer is longer than 64 MiB")
