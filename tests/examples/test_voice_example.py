"""The voice budget: figures of a published table, when speech starts and waits, and a call that is interrupted."""

from __future__ import annotations

import argparse
import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.endpoint import endpoints, options
from examples.voice import call as conversation
from examples.voice.budget import (
    CLAUSE_TOKENS,
    Pipeline,
    first_clause_s,
    play,
    speech_tokens_per_s,
    thinking_tokens,
    tokens_in,
)
from examples.voice.call import INTERRUPTED, RECORDED, Turn, call
from support.client_servers import answering
from support.scripted_engine import ScriptedEngine
from support.served import served

TABLE = {0.1: (6, 75), 0.2: (12, 150), 0.3: (18, 225), 0.5: (30, 375), 0.8: (48, 600), 1.5: (90, 1125)}


@pytest.mark.parametrize("window_s", TABLE)
def test_tokens_of_a_window(window_s: float) -> None:
    assert (tokens_in(window_s, 60), tokens_in(window_s, 750)) == TABLE[window_s]


def test_the_first_token_takes_its_part_of_the_window() -> None:
    assert (tokens_in(0.3, 60, ttft_s=0.15), tokens_in(0.3, 750, ttft_s=0.15)) == (9, 112)
    assert tokens_in(0.1, 750, ttft_s=0.2) == 0


def test_speech_is_slow() -> None:
    assert speech_tokens_per_s(1.25) == pytest.approx(3.125)
    assert speech_tokens_per_s(1.67) == pytest.approx(4.175)
    assert 60 / speech_tokens_per_s(1.67) == pytest.approx(14.4, abs=0.1)
    assert 60 / speech_tokens_per_s(1.25) == pytest.approx(19.2, abs=0.1)


def test_a_clause_is_part_of_the_budget() -> None:
    assert thinking_tokens(0.3, 750, ttft_s=0.15) == 112 - CLAUSE_TOKENS
    assert thinking_tokens(0.3, 60, ttft_s=0.15) == 9 - CLAUSE_TOKENS


def test_the_pipeline_leaves_the_rest() -> None:
    pipeline = Pipeline(endpointing_s=0.3, transcript_s=0.1, voice_s=0.1, network_s=0.1)
    assert pipeline.window_s(0.8) == pytest.approx(0.2)
    assert pipeline.window_s(0.5) == 0.0


def test_a_clause_ends_with_punctuation_or_twelve_tokens() -> None:
    assert first_clause_s([(0.1, "Good"), (0.2, " day,"), (0.3, " you")], [1, 3, 4]) == 0.2
    assert first_clause_s([(0.1, "Good day"), (0.2, " to you all")], [2, 12]) == 0.2
    assert first_clause_s([(0.1, "Good day"), (0.2, " to you")], [2, 11]) is None
    assert first_clause_s([], []) is None


def test_a_voice_that_has_its_words_in_time_never_waits() -> None:
    playback = play([(0.0, "one two "), (0.5, "three four")], 0.0, words_per_minute=120)
    assert playback.underruns == []
    assert playback.end_s == pytest.approx(2.0)


def test_a_voice_waits_for_the_word_that_is_late() -> None:
    playback = play([(0.0, "one two "), (3.0, "three four")], 0.0, words_per_minute=120)
    assert playback.underruns == [(pytest.approx(1.0), pytest.approx(2.0))]
    assert playback.end_s == pytest.approx(4.0)


def test_a_word_in_two_pieces_is_there_with_its_second() -> None:
    playback = play([(0.0, "one tw"), (3.0, "o three")], 0.0, words_per_minute=60)
    assert playback.underruns == [(pytest.approx(1.0), pytest.approx(2.0))]
    assert playback.end_s == pytest.approx(5.0)


@given(st.lists(st.tuples(st.floats(0, 5), st.text("ab ", max_size=8)), max_size=20))
def test_a_playback_is_its_words_and_its_silences(gaps: list[tuple[float, str]]) -> None:
    at, pieces = 0.0, []
    for gap, text in gaps:
        at += gap
        pieces.append((at, text))
    playback = play(pieces, 0.0)
    words = len("".join(text for _, text in pieces).split())
    assert playback.end_s == pytest.approx(words * 0.4 + sum(length for _, length in playback.underruns))
    assert play([(at, text) for at, text in pieces], at).underruns == []  # who waits for all never runs dry


def asked(url: str) -> argparse.Namespace:
    return options("x", "y").parse_args(["--url", url, "--tier", "ultrafast"])


def test_every_turn_goes_on_from_the_same_words() -> None:
    async def main(url: str) -> list[Turn]:
        async with endpoints(asked(url)) as (endpoint,):
            return await call(endpoint, Pipeline(), max_tokens=40, detection_s=0.0)

    with answering("Yes, of course we have a room. It has a view of the sea.") as server:
        turns = asyncio.run(main(server.url))
        prompts = [bytes(r.prompt_ids).decode() for r in server.loop.engine.requests]  # type: ignore[attr-defined]
    assert len(turns) == len(RECORDED)
    assert [turn.barge_in is not None for turn in turns] == [number == INTERRUPTED for number in range(len(RECORDED))]
    assert all(prompts[number].startswith(prompts[number - 1]) for number in range(1, len(prompts)))
    around = Pipeline().before_s + Pipeline().after_s
    for turn in turns:
        assert turn.ttft_s is not None
        assert turn.silence_s is not None
        assert turn.silence_s >= around + turn.ttft_s
        assert turn.text.startswith("Yes,")


def test_who_interrupts_ends_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine has said a clause, and more comes as slowly as it may: only a cancel ends the turn."""
    monkeypatch.setattr(conversation, "RECORDED", RECORDED[:1])
    monkeypatch.setattr(conversation, "INTERRUPTED", 0)
    engine = ScriptedEngine("Yes, of course we do.", paced=True)

    async def main(url: str) -> list[Turn]:
        async with endpoints(asked(url)) as (endpoint,):
            return await call(endpoint, Pipeline(), max_tokens=12, detection_s=0.05)

    with served(engine) as server:
        engine.allow(len("Yes, o"))
        (turn,) = asyncio.run(main(server.url))
        server.wait_for(lambda stats: stats["running"] == 0)
        assert engine.snapshot().lanes[0].cancelled == 1
    assert turn.text == "Yes, o"
    assert turn.tokens_per_s is None
    assert turn.barge_in is not None
    assert turn.barge_in.tokens == 6
    assert turn.barge_in.silent_s >= 0.05
