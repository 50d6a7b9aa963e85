"""What a run found, for a terminal and as a page."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from ultrafast.bench.verify.verdict import ALPHA, Level, Verdict, overall
from ultrafast.report.page import Page, Tone

_TONES: Mapping[Verdict, Tone] = {Verdict.PASS: "good", Verdict.FAIL: "bad"}
_WIDTH = 110


def summary(levels: Sequence[Level], what: str) -> str:
    """The verdict in words, with how often such words are wrong.

    Args:
        what: is compared: ``default and ultrafast of smollm2-135m``.
    """
    verdict = overall(levels)
    tested = [level.title.lower() for level in levels if level.verdict is Verdict.PASS]
    failing = [level.title.lower() for level in levels if level.verdict is Verdict.FAIL]
    open_ones = [level.title.lower() for level in levels if level.verdict is Verdict.UNDERPOWERED]
    match verdict:
        case Verdict.FAIL:
            words = f"{what}: a difference is shown by {', '.join(failing)}."
        case Verdict.PASS:
            words = f"{what}: no difference beyond the margins in {', '.join(tested)}."
        case _:
            shown = f"; within the margins: {', '.join(tested)}" if tested else ""
            words = (
                f"{what}: no difference is shown, and none is ruled out by {', '.join(open_ones) or 'anything'}{shown}."
            )
    return (
        f"{verdict}: {words} Arms that are the same are called different in at most {ALPHA:.0%} of such runs; what "
        "lies beyond a margin passes its level in at most 5 %, unless the level says otherwise."
    )


def text(levels: Sequence[Level], what: str) -> str:
    """All of it, for a terminal."""
    blocks = [_filled(summary(levels, what), "")]
    for level in levels:
        blocks.append(f"{level.verdict:12} {level.title}\n{_filled(level.words, '  ')}")
        if level.verdict is Verdict.UNDERPOWERED:
            blocks[-1] += "\n" + _filled(f"To decide: {level.needed}.", "  ")
    return "\n\n".join(blocks)


def page(levels: Sequence[Level], what: str, facts: Mapping[str, str]) -> Page:
    """The same as a page.

    Args:
        facts: of the set-up, by name.
    """
    built = Page("The same model?", facts).verdict(summary(levels, what), _TONES.get(overall(levels), "neutral"))
    rows = [[level.title, str(level.verdict), level.error_rates] for level in levels]
    built.table(["level", "verdict", "how often it is wrong"], rows)
    for level in levels:
        built.section(f"{level.title}: {level.verdict}").text(level.words)
        if level.verdict is Verdict.UNDERPOWERED:
            built.text(f"To decide: {level.needed}.")
    return built


def results(levels: Sequence[Level]) -> dict[str, Any]:
    """For a document."""
    return {"verdict": overall(levels), "false_alarms_at_most": ALPHA, "levels": levels}


def _filled(words: str, indent: str) -> str:
    return textwrap.fill(words, _WIDTH, initial_indent=indent, subsequent_indent=indent)
