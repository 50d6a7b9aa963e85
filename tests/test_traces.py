"""Traces in their public schemas: read, or refused with the line that is wrong."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ultrafast.errors import ConfigError
from ultrafast.traces import Format, Trace, TraceCall, read_trace

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
NEWER_BURST = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def read(tmp_path: Path, text: str | bytes, **more: object) -> Trace:
    path = tmp_path / "trace"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_trace(path, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("format", "text", "expected"),
    [
        (
            "azure",
            AZURE + "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n",
            [TraceCall(0.0, 374, 44), TraceCall(4.314579, 396, 109)],
        ),
        (
            "azure",  # 2024's
            AZURE + "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:01+00:00,2399,6\n",
            [TraceCall(0.0, 2162, 5), TraceCall(0.99007, 2399, 6)],
        ),
        (
            "burstgpt",
            BURST
            + "5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,0,1087,API log\n118,GPT-4,417,276,693,API log\n",
            [TraceCall(0.0, 472, 18), TraceCall(113.0, 417, 276)],
        ),
        ("burstgpt", NEWER_BURST + "1.5,s1,2.25,GPT-4,10,20,30,API log\n", [TraceCall(0.0, 10, 20)]),
        (
            "mooncake",
            '{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 48]}\n\n'
            '{"timestamp": 30535, "input_length": 600, "output_length": 26, "hash_ids": [46, 12]}\n',
            [TraceCall(0.0, 6955, 52, (46, 47, 48)), TraceCall(3.053, 600, 26, (46, 12))],
        ),
    ],
)
def test_public_schemas_are_read(tmp_path: Path, format: Format, text: str, expected: list[TraceCall]) -> None:
    for said in (None, format):
        trace = read(tmp_path, text, format=said)
        assert trace.format == format
        assert [(c.prompt_tokens, c.output_tokens, c.blocks) for c in trace.calls] == [
            (c.prompt_tokens, c.output_tokens, c.blocks) for c in expected
        ]
        assert [c.start_s for c in trace.calls] == pytest.approx([c.start_s for c in expected], abs=2e-6)


def test_requests_without_an_answer_are_counted_and_left_out(tmp_path: Path) -> None:
    trace = read(tmp_path, BURST + "0,m,1,0,1,x\n1,m,2,0,2,x\n2,m,3,4,7,x\n")
    assert (trace.without_answer, list(trace.calls)) == (2, [TraceCall(0.0, 3, 4)])


def test_rows_out_of_order_are_sorted(tmp_path: Path) -> None:
    trace = read(tmp_path, BURST + "9,m,1,1,2,x\n4,m,2,2,4,x\n")
    assert list(trace.calls) == [TraceCall(0.0, 2, 2), TraceCall(5.0, 1, 1)]


def test_only_the_beginning_is_read(tmp_path: Path) -> None:
    text = BURST + "".join(f"{second},m,1,1,2,x\n" for second in range(10)) + "no,m,1,1,2,x\n"
    assert len(read(tmp_path, text, calls=4).calls) == 4
    assert len(read(tmp_path, text, duration_s=2.5).calls) == 3


def test_lengths_can_be_limited(tmp_path: Path) -> None:
    trace = read(tmp_path, BURST + "0,m,100,9,2,x\n1,m,10,50,2,x\n2,m,10,9,2,x\n").within(64, 16)
    assert [(c.prompt_tokens, c.output_tokens) for c in trace.calls] == [(64, 9), (10, 16), (10, 9)]
    assert trace.shortened == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1: neither JSON lines"),
        ("time,in,out\n1,2,3\n", "line 1: neither JSON lines"),
        (AZURE, "no request with an answer"),
        (AZURE + "yesterday,1,2\n", "line 2: TIMESTAMP 'yesterday' is no time"),
        (AZURE + "2023-11-16 18:15:46,1,2\n2023-11-16 18:15:47,-1,2\n", "line 3: ContextTokens '-1' is no number"),
        (AZURE + "2023-11-16 18:15:46,1\n", "line 2: GeneratedTokens '' is no number"),
        (BURST + "nan,m,1,2,3,x\n", "line 2: Timestamp 'nan' is no number of seconds"),
        (BURST + "1,m,1.5,2,3,x\n", "line 2: Request tokens '1.5' is no number"),
        (BURST + '1,"m,1,2,3,x\n', "line 2: not CSV"),
        ('{"timestamp": 1, "input_length": 1, "output_length": 1}\n{"timestamp": 1}\n', "line 2: no request of a"),
        ('{"timestamp": 1, "input_length": -1, "output_length": 1}\n', "line 1: no request of a Mooncake trace"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str | bytes, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_column_is_missed_when_the_format_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a trace of azure has the column"):
        read(tmp_path, BURST, format="azure")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_trace(tmp_path / "missing")


_LINE = st.one_of(
    st.text(max_size=40),
    st.sampled_from(["0,m,1,2,3,x", "1,m,0,0,0,x", "2023-11-16 18:15:46.1234567,3,4", '"', "\0", "{}", "[" * 2000]),
    st.sampled_from(
        ['{"timestamp": 1, "input_length": 5, "output_length": 6, "hash_ids": [1]}', '{"timestamp": 1e999}']
    ),
)


@settings(max_examples=150, deadline=None)
@given(
    head=st.sampled_from([AZURE, BURST, NEWER_BURST, ""]), lines=st.lists(_LINE, max_size=6), tail=st.binary(max_size=8)
)
def test_any_file_is_a_trace_or_refused(
    tmp_path_factory: pytest.TempPathFactory, head: str, lines: list[str], tail: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed"
    path.write_bytes((head + "\n".join(lines)).encode(errors="replace") + tail)
    for said in (None, "azure", "burstgpt", "mooncake"):
        try:
            trace = read_trace(path, said)  # type: ignore[arg-type]
        except ConfigError:
            continue
        starts = [call.start_s for call in trace.calls]
        assert starts[0] == 0
        assert starts == sorted(starts)
        assert all(call.output_tokens > 0 for call in trace.calls)


SAMPLES = Path(__file__).parent.parent / "examples/traces"


def test_the_samples_are_what_their_generator_writes(tmp_path: Path) -> None:
    runpy.run_path(str(SAMPLES / "make.py"))["main"](tmp_path)
    for name, schema, calls in (
        ("synthetic-azure.csv", "azure", 40),
        ("synthetic-burstgpt.csv", "burstgpt", 36),
        ("synthetic-mooncake.jsonl", "mooncake", 40),
    ):
        assert (SAMPLES / name).read_text() == (tmp_path / name).read_text()
        trace = read_trace(SAMPLES / name)
        assert (trace.format, len(trace.calls), trace.without_answer) == (schema, calls, 40 - calls)
