"""Tokens of a mesh against those of the engine's plain fp32 path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ultrafast.engine.engine import Engine
from ultrafast.wafer.mesh.run import Simulation, Step

MARGIN = 0.05
"""Top-1 minus top-2 logit of the reference below which its choice is a near-tie that 16 bits may turn.

Logits of 16 to 32 are 1/64 apart in 16 bits: these are about three steps. (The tests of the engine, which computes in
32 bits, call 0.005 a near-tie.)"""


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
    def turned(self) -> list[float]:
        """Margins of the tokens that are not equal."""
        pairs = zip(self.tokens, self.expected, self.margins, strict=True)
        return [margin for one, other, margin in pairs if one != other]

    @property
    def equal(self) -> bool:
        """All are equal but for near-ties."""
        return all(margin <= MARGIN for margin in self.turned)

    @property
    def words(self) -> str:
        """For people."""
        count = len(self.tokens)
        turned = f", others where the margin is {', '.join(f'{one:.3f}' for one in self.turned)}" if self.turned else ""
        return f"{count - len(self.turned)} of {count} tokens equal{turned}; logits differ by up to {self.noise:.3f}"

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
