"""The journal of an exam: every answer as soon as it is there, in a file that outlives a kill and is gone on with.

The first line holds the set-up; others tell of a session that begins, a question that is asked, an answer, a judgement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from filelock import FileLock, Timeout
from msgspec import ValidationError, convert

from ultrafast.bench.client.call import Call
from ultrafast.bench.records import CallLog, call_from_json, call_to_json, plain, read_log
from ultrafast.errors import ConfigError

_FORMAT, _VERSION = "ultrafast-exam-journal", 1

Key = tuple[str, str]
"""Arm and question."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer.

    Attributes:
        session: number of the session, whose clock its times are on.
        attempts: how often it was tried; more than once where the server had no capacity or the connection failed.
        speed: `Call.output_speed`, for which chunks are needed, that the journal does not keep.
    """

    question: str
    arm: str
    session: int
    attempts: int
    speed: float | None
    call: Call


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a judge said of an answer; `judge` tells which judge, asked in which words."""

    question: str
    arm: str
    judge: str
    correct: bool
    answer: str | None
    confidence: float | None
    reasoning: str


class Journal:
    """An open journal, which nobody else may open meanwhile; a context manager.

    Attributes:
        answers: those that are there.
        judgements: likewise, by any judge.
        lost: calls that were under way when a session ended, by arm: nobody knows what came of them.
        sessions: how many there were.

    Args:
        facts: `Setup.facts`.

    Raises:
        ConfigError: another run has it, it is of another set-up, or no journal.
    """

    def __init__(self, path: Path, facts: Mapping[str, Any]) -> None:
        self.path = path
        self.answers: dict[Key, Answer] = {}
        self.judgements: list[Judgement] = []
        self.sessions = 0
        self._asked: Counter[Key] = Counter()
        self._lock = FileLock(f"{path}.lock")
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise ConfigError(f"{path}: another run is writing to it; wait for it, or name another --journal") from None
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
        try:
            self._log = self._opened(plain(facts))
        except ConfigError:
            self._lock.release()
            raise

    @property
    def lost(self) -> Counter[str]:
        return Counter(arm for arm, question in (self._asked - Counter(self.answers.keys())).elements())

    def begin(self, started_at: str) -> None:
        """A session begins."""
        self.sessions += 1
        self._log.append({"session": self.sessions, "started_at": started_at})

    def asking(self, arm: str, question: str) -> None:
        """A question is about to be asked."""
        self._asked[arm, question] += 1
        self._log.append({"asking": question, "arm": arm})

    def add(self, arm: str, question: str, attempts: int, call: Call) -> None:
        """It was answered."""
        kept = replace(call, chunks=())
        answer = Answer(question, arm, self.sessions, attempts, call.output_speed, kept)
        self.answers[arm, question] = answer
        self._log.append({**plain({**_fields(answer), "call": None}), "call": call_to_json(kept)})

    def judge(self, judgement: Judgement) -> None:
        """An answer was judged."""
        self.judgements.append(judgement)
        self._log.append({"judged": plain(judgement)})

    def close(self) -> None:
        self._log.close()
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _opened(self, facts: dict[str, Any]) -> CallLog:
        lines = read_log(self.path) if self.path.exists() else []
        if lines:
            self._check(lines[0], facts)
        for number, line in enumerate(lines[1:], 2):
            try:
                self._take(line)
            except (KeyError, TypeError, ValueError, ValidationError, ConfigError) as error:
                raise ConfigError(f"{self.path}, line {number}: no line of a journal: {error!s:.200}") from None
        log = CallLog(self.path)
        if not lines:
            log.append({"format": _FORMAT, "version": _VERSION, "setup": facts})
        return log

    def _check(self, head: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        if head.get("format") != _FORMAT or not isinstance(setup := head.get("setup"), dict):
            raise ConfigError(f"{self.path}: not the journal of an exam; name another file with --journal")
        if head.get("version") != _VERSION:
            raise ConfigError(
                f"{self.path}: version {head.get('version')!r} of the journal; this program has {_VERSION}"
            )
        names = sorted({*setup, *facts})
        wrong = [
            f"{name} {setup.get(name)!r} there, {facts.get(name)!r} here"
            for name in names
            if setup.get(name) != facts.get(name)
        ]
        if wrong:
            raise ConfigError(
                f"{self.path} is of another exam ({'; '.join(wrong)}): use the same options to go on with it, "
                "or name another --journal"
            )

    def _take(self, line: Mapping[str, Any]) -> None:
        if "call" in line:
            answer = convert({**line, "call": None}, _Line)
            call = call_from_json(line["call"])
            self.answers[answer.arm, answer.question] = Answer(
                answer.question, answer.arm, answer.session, answer.attempts, answer.speed, call
            )
        elif "asking" in line:
            asked = convert(line, _Asking)
            self._asked[asked.arm, asked.asking] += 1
        elif "judged" in line:
            self.judgements.append(convert(line["judged"], Judgement))
        else:
            self.sessions = convert(line["session"], int)


@dataclass(frozen=True, slots=True)
class _Line:
    """An answer but for its call."""

    question: str
    arm: str
    session: int
    attempts: int
    speed: float | None


@dataclass(frozen=True, slots=True)
class _Asking:
    asking: str
    arm: str


def _fields(answer: Answer) -> dict[str, Any]:
    return {name: getattr(answer, name) for name in ("question", "arm", "session", "attempts", "speed")}
