"""Answers and confidence out of what models write; grading by letter, number and text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ultrafast.bench.exam.answers import read
from ultrafast.bench.exam.grading import choice, grade, is_match, options_in
from ultrafast.bench.exam.questions import Question

ASKED = "What is it?\n\nA. Paris\nB. A dog\nC. Rome\nD. 42"


@pytest.mark.parametrize(
    ("text", "answer", "confidence"),
    [
        ("Explanation: x\nAnswer: B\nConfidence: 90%", "B", 0.9),
        ("**Answer:** B\n**Confidence:** 0.85", "B", 0.85),
        ("Answer: B Confidence: 85%", "B", 0.85),
        ("Answer: B (Confidence: 85%)", "B", 0.85),
        ("### Answer\nB\n\n### Confidence: 7%", "B", 0.07),
        ("Answer:\nNew York\nConfidence: 100%", "New York", 1.0),
        ("My final answer is 42.", "42", None),
        ("Exact Answer: x^2 + 1", "x^2 + 1", None),
        ("So we get $\\boxed{\\frac{3}{4}}$.", "\\frac{3}{4}", None),
        ("Thus the answer is Paris. It lies on the Seine.", "Paris", None),
        ("Paris", "Paris", None),
        ("The capital of Japan is Tokyo.", "Tokyo", None),
        ("Answer: A\nno, wait\nAnswer: B", "B", None),
        ("<think>Answer: C\nConfidence: 1%</think>Answer: D\nConfidence (0-100%): 70", "D", 0.7),
        ("<think>Answer: C", None, None),
        ("Answer: {B}\nConfidence level: 9/10", "B", 0.9),
        ("Answer: <b>\nConfidence: 85 percent", "b", 0.85),
        ("Answer:\nConfidence: 90%", None, 0.9),
        ("I do not know.\nIt may be one of them.", None, None),
        ("Confidence: from 0% to 100%", None, None),  # what was asked for, echoed
        ("Confidence: 90-95%", None, None),
        ("Confidence: 150%", None, None),
        ("Confidence: high", None, None),
        ("Confidence: 1", None, 0.01),
        ("Confidence: 1.0", None, 1.0),
        ("", None, None),
    ],
)
def test_what_is_read_of_a_text(text: str, answer: str | None, confidence: float | None) -> None:
    reply = read(text)
    assert (reply.answer, reply.confidence) == (answer, pytest.approx(confidence))


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("B", "B"),
        ("b", "B"),
        ("(B)", "B"),
        ("b)", "B"),
        ("**B**", "B"),
        ("B. A dog", "B"),
        ("B) something else", "B"),
        ("B (A dog)", "B"),
        ("B - because A is wrong", "B"),
        ("Option C", "C"),
        ("C: Rome", "C"),
        ("Rome.", "C"),
        ("rome", "C"),
        ("A dog", "B"),  # the text of an option, and no letter A
        ("A", "A"),
        ("42", "D"),
        ("A dog barks", None),
        ("A or B", None),
        ("A, B", None),
        ("A. Paris or B. A dog", None),
        ("A and not B", None),
        ("E", None),
        ("Madrid", None),
        ("", None),
    ],
)
def test_which_choice_an_answer_makes(answer: str, letter: str | None) -> None:
    assert choice(answer, ASKED) == letter


def test_options_are_those_from_a_on() -> None:
    assert options_in(ASKED) == {"A": "Paris", "B": "A dog", "C": "Rome", "D": "42"}
    assert options_in("(A) one\n(B) two") == {"A": "one", "B": "two"}
    assert options_in("I. am\nno list") == {}
    assert choice("I", "no options at all") == "I"


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("42", "42"),
        ("42.0", "42"),
        ("3.14159", "3.14"),
        ("3.14", "3.14159"),
        ("1,234.5", "1234.5"),
        ("1 234", "1234"),
        ("3/4", "0.75"),
        ("\\frac{3}{4}", "0.75"),
        ("$42$", "42"),
        ("x = 4", "4"),
        ("42 km", "42"),
        ("7 days in a week", "7"),
        ("1.5 × 10^3", "1500"),
        ("1.5e3", "1500"),
        ("10^6", "1,000,000"),
        ("50%", "0.5"),
        ("0.5", "50%"),
        ("50", "50%"),
        ("−5", "-5"),
        ("eight", "8"),
        ("100°C", "100"),
        ("3.14 (approximately)", "3.14"),
        ("the moon.", "The Moon"),
        ("**Tokyo**", "Tokyo"),
        ("x^2 + 1", "x^2+1"),
        ("\\text{yes}", "Yes"),
        ("well known", "well-known"),
    ],
)
def test_one_answer_written_two_ways(answer: str, reference: str) -> None:
    assert is_match(answer, reference)


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("41.99", "42"),
        ("3.1", "3.14"),
        ("5", "-5"),
        ("42 or 43", "42"),
        ("4, 5", "4"),
        ("42 ± 1", "42"),
        ("between 4 and 5", "4"),
        ("42 km", "42 kg"),
        ("2 = 2", "2"),
        ("2+2", "2"),
        ("12:30", "12"),
        ("1/0", "1"),
        ("1e999", "5"),
        ("7 is wrong", "7"),
        ("x21", "x^2+1"),
        ("not Tokyo", "Tokyo"),
        ("Tokyo or Kyoto", "Tokyo"),
        ("", "42"),
        ("", ""),
        ("500", "50%"),
    ],
)
def test_answers_that_are_not_the_same(answer: str, reference: str) -> None:
    assert not is_match(answer, reference)


def test_grades() -> None:
    by_letter = Question("q", ASKED, "(B)", "multipleChoice")
    by_text = Question("q", ASKED, "all of them", "multipleChoice")  # a few sets have such answers
    exact, task = Question("q", "?", "42"), Question("q", "Write a report.", "", "open")
    assert grade(by_letter, "Answer: b\nConfidence: 70%").correct is True
    assert grade(by_letter, "Answer: C").correct is False
    assert grade(by_letter, "").answer is None
    assert grade(by_text, "Answer: All of them.").correct is True
    assert grade(exact, "Answer: 42").confidence is None
    assert grade(exact, "I cannot tell\nwhat it is").correct is False
    assert (grade(task, "A report.").correct, grade(task, "A report.").by) == (None, "nobody")


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=300), st.text(max_size=60))
def test_any_text_is_graded(text: str, reference: str) -> None:
    for kind in ("exactMatch", "multipleChoice"):
        found = grade(Question("q", ASKED, reference or "x", kind), text)  # type: ignore[arg-type]
        assert found.correct in (True, False)
        assert found.confidence is None or 0 <= found.confidence <= 1


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet="*_`#$\\{}()[]<>., ABor=0123456789%/\n", max_size=200))
def test_any_marks_are_graded(text: str) -> None:
    for label in ("Answer: ", "Confidence: ", ""):
        read(label + text)
        choice(label + text, ASKED)
        is_match(label + text, "3.5 km")


@pytest.mark.parametrize(
    "piece", ["confidence ", "Answer: ", "\\boxed{", "<think>", "A or ", "(", "$", "1 ", "* ", "\n", "is "]
)
def test_a_model_that_loops_is_read_soon(piece: str) -> None:
    """Answers of 8,000 tokens of the same: what takes their square would take minutes."""
    for text in (piece * 8000, f"Answer:{piece * 8000}x", f"confidence{piece * 8000}"):
        read(text)
        choice(text, ASKED)
        is_match(text, "42")
        options_in(text)
