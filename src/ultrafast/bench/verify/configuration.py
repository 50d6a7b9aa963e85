"""Level 0: what an endpoint says of itself, and whether it does what it is told. Read and tried, not inferred."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ultrafast.bench.client.call import Ask, Call
from ultrafast.bench.verify.arms import Arm, Arms, answer_of, failed, require_answers
from ultrafast.bench.verify.verdict import Level, Verdict, decide

NAME, TITLE = "configuration", "Configuration"

TOP_LOGPROBS = 5  # the most that every API takes
_REPEATS = 6
_PROMPT = "Write the first sentence of a story about a lighthouse."
_SHORT, _LONG = 4, 24  # tokens
_VARIED = 3  # different texts of `_REPEATS` that show that sampling takes place


@dataclass(frozen=True, slots=True)
class Probe:
    """What was found of one arm.

    Attributes:
        models, fingerprints, tiers: all that its answers stated.
        limits: whether `max_tokens` was kept to.
        stops: whether a stop string ended the text; ``None`` where it could not be tried.
        greedy, sampled: different texts among `_REPEATS`, at temperature 0 and 1.
        logprobs: whether it gives them.
    """

    models: Sequence[str]
    fingerprints: Sequence[str]
    tiers: Sequence[str]
    limits: bool
    stops: bool | None
    greedy: int
    sampled: int
    logprobs: bool
    errors: str


async def probe(arms: Arms, arm: Arm) -> Probe:
    """Try an arm out.

    Raises:
        ServerError: it does not answer at all.
    """
    plain = Ask(_PROMPT, max_tokens=_LONG, temperature=0.0)
    first = await arms.ask(NAME, [(arm, plain)] * 2)
    require_answers(arm, first)
    text = answer_of(next(call for call in first if call.is_ok))
    stop = _word_within(text)
    asks = [
        Ask(_PROMPT, max_tokens=_SHORT, temperature=0.0),
        Ask(_PROMPT, max_tokens=_LONG, temperature=0.0, top_logprobs=TOP_LOGPROBS),
        Ask(_PROMPT, max_tokens=_LONG, temperature=0.0, extra={"stop": [stop]} if stop else {}),
        *[plain] * (_REPEATS - 2),
        *(Ask(_PROMPT, max_tokens=_LONG, temperature=1.0, seed=1000 + i) for i in range(_REPEATS)),
    ]
    calls = await arms.ask(NAME, [(arm, ask) for ask in asks])
    short, chances, stopped = calls[:3]
    greedy = [*first, *calls[3 : 1 + _REPEATS]]
    sampled = calls[1 + _REPEATS :]
    everything = [*first, *calls]
    return Probe(
        _said([call.model_served for call in everything]),
        _said([call.fingerprint for call in everything]),
        _said([call.tier_served for call in everything]),
        _is_limited(short),
        stop not in stopped.text if stop and stopped.is_ok else None,
        len({answer_of(call) for call in greedy if call.is_ok}),
        len({answer_of(call) for call in sampled if call.is_ok}),
        chances.is_ok and len(chances.logprobs) > 0 and any(token.top for token in chances.logprobs),
        failed([call for call in everything if call is not chances]),
    )


async def configuration(arms: Arms) -> tuple[Level, bool]:
    """The level, and whether both arms give log-probabilities."""
    first, second = await probe(arms, arms.first), await probe(arms, arms.second)
    differences = list(_differences(arms, first, second))
    undone = [f"{arm.name}: {p.errors}" for arm, p in ((arms.first, first), (arms.second, second)) if p.errors]
    verdict = decide(different=bool(differences), within=not undone)
    words = "; ".join(differences or undone or ["nothing that the arms say or do differs"])
    notes = "; ".join(_notes(first, second))
    level = Level(
        NAME,
        TITLE,
        verdict,
        f"{words}. {notes}." if notes else f"{words}.",
        "read off the answers, not inferred",
        {"first": first, "second": second},
        "all calls answered" if verdict is Verdict.UNDERPOWERED else "",
    )
    return level, first.logprobs and second.logprobs


def _differences(arms: Arms, first: Probe, second: Probe) -> Sequence[str]:
    found = []
    if arms.same_model and first.models and second.models and set(first.models) != set(second.models):
        found.append(f"the answers name different models: {_listed(first.models)} and {_listed(second.models)}")
    for what, one, other in (
        ("max_tokens", first.limits, second.limits),
        ("stop", first.stops, second.stops),
        ("temperature", _obeys_temperature(first), _obeys_temperature(second)),
    ):
        if None not in (one, other) and one != other:
            found.append(f"only the {'first' if one else 'second'} arm does what {what} says")
    return found


def _notes(first: Probe, second: Probe) -> Sequence[str]:
    notes = []
    if first.fingerprints and second.fingerprints and set(first.fingerprints) != set(second.fingerprints):
        notes.append("their fingerprints differ, as those of other machines may")
    if not (first.limits or second.limits):
        notes.append("neither keeps to max_tokens")
    if _obeys_temperature(first) is False and _obeys_temperature(second) is False:
        notes.append("neither obeys temperature: what is asked as samples or as greedy may be neither")
    if first.logprobs != second.logprobs:
        notes.append("only one of them gives log-probabilities")
    return notes


def _obeys_temperature(found: Probe) -> bool | None:
    """``None``: cannot be told, because texts that vary may vary for another reason, or a sure text does not."""
    if found.sampled >= _VARIED:
        return True if found.greedy < found.sampled else None
    return False if found.sampled == 1 else None


def _is_limited(call: Call) -> bool:
    return not call.is_ok or call.output_tokens is None or call.output_tokens <= _SHORT


def _word_within(text: str) -> str:
    """A word from the middle of a text, which ends it when it is told to stop there."""
    words = [word for word in text.split()[1:-1] if len(word) > 2]
    return words[len(words) // 2] if words else ""


def _said(values: Sequence[str | None]) -> list[str]:
    return sorted({value for value in values if value is not None})


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
