"""Whatever is in a file, loading ends soon, in bounded memory, with a model or a ModelFileError."""

from __future__ import annotations

import contextlib
import random
import struct
import time
import tracemalloc
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Type
from hypothesis import given, settings
from hypothesis import strategies as st

from support import gguf_bytes as raw
from support.tiny import write_tiny_model
from ultrafast.errors import ModelFileError
from ultrafast.models.gguf import GgufFile
from ultrafast.models.shape import ModelShape
from ultrafast.models.tokenizer import Tokenizer

NUM_CASES = 10_000
NUM_TRACED = 300  # tracing memory makes everything some ten times slower
MAX_CASE_S = 2.0  # an ordinary case takes 2 ms; the rest is for a busy machine
MAX_CASE_BYTES = 16 << 20  # the file has 33 kB

INTERESTING = [0, 1, 2, 3, 31, 32, 64, 255, 256, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1]


def load(path: Path) -> None:
    """All that reads a file before the engine does."""
    with GgufFile(path) as file:
        for name in file.tensors:
            assert file.data(name).nbytes == file.tensors[name].nbytes
        ModelShape.from_gguf(file)
        Tokenizer.from_gguf(file.metadata, str(path))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("fuzz") / "whole.gguf"
    types = {"attn_k": Type.Q5_0, "attn_v": Type.Q5_1, "ffn_down": Type.Q4_K}
    return write_tiny_model(path, hidden=32, heads=2, kv_heads=1, ffn=256, layers=1, types=types).read_bytes()


@pytest.fixture(scope="module")
def spots(whole: bytes) -> list[int]:
    """Where the structure of the header is: around the keys and around the tensor names, not amid the vocabulary."""
    marks = [b"general.", b"llama.", b"tokenizer.", b"blk.", b"output_norm", b"token_embd"]
    found = {0, 8, 16}
    for mark in marks:
        start = whole.find(mark)
        while start >= 0:
            found.update(range(start - 8, start + 64, 4))
            start = whole.find(mark, start + 1)
    return sorted(found)


def mutate(rng: random.Random, whole: bytes, spots: list[int]) -> bytes:
    """One to four random changes: bits, whole integers, cuts, insertions, copies of other parts of the file."""
    data = bytearray(whole)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = min(
            rng.choice(spots) + rng.randrange(4) if rng.random() < 0.7 else rng.randrange(len(data)), len(data) - 8
        )
        kind = rng.randrange(7)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.randrange(256)
        elif kind == 2:
            struct.pack_into("<Q", data, at, rng.choice(INTERESTING))
        elif kind == 3:
            struct.pack_into("<I", data, at, rng.choice(INTERESTING) & 0xFFFFFFFF)
        elif kind == 4:
            del data[at : at + rng.choice((1, 4, 8, 100))]
        elif kind == 5:
            source = rng.choice(spots)
            data[at:at] = data[source : source + rng.choice((4, 8, 40))]
        else:
            del data[max(at, 24) :]
    return bytes(data)


def test_ten_thousand_mutated_headers(tmp_path: Path, whole: bytes, spots: list[int]) -> None:
    path = tmp_path / "mutated.gguf"
    path.write_bytes(whole)
    load(path)
    rng = random.Random(23)
    refused = 0
    for case in range(NUM_CASES):
        path.write_bytes(mutate(rng, whole, spots))
        start = time.perf_counter()
        try:
            load(path)
        except ModelFileError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"case {case} raised {error!r}") from error
        assert time.perf_counter() - start < MAX_CASE_S, f"case {case}"
    # Both outcomes must be common, or the mutations reach only one layer of the code.
    assert NUM_CASES * 0.3 < refused < NUM_CASES * 0.95


def test_memory_stays_bounded(tmp_path: Path, whole: bytes, spots: list[int]) -> None:
    path = tmp_path / "mutated.gguf"
    rng = random.Random(42)
    tracemalloc.start()
    try:
        for case in range(NUM_TRACED):
            path.write_bytes(mutate(rng, whole, spots))
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            with contextlib.suppress(ModelFileError):
                load(path)
            assert tracemalloc.get_traced_memory()[1] - before < MAX_CASE_BYTES, f"case {case}"
    finally:
        tracemalloc.stop()


value = st.one_of(
    st.tuples(st.integers(0, 13), st.binary(max_size=24)),
    st.builds(lambda text: (raw.STRING, raw.string(text)), st.binary(max_size=12)),
    st.builds(
        lambda element, count, payload: (raw.ARRAY, raw.array(element, payload, count)),
        st.integers(0, 13),
        st.one_of(st.integers(0, 5), st.integers(0, 2**64 - 1)),
        st.binary(max_size=40),
    ),
)
pairs = st.lists(st.builds(lambda key, value: raw.pair(key, *value), st.binary(max_size=8), value), max_size=4)
tensors = st.lists(
    st.builds(
        raw.tensor,
        st.binary(max_size=8),
        st.lists(st.one_of(st.integers(0, 64), st.integers(0, 2**64 - 1)), max_size=6),
        st.integers(0, 45),
        st.one_of(st.integers(0, 8).map(lambda blocks: blocks * 32), st.integers(0, 2**64 - 1)),
    ),
    max_size=4,
)


@settings(max_examples=500, deadline=None)
@given(pairs=pairs, tensors=tensors, data=st.binary(max_size=300), tail=st.integers(0, 40))
def test_generated_files(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[bytes], tensors: list[bytes], data: bytes, tail: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "generated.gguf"
    content = raw.gguf(pairs, tensors, data)
    path.write_bytes(content[: len(content) - tail])
    problem = ""
    try:
        load(path)
    except ModelFileError as error:
        problem = str(error)
    assert problem.isprintable()  # one line, and no terminal codes out of the file
