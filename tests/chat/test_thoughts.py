"""Thoughts are told apart from the answer, however the text is split."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.answers import cut, parse
from ultrafast.chat.answer import PlainParser
from ultrafast.chat.calls import CallParser
from ultrafast.chat.syntax import HERMES
from ultrafast.chat.thoughts import ThoughtParser
from ultrafast.types import (
    AnswerEnd,
    CallArguments,
    CallBegin,
    CallEnd,
    FinishReason,
    Piece,
    Text,
    Thought,
    TokenDelta,
    TokenLogprob,
)


def plain(text: str, *, begun: bool = False, finish: FinishReason = FinishReason.STOP) -> list[Piece]:
    """The pieces of an answer, the same for every size of parts; of the end no more than the reason."""
    results = [
        parse(ThoughtParser(PlainParser(), begun=begun), cut(text, size), finish)
        for size in (1, 2, 3, 9, len(text) or 1)
    ]
    results = [[*pieces, AnswerEnd(end.reason)] for *pieces, end in results if isinstance(end, AnswerEnd)]
    assert len(results) == 5
    assert all(result == results[0] for result in results)
    return results[0]


STOP, LENGTH = AnswerEnd("stop"), AnswerEnd("length")
CASES = [
    ("", False, [STOP]),
    ("Hi.\n", False, [Text("Hi.\n"), STOP]),
    ("\n <b>", False, [Text("\n <b>"), STOP]),
    ("<thin", False, [Text("<thin"), STOP]),
    ("So <think>no</think>", False, [Text("So <think>no</think>"), STOP]),
    ("<think>\nHm.\n\nOh </b>!\n</think>\n\nHi.", False, [Thought("Hm.\n\nOh </b>!"), Text("Hi."), STOP]),
    ("\n<think>Hm.</think>Hi.", False, [Thought("Hm."), Text("Hi."), STOP]),
    ("<think>\n\n</think>\n\nHi.", False, [Text("Hi."), STOP]),
    ("<think>a</think> <think>b</think>", False, [Thought("a"), Text(" <think>b</think>"), STOP]),
    ("Hm.\n</think>\n\nHi.", True, [Thought("Hm."), Text("Hi."), STOP]),
    ("Hm. </thi", True, [Thought("Hm. </thi"), STOP]),
    ("Hm.\n", True, [Thought("Hm."), STOP]),
    ("Hm. <</think>", True, [Thought("Hm. <"), STOP]),
]


@pytest.mark.parametrize(("text", "begun", "pieces"), CASES)
def test_thoughts_come_first(text: str, begun: bool, pieces: list[Piece]) -> None:
    assert plain(text, begun=begun) == pieces
    assert plain(text, begun=begun, finish=FinishReason.LENGTH) == [*pieces[:-1], LENGTH]


def test_calls_in_thoughts_are_thoughts() -> None:
    call = '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>'
    parser = ThoughtParser(CallParser(HERMES, {"add"}, streams=True), begun=False)
    pieces = parse(parser, f"<think>\nMaybe {call}?\n</think>\n\n{call}")
    assert pieces[:-1] == [Thought(f"Maybe {call}?"), CallBegin("add"), CallArguments("{}"), CallEnd()]
    assert isinstance(pieces[-1], AnswerEnd)
    assert pieces[-1].reason == "tool_calls"


def reasoning_tokens(parts: list[str], *, begun: bool = False) -> int:
    end = parse(ThoughtParser(PlainParser(), begun=begun), parts)[-1]
    assert isinstance(end, AnswerEnd)
    return end.reasoning_tokens


def test_reasoning_tokens_are_counted() -> None:
    assert reasoning_tokens(["<think>", "\n", "Hm", ".", "\n", "</think>", "\n\n", "Hi", "."]) == 7
    assert reasoning_tokens(["Hm", "</think>", "Hi"], begun=True) == 2
    assert reasoning_tokens(["Hm", "."], begun=True) == 2
    assert reasoning_tokens(["\n", "<thi", "s>", "Hi"]) == 0
    parser = ThoughtParser(PlainParser(), begun=True)
    burst = TokenDelta("abcd</think>efgh", list(range(8)), None, FinishReason.STOP, "x")
    assert parser.push(burst) == [Thought("abcd"), Text("efgh"), AnswerEnd("stop", "x", 6)]


def test_logprobs_go_with_the_answer() -> None:
    entries = [TokenLogprob(token, -1.0) for token in range(9)]
    parser = ThoughtParser(PlainParser(), begun=False)
    assert parser.push(TokenDelta("<th", [0], entries[:1])) == []
    assert parser.push(TokenDelta("is>", [1], entries[1:2])) == [Text("<this>", entries[:2])]
    assert parser.push(TokenDelta("!", [2], entries[2:3])) == [Text("!", entries[2:3])]
    parser = ThoughtParser(PlainParser(), begun=True)
    assert parser.push(TokenDelta("Hm", [0], entries[:1])) == [Thought("Hm")]
    assert parser.push(TokenDelta("</think>", [1], entries[1:2])) == []
    assert parser.push(TokenDelta("Hi", [2], entries[2:3])) == [Text("Hi", entries[2:3])]


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<", "/", "think>", "\n", " ", "a", "é"]), max_size=20).map(
        "".join
    ),
    st.integers(1, 5),
    st.booleans(),
)
def test_any_text_in_any_parts(text: str, size: int, begun: bool) -> None:
    pieces = parse(ThoughtParser(PlainParser(), begun=begun), cut(text, size))
    whole = parse(ThoughtParser(PlainParser(), begun=begun), [text])
    assert pieces[:-1] == whole[:-1]
    if not any(isinstance(piece, Thought) for piece in pieces) and not begun and "<think>" not in text[:30]:
        assert pieces[:-1] == ([Text(text)] if text else [])
