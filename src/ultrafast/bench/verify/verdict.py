"""What a level of the ladder says, and what all of them say together.

Three answers, never two: a difference is shown (FAIL), no difference larger than the margin is left (PASS), or neither
(UNDERPOWERED). Tests of difference decide FAIL; intervals against margins that were fixed beforehand decide PASS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

ALPHA = 0.05
"""How often two arms of the same model may be called different, over all levels of a run together."""

SHARES: Mapping[str, float] = {
    "greedy": 0.005,
    "logprobs": 0.005,
    "samples": 0.02,
    "behaviour": 0.01,
    "answers": 0.005,
    "tier": 0.005,
}
"""How `ALPHA` is spent: each level has its share whatever the others say (Bonferroni), so that a run may stop at the
first FAIL. Samples get most, since only they see what greedy decoding does not. Configuration has none: it is read, not
inferred."""

CONFIDENCE = 0.95
"""Of the one-sided bounds that PASS rests on: beyond its margin, an arm passes a level in at most 5 % of runs."""


@dataclass(frozen=True, slots=True)
class Margins:
    """The largest differences that still count as the same model, fixed before the run.

    Attributes:
        points: percentage points of accuracy, of right and valid tool calls, of equal finish reasons.
        agreement: share of equal characters that two sampled texts, one of each arm, may lack against two of one arm.
        top1: share of tokens at which greedy decoding may differ beyond what an arm differs from itself. Of an 8B
            model, 8-bit weights move 0.8 % of tokens and 5-bit ones 3.5 %
            (https://huggingface.co/eaddario/Watt-Tool-8B-GGUF).
        tie: nats by which the odds of two tokens may move between the arms where they part, and still be called a tie.
            Logits between 16 and 32 in bfloat16 are 0.125 apart: one step in each arm moves odds by up to 0.25.
        kl: nats a token. On the same model 8-bit weights have 0.00024 and 5-bit ones 0.0047.
        commonness: standard deviations by which sampled texts may be made of more common pieces in one arm.
        length: share by which answers may be longer or shorter (MLPerf Inference allows 90 to 110 % of the tokens).
    """

    points: float = 2.0
    agreement: float = 0.005
    top1: float = 0.02
    tie: float = 0.3
    kl: float = 0.002
    commonness: float = 0.2
    length: float = 0.1


class Verdict(StrEnum):
    """What a level, or a run, says."""

    PASS = "PASS"
    FAIL = "FAIL"
    UNDERPOWERED = "UNDERPOWERED"
    SKIPPED = "SKIPPED"

    @property
    def exit_code(self) -> int:
        """Of the command, for a whole run."""
        return {Verdict.PASS: 0, Verdict.FAIL: 3}.get(self, 4)


@dataclass(frozen=True, slots=True)
class Level:
    """One level's answer.

    Attributes:
        name: as in `SHARES`; ``configuration``; or of the local mode.
        words: one sentence or two, for people.
        error_rates: how often such a verdict is wrong.
        figures: what was measured, for documents and tables.
        needed: what more it takes to decide, where it is UNDERPOWERED.
    """

    name: str
    title: str
    verdict: Verdict
    words: str
    error_rates: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)
    needed: str = ""


def decide(*, different: bool, within: bool) -> Verdict:
    """Of a test of difference and of bounds against the margin; a shown difference wins."""
    if different:
        return Verdict.FAIL
    return Verdict.PASS if within else Verdict.UNDERPOWERED


def overall(levels: Sequence[Level]) -> Verdict:
    """FAIL where any level fails, else UNDERPOWERED where any is, else PASS; skipped ones say nothing."""
    verdicts = {level.verdict for level in levels} - {Verdict.SKIPPED}
    for verdict in (Verdict.FAIL, Verdict.UNDERPOWERED):
        if verdict in verdicts:
            return verdict
    # Configuration alone says nothing of behaviour.
    tested = any(level.verdict is Verdict.PASS and level.name != "configuration" for level in levels)
    return Verdict.PASS if tested else Verdict.UNDERPOWERED


def skipped(name: str, title: str, why: str) -> Level:
    """A level that was not tested."""
    return Level(name, title, Verdict.SKIPPED, why)
