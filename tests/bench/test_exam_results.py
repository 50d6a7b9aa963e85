"""Figures of an exam against what they are by hand."""

from __future__ import annotations

import math
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ultrafast.bench.client.call import Call, Outcome, ServerTimes
from ultrafast.bench.client.endpoint import Endpoint, Price
from ultrafast.bench.exam import words
from ultrafast.bench.exam.calibration import calibration_error
from ultrafast.bench.exam.comparison import compare
from ultrafast.bench.exam.journal import Answer
from ultrafast.bench.exam.page import page_of
from ultrafast.bench.exam.questions import Question, QuestionSet
from ultrafast.bench.exam.report import comparisons_of, json_lines, lines_of, text_of, to_json
from ultrafast.bench.exam.results import Results, results_of
from ultrafast.bench.exam.setup import Setup
from ultrafast.bench.records import document


def test_calibration_by_hand() -> None:
    # 250 answers: two bins, of 100 and 150. Sure 20 %, right 30 %; sure 80 %, right 50 %.
    confidence = [0.8] * 150 + [0.2] * 100
    correct = [True] * 75 + [False] * 75 + [True] * 30 + [False] * 70
    by_hand = math.sqrt(100 / 250 * 0.1**2 + 150 / 250 * 0.3**2)
    assert calibration_error(confidence, correct) == pytest.approx(by_hand)


def test_calibration_of_few_answers_is_one_bin() -> None:
    assert calibration_error([0.9, 0.1, 0.5], [True, True, False]) == pytest.approx(abs(0.5 - 2 / 3))
    assert calibration_error([1.0], [True]) == 0
    assert math.isnan(calibration_error([], []))


def test_calibration_keeps_the_top_bin() -> None:
    confidence = np.linspace(0, 1, 200)
    correct = np.arange(200) < 100  # right where it is unsure
    low, high = confidence[:100].mean(), confidence[100:].mean()
    assert calibration_error(confidence.tolist(), correct.tolist()) == pytest.approx(
        math.sqrt(((1 - low) ** 2 + high**2) / 2)
    )


def call(start: float, first: float, last: float, text: str = "Answer: 42", **changes: Any) -> Call:
    """A call of 100 tokens."""
    call = Call("q", {}, None, start, start, start, first, first, last, last)
    call.text, call.prompt_tokens, call.output_tokens = text, 50, 100
    for name, value in changes.items():
        setattr(call, name, value)
    return call


def exam(
    arms: dict[str, list[Call]], *, prices: dict[str, Price] | None = None, speed: float = 50.0
) -> tuple[Setup, Any]:
    """Set-up and journal of an exam in which that was answered."""
    count = max(map(len, arms.values()))
    questions = [Question(f"q{number}", "?", "42") for number in range(count)]
    endpoints = [Endpoint("http://h/v1", "m", tier=arm, price=(prices or {}).get(arm)) for arm in arms]
    setup = Setup(QuestionSet("set", "a test", questions, note="A note.", left_out=3), endpoints)
    answers = {
        (arm, f"q{number}"): Answer(f"q{number}", arm, 1 + number // 2, 1, speed * (1 + 9 * (arm == "fast")), one)
        for arm, calls in arms.items()
        for number, one in enumerate(calls)
    }
    sessions = max(answer.session for answer in answers.values())
    return setup, SimpleNamespace(answers=answers, judgements=[], lost=Counter({"slow": 2}), sessions=sessions)


# Each question: slow 1 s to the first token and 9 s of decode; fast 1 s and 0.9 s. One in flight, two sessions of two.
SLOW = [call(0, 1, 10), call(12, 13, 22, "Answer: 41"), call(0, 1, 10), call(12, 13, 22)]
FAST = [call(10, 11, 11.9), call(22, 23, 23.9), call(10, 11, 11.9), call(22, 23, 23.9, "Answer: 43")]


def both() -> tuple[Setup, Results]:
    setup, journal = exam({"slow": SLOW, "fast": FAST})
    return setup, results_of(setup, journal)


def test_wall_time_is_the_sum_of_sessions_and_shared_by_request_time() -> None:
    _, results = both()
    assert results.session_s == pytest.approx([23.9, 23.9])
    assert results.wall_s == pytest.approx(47.8)
    slow, fast = results.arms
    assert slow.request_s == pytest.approx(40)
    assert fast.request_s == pytest.approx(7.6)
    assert slow.held == pytest.approx(47.6 / 47.8)
    assert slow.wall_s + fast.wall_s == pytest.approx(47.8)
    assert slow.decode_share == pytest.approx(0.9)
    assert slow.questions_per_hour == pytest.approx(3600 * 4 / slow.wall_s)
    assert slow.projected_s.value == pytest.approx(2500 * 10 / slow.held)
    assert (slow.input_tokens, slow.output_tokens, slow.cost) == (200, 400, None)
    assert slow.lost == 2


def test_two_arms_by_hand() -> None:
    _, results = both()
    (found,) = comparisons_of(results)
    assert found.ratio.value == pytest.approx(40 / 7.6)
    assert found.ratio.low <= 40 / 7.6 <= found.ratio.high
    assert found.speed_ratio.value == pytest.approx(10)
    assert found.decode_share == pytest.approx(0.9)
    assert found.predicted == pytest.approx(1 / (0.1 + 0.9 / 10))  # which is what was seen
    assert found.other_s == pytest.approx((1, 1))
    assert found.token_ratio.value == pytest.approx(1)
    assert (found.both, found.only_base, found.only_other, found.neither) == (2, 1, 1, 0)
    assert found.p_value == pytest.approx(1)
    assert found.difference.value == pytest.approx(0)


def test_mcnemar_is_exact() -> None:
    wrong = [call(0, 1, 10, "Answer: 1") for _ in range(6)]
    setup, journal = exam({"slow": [call(0, 1, 10) for _ in range(6)], "fast": wrong})
    (found,) = comparisons_of(results_of(setup, journal))
    assert (found.only_base, found.p_value) == (6, pytest.approx(2 * 0.5**6))
    assert found.difference.value == -1


def test_what_failed_is_wrong_and_in_no_ratio() -> None:
    failed = call(24, 25, 26, outcome=Outcome.TIMEOUT, text="Answer: 42")
    setup, journal = exam({"slow": [*SLOW, failed], "fast": FAST})
    results = results_of(setup, journal)
    assert not results.complete
    assert (results.arms[0].accuracy.value, results.arms[0].accuracy.n) == (3 / 5, 5)
    assert results.arms[0].median_s.high == math.inf
    (found,) = comparisons_of(results)
    assert (found.pairs, found.unpaired) == (4, 1)
    assert found.ratio.value == pytest.approx(40 / 7.6)
    text = text_of(setup, results)
    assert "not complete" in text
    assert "slow: 1 of 5 calls have no whole answer, and count as wrong" in text
    assert "1 questions without two whole answers" in text


def test_cost_and_what_the_server_says_of_decode() -> None:
    stated = call(0, 1, 10, server=ServerTimes(decode_s=5.0), cached_tokens=30)
    prices = {"slow": Price(2.0, 10.0, cached_input=0.5), "fast": Price(6.0, 6.0, is_relative=True)}
    setup, journal = exam({"slow": [stated], "fast": [FAST[0]]}, prices=prices)
    slow, fast = results_of(setup, journal).arms
    assert slow.cost == pytest.approx((20 * 2 + 30 * 0.5 + 100 * 10) / 1e6)
    assert (slow.decode_stated, slow.decode_share) == (True, 0.5)
    assert (fast.cost, fast.cost_is_relative, fast.decode_stated) == (6 * 150, True, False)


def test_one_arm_and_none_answered() -> None:
    setup, journal = exam({"slow": SLOW})
    assert "took turns" not in text_of(setup, results_of(setup, journal))
    journal.answers.clear()
    journal.sessions = 0
    results = results_of(setup, journal)
    assert (results.wall_s, results.arms[0].questions) == (0, 0)
    assert "not complete" in text_of(setup, results)
    empty = compare(("a", "b"), [], [])
    assert (empty.pairs, empty.p_value) == (0, 1.0)


def test_what_is_told() -> None:
    setup, results = both()
    text = text_of(setup, results)
    for wanted in (
        "In flight: 1",
        "A note.",
        "3 questions of the set have an image",
        "computed",
        "sum of 2 sessions",
        "slow",
        "fast",
    ):
        assert wanted in text
    assert "5.26 (5.26 to 5.26) times as fast as slow" in text
    doc = document("exam", setup.facts(), to_json(setup, results))
    assert doc["results"]["arms"][0]["accuracy"]["value"] == 0.75
    assert doc["results"]["comparisons"][0]["only_base"] == 1
    assert "rows" not in doc["results"]
    html = page_of(setup, results, doc).html()
    assert "A note." in html
    assert html.count("<svg") == 2
    lines = list(lines_of(results))
    assert len(lines) == 8
    assert json_lines(lines).count(b"\n") == 8
    assert not any("?" in str(line["text"]) for line in lines)  # questions are not in it


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.5, "0.5 s"),
        (59, "59 s"),
        (61, "1 min 01 s"),
        (3599.6, "1 h 00 min"),
        (78.45 * 3600, "78 h 27 min"),
        (math.nan, "–"),
    ],
)
def test_durations(seconds: float, said: str) -> None:
    assert words.duration(seconds) == said
