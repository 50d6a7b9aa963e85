"""Detokenisation: pieces add up to the whole, cut at the first stop string, and never hold half a character."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.vocabulary import bpe_metadata, spm_metadata
from ultrafast.models.detokenize import Detokenizer
from ultrafast.models.tokenizer import Tokenizer

BPE = Tokenizer.from_gguf(bpe_metadata())
SPM = Tokenizer.from_gguf(spm_metadata())
BYTES = {BPE.token_bytes(i): i for i in range(BPE.vocab_size) if len(BPE.token_bytes(i)) == 1}


def byte_tokens(data: bytes) -> list[int]:
    return [BYTES[bytes([byte])] for byte in data]


def first_stop(text: str, stops: list[str]) -> int | None:
    """Where the text must be cut, found by looking at every prefix in turn."""
    for end in range(1, len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return min(starts)
    return None


tokenizers = st.sampled_from([BPE, SPM])
stops_of = st.lists(st.text("abA \n", min_size=1, max_size=4) | st.sampled_from(["aab", "👍", "e\u0301"]), max_size=3)


@settings(deadline=None)  # the machine may be busy
@given(tokenizers, st.data(), stops_of)
def test_pieces_add_up_to_the_whole_text_cut_at_the_first_stop(
    tokenizer: Tokenizer, data: st.DataObject, stops: list[str]
) -> None:
    words = st.text("abA \n👍é\u200d", max_size=8).map(tokenizer.encode)
    anything = st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=4)
    ids = [i for part in data.draw(st.lists(words | anything, max_size=6)) for i in part]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=5)))
    detokenizer = Detokenizer(tokenizer, stops)
    text, used, stopped = "", 0, False
    for start, end in zip([0, *cuts], [*cuts, len(ids)], strict=True):
        pushed = detokenizer.push(ids[start:end])
        text += pushed.text
        used += pushed.num_tokens
        assert not (stopped and pushed.text)
        stopped = pushed.stopped
    whole = tokenizer.decode(ids, skip_special=True)
    cut = first_stop(whole, stops)
    assert text + detokenizer.flush() == whole[:cut]
    if stopped:
        assert cut is not None
        assert first_stop(tokenizer.decode(ids[:used], skip_special=True), stops) == cut
        assert first_stop(tokenizer.decode(ids[: used - 1], skip_special=True).rstrip("\ufffd"), stops) is None
    else:
        assert used == len(ids)


@settings(deadline=None)
@given(st.binary(max_size=30))
def test_invalid_utf8_is_replaced_as_in_the_whole(data: bytes) -> None:
    detokenizer = Detokenizer(BPE)
    text = "".join(detokenizer.push([token]).text for token in byte_tokens(data))
    assert text + detokenizer.flush() == data.decode("utf-8", "replace")


@pytest.mark.parametrize("text", ["👍", "👨‍👩‍👧‍👦", "🇩🇪🇫🇷", "汉", "e\u0301"])
def test_a_character_comes_when_it_is_whole(text: str) -> None:
    detokenizer = Detokenizer(BPE)
    pieces = [detokenizer.push([token]).text for token in byte_tokens(text.encode())]
    assert [piece for piece in pieces if piece] == list(text)
    assert detokenizer.flush() == ""


def test_an_unfinished_character_becomes_one_replacement_character() -> None:
    detokenizer = Detokenizer(BPE)
    assert detokenizer.push(byte_tokens("👍".encode()[:3])).text == ""
    assert detokenizer.flush() == "\ufffd"


@pytest.mark.parametrize(
    ("text", "stops", "expected", "used"),
    [
        ("xxO P Qyy", ["O P Q"], "xx", 7),  # over many tokens
        ("aaab", ["aab"], "a", 4),  # a failed start that is also a start
        ("xabcd", ["abc", "ab"], "x", 3),  # the shorter is complete first
        ("xabcd", ["abcd", "bc"], "xa", 4),  # complete first, though it starts later
        ("xabc", ["bc", "abc"], "x", 4),  # complete together: the longer
        ("ab", ["ab"], "", 2),
    ],
)
def test_the_first_complete_stop_ends_the_text(text: str, stops: list[str], expected: str, used: int) -> None:
    ids = byte_tokens(text.encode())
    for step in (1, 2, len(ids)):
        detokenizer = Detokenizer(BPE, stops)
        pieces = [detokenizer.push(ids[i : i + step]) for i in range(0, len(ids), step)]
        assert "".join(piece.text for piece in pieces) + detokenizer.flush() == expected
        assert sum(piece.num_tokens for piece in pieces) == used
        assert pieces[-1].stopped
        assert detokenizer.push(ids) == ("", 0, True)


def test_text_that_cannot_become_a_stop_any_more_is_released_at_once() -> None:
    detokenizer = Detokenizer(BPE, ["abc"])
    assert [detokenizer.push([token]).text for token in byte_tokens(b"xababd")] == ["x", "", "", "ab", "", "abd"]


def test_a_stop_that_never_came_is_given_at_the_end() -> None:
    detokenizer = Detokenizer(BPE, ["abc"])
    assert detokenizer.push(byte_tokens(b"xab")).text == "x"
    assert detokenizer.flush() == "ab"
    assert detokenizer.flush() == ""


def test_a_stop_may_end_with_a_replacement_character() -> None:
    detokenizer = Detokenizer(BPE, ["b\ufffd"])
    assert detokenizer.push(byte_tokens(b"ab\xf0")).text == "a"
    assert detokenizer.flush() == ""


def test_control_tokens_give_no_text_and_do_not_break_a_stop() -> None:
    detokenizer = Detokenizer(BPE, ["ab"])
    pushed = detokenizer.push([*byte_tokens(b"xa"), 1, *byte_tokens(b"b")])
    assert pushed == ("x", 4, True)


def test_sentencepiece_drops_one_space_at_the_start_only() -> None:
    detokenizer = Detokenizer(SPM)
    ids = SPM.encode("  the world")
    assert "".join(detokenizer.push([token]).text for token in [1, *ids]) == "  the world"
    assert SPM.decode(SPM.encode(" a") + SPM.encode("b")) == " a b"
