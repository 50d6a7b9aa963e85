"""Level 5: questions with a known answer, asked of both arms: right as often?"""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ultrafast.bench.client.call import Ask, Call
from ultrafast.bench.verify.arms import Arms, failed
from ultrafast.bench.verify.paired import Pairs, clean_pairs_needed, pairs_needed
from ultrafast.bench.verify.verdict import CONFIDENCE, SHARES, Level, Margins, decide, skipped
from ultrafast.errors import ConfigError

NAME, TITLE = "answers", "Right answers"

_POWER = 0.9


class Question(msgspec.Struct, frozen=True):
    """A question, and the answer that is right: it is looked for at the end of what is answered."""

    question: str
    answer: str


async def answers(arms: Arms, questions: Sequence[Question], *, max_tokens: int, margins: Margins) -> Level:
    """Each question once of the second arm and twice of the first, whose answers differ by chance as well."""
    ways = (arms.first, arms.second, arms.first)
    asks = [(arm, Ask(q.question, max_tokens=max_tokens, temperature=0.0)) for q in questions for arm in ways]
    calls = await arms.ask(NAME, asks)
    rows = [
        [is_right(question, call) for call in row]
        for question, row in zip(questions, (calls[i : i + 3] for i in range(0, len(calls), 3)), strict=True)
        if all(call.is_ok for call in row)
    ]
    if not rows:
        return skipped(NAME, TITLE, failed(calls) or "no questions.")
    first, second, again = zip(*rows, strict=True)
    return _level(Pairs.of(first, second), Pairs.of(first, again), sum(first), sum(second), margins, failed(calls))


def is_right(question: Question, call: Call) -> bool:
    """Whether the answer's last number, or its last words, are the ones wanted; case and punctuation do not count."""
    wanted, given = _plain(question.answer), _plain(call.text)
    if re.fullmatch(r"-?\d+(\.\d+)?", wanted):
        numbers = re.findall(r"-?\d+(?:\.\d+)?", given)
        return bool(numbers) and float(numbers[-1]) == float(wanted)
    return given == wanted or given.endswith(f" {wanted}")


def sums(count: int, seed: int = 0) -> list[Question]:
    """Small sums in words: questions that any model can try, and small ones get wrong at times.

    Raises:
        ConfigError: there are not so many.
    """
    forms = (
        "What is {a} plus {b}? Answer with the number only.",
        "What is {a} minus {b}? Answer with the number only.",
        "Anna has {a} apples and gets {b} more. How many has she? Answer with the number only.",
    )
    numbers = [(form, a, b) for form in range(len(forms)) for a in range(21, 61) for b in range(3, 21)]
    if count > len(numbers):
        raise ConfigError(f"there are {len(numbers)} questions here; give a file with more by --questions-file")
    chosen = random.Random(seed).sample(numbers, count)
    return [Question(forms[form].format(a=a, b=b), str(a - b if form == 1 else a + b)) for form, a, b in chosen]


def questions_of(path: Path) -> list[Question]:
    """The questions of a file: JSON Lines of objects with ``question`` and ``answer``.

    Raises:
        ConfigError: it cannot be read, or a line is something else.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    questions = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            question = msgspec.json.decode(line, type=Question)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"{path}, line {number}: {error}; a line has a question and an answer") from None
        if not question.question.strip() or not _plain(question.answer):
            raise ConfigError(f"{path}, line {number}: question or answer is empty")
        questions.append(question)
    if not questions:
        raise ConfigError(f"{path}: has no questions")
    return questions


def _plain(text: str) -> str:
    """Lower case, without punctuation at the ends of words, single spaces; thousands without commas."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    folded = re.sub(r"(?<=\d)[,_](?=\d{3}\b)", "", folded).replace("−", "-")
    words = (word.strip("\"'“”‘’`*_.,;:!?()[]{}<>$") for word in folded.split())
    return " ".join(word for word in words if word)


def _level(pairs: Pairs, own: Pairs, first: int, second: int, margins: Margins, trouble: str) -> Level:
    margin, share = margins.points / 100, SHARES[NAME]
    low = pairs.lower(CONFIDENCE)
    p = pairs.p_worse()
    within = low > -margin
    needed = max(clean_pairs_needed(margin), pairs_needed(margin, pairs.discordant, power=_POWER))
    words = (
        f"Of {pairs.n} questions the first arm has {first / pairs.n:.1%} right, the second {second / pairs.n:.1%}: "
        f"{pairs.lost} lost, {pairs.won} won; the first against itself {own.lost} and {own.won}. The second is at most "
        f"{-100 * low:.1f} points behind ({margins.points:g} allowed); McNemar's p = {p:.2g} that it is no worse."
    )
    return Level(
        NAME,
        TITLE,
        decide(different=p <= share and not within, within=within),
        f"{words} {trouble}".strip(),
        f"calls equal arms different in at most {share:.1%} of runs; passes an arm that is {margins.points:g} points "
        f"behind in at most {1 - CONFIDENCE:.0%}",
        {"pairs": pairs, "own": own, "lower_bound": low, "margin": -margin, "p_worse": p},
        "" if within else f"{needed:,} questions, for a power of {_POWER:.0%} at this disagreement",
    )
