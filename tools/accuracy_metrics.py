"""How far one set of logits is from another. For the tools and tests/test_golden.py; needs numpy only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

MARGIN = 0.005
"""Top-1 minus top-2 logit below which the reference's own choice is a tie that rounding may turn."""

Logits = npt.NDArray[np.float32]
LogitsOf = Callable[[list[int]], Logits]
"""Token ids to the next-token logits after each of them, [n, vocab]."""


class Divergence(NamedTuple):
    """Candidate against reference, over the positions of one text."""

    positions: int
    mean_kl: float  # nats, KL(reference || candidate) over the whole vocabulary
    max_kl: float
    top1: float  # share of positions with the same most likely token
    max_difference: float  # largest absolute difference of a logit


class Miss(NamedTuple):
    """A greedy step at which the candidate's most likely token is not the golden one."""

    prompt: str
    step: int
    margin: float  # of the reference, at this step
    expected: int
    actual: int


def divergence(reference: Logits, candidate: Logits) -> Divergence:
    """Compare logits [n, vocab], in float64 and row by row, because the full arrays are large."""
    if reference.shape != candidate.shape:
        raise ValueError(f"reference is {reference.shape}, candidate is {candidate.shape}")
    kl = np.array([_kl(*rows) for rows in zip(reference, candidate, strict=True)])
    same = np.argmax(reference, axis=1) == np.argmax(candidate, axis=1)
    difference = max(float(np.abs(a - b).max()) for a, b in zip(reference, candidate, strict=True))
    return Divergence(len(kl), float(kl.mean()), float(kl.max()), float(same.mean()), difference)


def greedy_misses(prompt: Mapping[str, Any], logits_of: LogitsOf) -> Iterator[Miss]:
    """The golden tokens are fed in, so that one miss cannot cause the next; yields every step that disagrees."""
    golden = prompt["greedy_ids"]
    logits = logits_of([*prompt["prompt_ids"], *golden[:-1]])[len(prompt["prompt_ids"]) - 1 :]
    for step, (expected, row) in enumerate(zip(golden, logits, strict=True)):
        if (actual := int(row.argmax())) != expected:
            yield Miss(prompt["name"], step, prompt["margins"][step], expected, actual)


def measure(
    engine: str, logits_of: LogitsOf, references: Mapping[str, Logits], prompts: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The figures of one engine.

    Args:
        references: by name, logits of the prompt named ``long_text`` to compare with.
        prompts: the golden ones.

    Returns:
        ``engine``; ``against``: by reference the fields of `Divergence`; ``greedy_steps``, ``greedy_equal`` (same most
        likely token), ``greedy_wrong`` (another, although the golden margin exceeds `MARGIN`) and ``misses``.
    """
    long_ids = next(prompt["prompt_ids"] for prompt in prompts if prompt["name"] == "long_text")
    logits = logits_of(long_ids)
    misses = [miss for prompt in prompts for miss in greedy_misses(prompt, logits_of)]
    steps = sum(len(prompt["greedy_ids"]) for prompt in prompts)
    return {
        "engine": engine,
        "against": {name: divergence(reference, logits)._asdict() for name, reference in references.items()},
        "greedy_steps": steps,
        "greedy_equal": steps - len(misses),
        "greedy_wrong": sum(miss.margin > MARGIN for miss in misses),
        "misses": [miss._asdict() for miss in misses],
    }


def table(rows: Sequence[Mapping[str, Any]], reference: str) -> str:
    """A markdown table of what `measure` returned, against one of its references."""
    lines = [
        "| engine | mean KL | max KL | top-1 agreement | largest logit difference "
        "| greedy tokens equal | of the rest, no near-ties |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        figures = row["against"][reference]
        lines.append(
            f"| {row['engine']} | {figures['mean_kl']:.1e} | {figures['max_kl']:.1e} | {figures['top1']:.2%} "
            f"| {figures['max_difference']:.1e} | {row['greedy_equal']} / {row['greedy_steps']} "
            f"| {row['greedy_wrong']} |"
        )
    return "\n".join(lines)


def _kl(reference: Logits, candidate: Logits) -> float:
    log_p, log_q = _log_softmax(reference), _log_softmax(candidate)
    return float(np.sum(np.exp(log_p) * (log_p - log_q)))


def _log_softmax(logits: Logits) -> npt.NDArray[np.float64]:
    shifted = logits.astype(np.float64) - float(logits.max())
    normalized: npt.NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum())
    return normalized
