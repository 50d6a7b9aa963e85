"""Asking: every question once in every arm, so many in flight; what a journal remembers; judging."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.exam_server import ExamServer, Said, exam_server
from ultrafast.bench.client.endpoint import Endpoint
from ultrafast.bench.exam.journal import Journal
from ultrafast.bench.exam.judge import judge_all, name_of
from ultrafast.bench.exam.questions import Kind, Question, QuestionSet
from ultrafast.bench.exam.results import Results, results_of
from ultrafast.bench.exam.run import ask_all
from ultrafast.bench.exam.setup import Setup
from ultrafast.bench.exam.words import grading_note
from ultrafast.errors import ConfigError, ServerError

IDS = [f"q{number:02}" for number in range(8)]
TIERS = ("default", "ultrafast")


def setup_of(url: str, *, kind: Kind = "exactMatch", tiers: Sequence[str | None] = TIERS, **changes: Any) -> Setup:
    questions = [Question(name, f"What is [{name}]?", "42", kind) for name in IDS]
    endpoints = [Endpoint(url, "examinee", tier=tier) for tier in tiers]
    return Setup(QuestionSet("set", "a test", questions), endpoints, **changes)


def run(setup: Setup, path: Path, *, pauses_s: Sequence[float] = (0.0,)) -> list[tuple[str, int, int]]:
    shown: list[tuple[str, int, int]] = []
    with Journal(path, setup.facts()) as journal:
        asyncio.run(ask_all(setup, journal, lambda *step: shown.append(step), pauses_s=pauses_s))
    return shown


def results(setup: Setup, path: Path, judge: str | None = None) -> Results:
    with Journal(path, setup.facts()) as journal:
        return results_of(setup, journal, judge)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def only(name: str, said: Said) -> Callable[[dict[str, Any]], Said]:
    return lambda body: said if f"[{name}]" in str(body["messages"]) else Said()


def test_every_question_once_in_every_arm_in_one_order(tmp_path: Path) -> None:
    with exam_server() as server:
        setup = setup_of(server.url, max_tokens=77, temperature=0.0, reasoning_effort="low", seed=5)
        shown = run(setup, tmp_path / "j")
        run(setup, tmp_path / "j")
        bodies = server.bodies[len(TIERS) :]
        assert server.asked(IDS) == {(tier, name): 1 for tier in TIERS for name in IDS}
    asked = [next(name for name in IDS if f"[{name}]" in str(body["messages"])) for body in bodies]
    assert asked[::2] == asked[1::2] == IDS  # the second arm follows the first with the same question
    first = [body["service_tier"] for body in bodies[::2]]
    assert set(first) == set(TIERS)  # now this arm comes first, now that one
    assert {(b["max_tokens"], b["temperature"], b["reasoning_effort"], b["seed"]) for b in bodies} == {
        (77, 0, "low", 5)
    }
    assert [(done, total) for _, done, total in shown] == [(n, 16) for n in range(1, 17)]


def test_so_many_in_flight(tmp_path: Path) -> None:
    together, most, now = threading.Barrier(4, timeout=20), 0, 0
    lock = threading.Lock()

    def say(body: dict[str, Any]) -> Said:
        nonlocal most, now
        if "opposite" in str(body["messages"]):
            return Said()
        with lock:
            now += 1
            most = max(most, now)
        together.wait()  # 24 calls in fours: fewer at a time would never meet
        with lock:
            now -= 1
        return Said()

    with exam_server(say) as server:
        setup = setup_of(server.url, tiers=("a", "b", "c"), concurrency=4)
        run(setup, tmp_path / "j")
    assert most == 4
    assert 1 < results(setup, tmp_path / "j").arms[0].held <= 4


def test_a_journal_of_another_exam_is_refused_and_says_why(tmp_path: Path) -> None:
    path = tmp_path / "j"
    Journal(path, setup_of("http://127.0.0.1:1/v1").facts()).close()
    other = setup_of("http://127.0.0.1:1/v1", concurrency=4, max_tokens=10)
    with pytest.raises(ConfigError, match=r"concurrency 1 there, 4 here; max_tokens 2048 there, 10 here") as raised:
        Journal(path, other.facts())
    assert "--journal" in str(raised.value)
    Journal(path, setup_of("http://127.0.0.1:1/v1").facts()).close()  # the refusal has let go of the lock


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a": 1}\n', "not the journal of an exam"),
        ('{"format": "ultrafast-exam-journal", "version": 9, "setup": {}}\n', "version 9"),
        ("[]\n[]\n", "line 1"),
    ],
)
def test_no_journal(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "j").write_text(content)
    with pytest.raises(ConfigError, match=message):
        Journal(tmp_path / "j", setup_of("http://127.0.0.1:1/v1").facts())
    assert (tmp_path / "j").read_text() == content


def test_a_line_that_is_none_of_a_journal(tmp_path: Path) -> None:
    facts = setup_of("http://127.0.0.1:1/v1").facts()
    Journal(tmp_path / "j", facts).close()
    head = (tmp_path / "j").read_text()
    for line in ('{"call": {}, "question": 1}', '{"judged": {}}', '{"asking": "q"}', "{}", '{"session": "x"}'):
        (tmp_path / "j").write_text(f"{head}{line}\n")
        with pytest.raises(ConfigError, match="line 2: no line of a journal"):
            Journal(tmp_path / "j", facts)


def test_two_runs_do_not_share_a_journal(tmp_path: Path) -> None:
    facts = setup_of("http://127.0.0.1:1/v1").facts()
    with Journal(tmp_path / "j", facts), pytest.raises(ConfigError, match="another run is writing to it"):
        Journal(tmp_path / "j", facts)


def test_a_journal_torn_anywhere_goes_on_from_the_last_whole_answer(tmp_path: Path) -> None:
    with exam_server() as server:
        setup = setup_of(server.url)
        run(setup, tmp_path / "j")
        whole = (tmp_path / "j").read_bytes()
        *before, last = whole.splitlines(keepends=True)
        for cut in range(1, len(last) - 1, 97):
            (tmp_path / "j").write_bytes(b"".join(before) + last[:cut])
            with Journal(tmp_path / "j", setup.facts()) as journal:
                assert len(journal.answers) == 15
                assert sum(journal.lost.values()) == 1
        asked = len(server.bodies)
        run(setup, tmp_path / "j")
        assert len(server.bodies) == asked + len(TIERS) + 1
    kept = [line for line in lines(tmp_path / "j") if "call" in line]
    assert sorted((line["arm"], line["question"]) for line in kept) == sorted((t, i) for t in TIERS for i in IDS)
    assert results(setup, tmp_path / "j").session_s[1] > 0


def test_what_may_pass_is_tried_again_and_what_does_not_is_an_outcome(tmp_path: Path) -> None:
    refusals = iter([Said(status=503), Said(cut=True), Said()])

    def say(body: dict[str, Any]) -> Said:
        match next(name for name in (*IDS, "") if not name or f"[{name}]" in str(body["messages"])):
            case "q00":
                return next(refusals)
            case "q01":
                return Said(status=429)
            case "q02":
                return Said(status=400)
            case "q03":
                return Said(stalls=True)
        return Said()

    with exam_server(say) as server:
        setup = setup_of(server.url, tiers=["default"], timeout_s=1.0)
        run(setup, tmp_path / "j", pauses_s=(0.0, 0.0, 0.0))
        assert [server.asked(IDS)["default", name] for name in IDS[:5]] == [3, 4, 1, 1, 1]
    (arm,) = results(setup, tmp_path / "j").arms
    assert arm.outcomes == {"ok": 5, "refused": 1, "error": 1, "timeout": 1}
    assert arm.retried == 2
    assert (arm.accuracy.value, arm.accuracy.n) == (5 / 8, 8)  # what failed is wrong


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_request_that_no_question_would_survive_ends_it_before_the_first(tmp_path: Path, status: int) -> None:
    with exam_server(lambda body: Said(status=status)) as server:
        with pytest.raises(ServerError, match="nothing is asked yet"):
            run(setup_of(server.url), tmp_path / "j")
        assert not server.asked(IDS)


def test_an_endpoint_that_goes_away_loses_nothing(tmp_path: Path) -> None:
    with exam_server(only("q03", Said(status=401))) as server:
        setup = setup_of(server.url, concurrency=2)
        with pytest.raises(ServerError, match="the same command goes on"):
            run(setup, tmp_path / "j")
        done = {(line["arm"], line["question"]) for line in lines(tmp_path / "j") if "call" in line}
        assert 0 < len(done) < 16
        server.say = lambda body: Said()
        run(setup, tmp_path / "j")
        asked = server.asked(IDS)
        assert all(asked[key] == 1 for key in done)
    assert results(setup, tmp_path / "j").complete


def judged(server: ExamServer, text: str) -> Callable[[dict[str, Any]], Said]:
    return lambda body: Said(text) if "response_format" in body else Said()


def test_judged_answers(tmp_path: Path) -> None:
    verdict = {"extracted_final_answer": "42", "reasoning": "they agree", "correct": "yes", "confidence": 60}

    def say(body: dict[str, Any]) -> Said:
        prompt = str(body["messages"])
        if "response_format" not in body:
            return Said("It is forty-two.")
        if "[q00]" in prompt:
            return Said(json.dumps({**verdict, "correct": "no", "confidence": None}))
        if "[q01]" in prompt:
            return Said("yes, it is correct")  # not what the schema says
        if "[q02]" in prompt:
            return Said(json.dumps({**verdict, "confidence": 900}))
        return Said(json.dumps(verdict))

    with exam_server(say) as server:
        setup = setup_of(server.url, tiers=["default"])
        run(setup, tmp_path / "j")
        judge = Endpoint(server.url, "judge")
        for _ in range(2):
            with Journal(tmp_path / "j", setup.facts()) as journal:
                work = judge_all(
                    setup.questions.questions, judge, journal, lambda *step: None, concurrency=2, pauses_s=()
                )
                asyncio.run(work)
        asks = [body for body in server.bodies if "response_format" in body]
    assert asks[0]["response_format"]["json_schema"]["strict"] is True
    assert asks[0]["model"] == "judge"
    assert len(asks) == 8 + 1 + 2  # a judgement that is none is asked for twice, and by each run
    (arm,) = (whole := results(setup, tmp_path / "j", name_of(judge))).arms
    grades = {row.question.id: row.grade for row in whole.rows["default"]}
    assert (grades["q00"].correct, grades["q00"].by, grades["q00"].confidence) == (False, "judge", None)
    assert (grades["q01"].correct, grades["q01"].by) == (False, "missing")  # which counts as wrong
    assert (grades["q02"].correct, grades["q02"].confidence) == (True, None)
    assert (grades["q03"].correct, grades["q03"].answer, grades["q03"].confidence) == (True, "42", 0.6)
    assert (arm.missing, arm.accuracy.value, arm.calibration_n) == (1, 6 / 8, 5)
    assert f"judged by judge at {judge.base_url}" in grading_note(whole)
    assert "comparing numbers and text" in grading_note(results(setup, tmp_path / "j"))
    assert results(setup, tmp_path / "j").arms[0].accuracy.value == 0  # without the judge it is graded here


def test_what_a_judge_is_not_asked(tmp_path: Path) -> None:
    with exam_server(lambda body: Said("Answer: A") if "[q00]" not in str(body) else Said(" ")) as server:
        setup = setup_of(server.url, tiers=["default"], kind="multipleChoice")
        run(setup, tmp_path / "j")
        asked = len(server.bodies)
        with Journal(tmp_path / "j", setup.facts()) as journal:
            judge = Endpoint(server.url, "judge")
            work = judge_all(setup.questions.questions, judge, journal, lambda *step: None, concurrency=1)
            asyncio.run(work)
        assert len(server.bodies) == asked


def test_tasks_without_an_answer_are_timed_and_not_graded(tmp_path: Path) -> None:
    with exam_server() as server:
        setup = setup_of(server.url, tiers=[None], kind="open")
        run(setup, tmp_path / "j")
        assert server.bodies[-1]["messages"][0]["content"] == "What is [q07]?"
        assert "service_tier" not in server.bodies[-1]
    (arm,) = results(setup, tmp_path / "j").arms
    assert (arm.ungraded, arm.accuracy.n, arm.outcomes) == (8, 0, {"ok": 8})
    assert arm.wall_s > 0


def test_images_are_sent_as_parts(tmp_path: Path) -> None:
    pixel = "data:image/png;base64,iVBORw0KGgo="
    question = Question("q00", "What is [q00]?", "42", image=pixel)
    with exam_server() as server:
        endpoint = Endpoint(server.url, "examinee", tier="default")
        run(Setup(QuestionSet("set", "a test", [question]), [endpoint], images=True), tmp_path / "j")
        text, image = server.bodies[-1]["messages"][0]["content"]
    assert "[q00]" in text["text"]
    assert image == {"type": "image_url", "image_url": {"url": pixel}}
