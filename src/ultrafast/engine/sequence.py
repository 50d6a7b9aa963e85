"""A request on its way through the engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from ultrafast.engine.native import KV_BLOCK, NativeSequence
from ultrafast.models.detokenize import Detokenizer
from ultrafast.types import FinishReason, GenerateRequest, Timings, Usage


@dataclass(eq=False, slots=True)
class Sequence:
    """Running state of one request; hashable by identity.

    Attributes:
        max_tokens: output tokens at most, the context limit considered.
        num_output: output tokens so far; the end-of-generation token is not part of the output.
        blocks: KV blocks held, for the whole of prompt and output: a sequence that has started can finish.
    """

    request: GenerateRequest
    native: NativeSequence
    detokenizer: Detokenizer
    max_tokens: int
    timings: Timings = field(default_factory=Timings)
    num_output: int = 0
    finish_reason: FinishReason | None = None
    blocks: list[int] = field(default_factory=list)

    @property
    def tier(self) -> str:
        return self.request.tier

    @property
    def usage(self) -> Usage:
        return Usage(len(self.request.prompt_ids), self.num_output)

    @property
    def num_blocks_needed(self) -> int:
        """KV blocks for every position that may be computed; the last output token never is."""
        return -(-(len(self.request.prompt_ids) + self.max_tokens - 1) // KV_BLOCK)

    @property
    def is_prefilling(self) -> bool:
        return self.num_output == 0 and self.native.num_pending > 1
