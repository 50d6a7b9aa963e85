"""A request on its way through the engine."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from ultrafast.engine.native import KV_BLOCK, Lane, NativeSequence
from ultrafast.engine.tiers import ULTRAFAST
from ultrafast.errors import RequestError
from ultrafast.models.detokenize import Detokenizer
from ultrafast.types import FinishReason, GenerateRequest, Timings, TokenDelta, TokenLogprob, Usage


@dataclass(eq=False, slots=True)
class Sequence:
    """Running state of one request; hashable by identity.

    Attributes:
        tier: that serves it.
        max_tokens: output tokens at most, the context limit considered.
        num_output: output tokens so far; the end-of-generation token is not part of the output.
        num_cached: prompt tokens that were found in the prefix cache when it first got a slot; None before.
        num_preempted: times that it had to give its slot to a higher tier.
        blocks: KV blocks held, for the whole of prompt and output: a sequence that has started can finish.
    """

    request: GenerateRequest
    native: NativeSequence
    detokenizer: Detokenizer
    max_tokens: int
    tier: str = "default"
    timings: Timings = field(default_factory=Timings)
    num_output: int = 0
    num_cached: int | None = None
    num_preempted: int = 0
    finish_reason: FinishReason | None = None
    blocks: list[int] = field(default_factory=list)

    @property
    def lane(self) -> Lane:
        return Lane.URGENT if self.tier == ULTRAFAST else Lane.SHARED

    @property
    def usage(self) -> Usage:
        return Usage(
            len(self.request.prompt_ids),
            self.num_output,
            self.num_cached or 0,
            min(self.native.num_accepted, self.num_output),  # a stop, drafted too, is no output
            self.native.num_rejected,
        )

    @property
    def num_blocks_needed(self) -> int:
        """KV blocks for every position that may be computed; the last output token never is."""
        return -(-(len(self.request.prompt_ids) + max(self.max_tokens - 1, 0)) // KV_BLOCK)

    @property
    def token_ids(self) -> Seq[int]:
        """Prompt and all of the output, the end-of-generation token included."""
        return self.native.handle.tokens if self.native.handle.num_output else self.request.prompt_ids

    @property
    def max_cached(self) -> int:
        """Of `token_ids`, how many need not be computed if the cache has them.

        Never the last, from which the next is sampled; nor, in a prompt that is to be scored, those that tell how
        likely the next ones are.
        """
        to_score = self.request.prompt_logprobs is not None
        if to_score and self.native.num_scored < len(self.request.prompt_ids) - 1:
            return self.native.num_scored
        return len(self.token_ids) - 1

    @property
    def num_computed(self) -> int:
        """Tokens whose keys and values are in the blocks, or will be when the lane's suspended step is finished."""
        return self.native.handle.num_computed

    @property
    def is_prefilling(self) -> bool:
        """Whether several tokens are to be computed before the next comes: of the prompt, or after a preemption."""
        return self.num_pending > 1

    @property
    def num_pending(self) -> int:
        """Tokens to be computed before the next one comes."""
        return self.native.num_pending

    def take_delta(self) -> TokenDelta | None:
        """What came since the last time, with the finish reason if that was the last of it; None: nothing.

        The log-probabilities of the prompt come with the first, where they were asked for.
        """
        token_ids, native_logprobs = self.native.handle.take()
        finish_reason = self.native.finish_reason
        if not token_ids and finish_reason is None:
            return None
        if finish_reason is FinishReason.STOP:
            token_ids.pop()  # the end-of-generation token: a signal, not output
        pushed = self.detokenizer.push(token_ids)
        token_ids = token_ids[: pushed.num_tokens]
        text = pushed.text
        if finish_reason is not None and not pushed.stopped:
            text += self.detokenizer.flush()
        if self.detokenizer.stop is not None:
            finish_reason = FinishReason.STOP
        self.num_output += len(token_ids)
        logprobs = None if self.request.params.logprobs is None else _as_logprobs(token_ids, native_logprobs)
        return TokenDelta(text, token_ids, logprobs, finish_reason, self.detokenizer.stop, self._take_prompt_logprobs())

    def take_error(self) -> RequestError | None:
        """Why it failed, if it has; once."""
        error = self.native.take_error()
        if error is None or isinstance(error, RequestError):
            return error
        failure = RequestError(
            f"The grammar of the output failed: {error}", status=500, type="server_error", code="server_error"
        )
        failure.__cause__ = error
        return failure

    def _take_prompt_logprobs(self) -> list[TokenLogprob] | None:
        """Of the prompt's second token and on, once the prompt is computed."""
        if self.request.prompt_logprobs is None or self.timings.first_token:
            return None
        return _as_logprobs(self.request.prompt_ids[1:], self.native.handle.take_prompt_logprobs())

    def begin(self, num_cached: int) -> None:
        """Start, or start again, on `blocks`, of which the first ``num_cached`` positions are computed."""
        self.native.begin(self.blocks, num_cached)
        if self.num_cached is None:
            self.num_cached = num_cached


def _as_logprobs(token_ids: Seq[int], native: Seq[tuple[float, list[tuple[int, float]]]]) -> list[TokenLogprob]:
    """What the native side says about tokens; it may say more, of those that a stop has cut off."""
    return [
        TokenLogprob(int(token), chosen, tuple(top)) for token, (chosen, top) in zip(token_ids, native, strict=False)
    ]
