"""Tokens of a mesh against those of the engine's plain fp32 path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ultrafast.engine.engine import Engine
from ultrafast.wafer.mesh.run import Simulation, Step

MARGIN = 0.1
"""Top-1 minus top-2 logit of the reference below which its choice is a near-tie that 16 bits may turn.

Logits of 16 to 32 are 1/64 apart in 16 bits, and sums of a few such roundings come on top; what the tests of the engine
call a near-tie, in 32 bits, is 0.005."""


@dataclass(frozen=True)
class Checked:
    """The tokens after one prompt, compared with the reference's.

    Attributes:
        tokens: the mesh's. Where it decides a near-tie otherwise, both go on from the reference's token.
        expected: the reference's.
        margins: of the reference, at each.
        noise: the largest difference of a logit.
        last: the last token, and its time.
    """

    tokens: Sequence[int]
    expected: Sequence[int]
    margins: Sequence[float]
    noise: float
    last: Step

    @property
    def same(self) -> int:
        """How many are equal."""
        return sum(one == other for one, other in zip(self.tokens, self.expected, strict=True))

    @property
    def near_ties(self) -> int:
        """How many are not, at a near-tie."""
        return sum(
            one != other and margin <= MARGIN
            for one, other, margin in zip(self.tokens, self.expected, self.margins, strict=True)
        )

    @property
    def equal(self) -> bool:
        """All are equal but for near-ties."""
        return self.same + self.near_ties == len(self.tokens)

    @property
    def words(self) -> str:
        """For people."""
        return (
            f"{self.same} of {len(self.tokens)} tokens equal, {self.near_ties} near-ties turned, "
            f"smallest margin {min(self.margins):.3f}, largest difference of a logit {self.noise:.3f}"
        )

    def as_json(self) -> dict[str, Any]:
        """The figures."""
        return {
            "tokens": list(self.tokens),
            "expected": list(self.expected),
            "margins": list(self.margins),
            "equal": self.equal,
            "largest_logit_difference": self.noise,
        }


def compare(simulation: Simulation, engine: Engine, prompt: Sequence[int], count: int) -> Checked:
    """Generate on the mesh, and on the reference.

    Args:
        engine: of the same file, with ``isa="reference"``.
    """
    ids = list(prompt)
    expected = list(engine.generate(ids, max_tokens=count, ignore_eos=True).token_ids)
    logits = engine.logits([*ids, *expected[:-1]])[len(ids) - 1 :]
    top = np.sort(np.partition(logits, -2, axis=1)[:, -2:], axis=1)
    steps = list(simulation.steps(ids, count, forced=expected))
    noise = max(float(np.abs(step.logits - row).max()) for step, row in zip(steps, logits, strict=True))
    margins = (top[:, 1] - top[:, 0]).tolist()
    return Checked([step.token for step in steps], expected, margins, noise, steps[-1])
