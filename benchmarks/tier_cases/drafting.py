"""Figures of the same answer with drafts and without."""

from __future__ import annotations

from dataclasses import dataclass

from tier_cases.figures import Figure, Findings, Statistic, Target

ROUNDS = 7
_FEWEST_TOKENS = 32  # of an answer whose speed means something
_KINDS = (
    ("rewrite", "rewriting a file, given as prediction too", Target(">=", 2.0)),
    ("rewrite_context", "rewriting a file, given in the prompt only", None),
    ("quote", "quoting a log", Target(">=", 2.0)),
    ("json", "reformatting JSON", Target(">=", 2.0)),
    ("fresh", "text that never repeats", Target(">=", 0.98)),
)


def _figures(key: str, title: str, target: Target | None) -> tuple[Figure, ...]:
    return (
        Figure(f"{key}_plain", f"{title}: plain", "tokens/s"),
        Figure(f"{key}_drafted", "  with drafts", "tokens/s"),
        Figure(f"{key}_ratio", "  times plain", "", target),
        Figure(f"{key}_accepted", "  draft tokens accepted, to 100 of the answer", "%"),
        Figure(f"{key}_rejected", "  draft tokens rejected, to 100 of the answer", "%"),
    )


FIGURES = (
    *(figure for kind in _KINDS for figure in _figures(*kind)),
    Figure("changed", "answers that depend on drafts", "count", Target("<=", 0, Statistic.SUM)),
    Figure("short", f"answers of fewer than {_FEWEST_TOKENS} tokens, which are left out", "count"),
)


@dataclass(frozen=True, slots=True)
class Said:
    """One answer: what it is, text or token ids; its tokens and their speed; the draft tokens on the way."""

    content: str | list[int]
    tokens: int
    tokens_per_s: float
    accepted: int
    rejected: int


def compare(found: Findings, key: str, *, plain: Said, drafted: Said) -> None:
    """Add the samples of one pair."""
    found.add("changed", (plain.content, plain.tokens) != (drafted.content, drafted.tokens))
    found.add("short", plain.tokens < _FEWEST_TOKENS)
    if plain.tokens < _FEWEST_TOKENS:
        return
    found.add(f"{key}_plain", plain.tokens_per_s)
    found.add(f"{key}_drafted", drafted.tokens_per_s)
    found.add(f"{key}_ratio", drafted.tokens_per_s / plain.tokens_per_s)
    found.add(f"{key}_accepted", drafted.accepted / drafted.tokens)
    found.add(f"{key}_rejected", drafted.rejected / drafted.tokens)
