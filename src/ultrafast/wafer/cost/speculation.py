"""What drafting gives: tokens a step for what a step costs more."""

from __future__ import annotations

from dataclasses import dataclass

from ultrafast.errors import ConfigError
from ultrafast.wafer.cost.constants import constant


@dataclass(frozen=True, slots=True)
class Speculation:
    """Drafts of ``steps`` tokens, of which verification keeps some.

    Attributes:
        tokens_per_step: kept on average, the model's own token included: from 1 to ``steps`` + 1.
        steps: of the draft.

    Raises:
        ConfigError: the numbers contradict each other.
    """

    tokens_per_step: float
    steps: int

    def __post_init__(self) -> None:
        if self.steps < 1 or not 1.0 <= self.tokens_per_step <= self.steps + 1:
            raise ConfigError(
                f"a draft of {self.steps} tokens cannot give {self.tokens_per_step:g} tokens a step; it is from 1 to "
                f"{self.steps + 1}"
            )

    @classmethod
    def from_rate(cls, acceptance: float, steps: int) -> Speculation:
        """From the chance that a drafted token is accepted, the same for each (Leviathan et al., ICML 2023).

        The expected number of tokens a step is (1 - a^(k + 1)) / (1 - a).
        """
        if not 0.0 <= acceptance <= 1.0:
            raise ConfigError(f"an acceptance is from 0 to 1, not {acceptance:g}")
        tokens = sum(acceptance**n for n in range(steps + 1))
        return cls(tokens, steps)

    def token_s(self, step_s: float) -> float:
        """Seconds a token where a step without drafting takes ``step_s``."""
        return step_s * (1 + constant("speculation.draft_step_cost") * self.steps) / self.tokens_per_step
