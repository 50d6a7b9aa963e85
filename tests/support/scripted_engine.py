"""An engine without a model: it answers with a fixed script, one byte a token, at a pace the test sets.

It has the interface that `EngineLoop` and the wire need, and nothing else. ``allow(n)`` grants steps; without a
grant ``step`` waits as a long burst would, until granted or interrupted.
"""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from ultrafast.chat.plan import ChatFormat
from ultrafast.engine.meter import Meter, Watched
from ultrafast.engine.status import ModelStatus
from ultrafast.engine.tiers import DEFAULT, DEFAULT_TIERS, TIERS, ULTRAFAST, Tiers
from ultrafast.errors import PromptTooLong, RequestError
from ultrafast.models.detokenize import Detokenizer
from ultrafast.types import FinishReason, GenerateRequest, Prompt, Timings, TokenDelta, TokenLogprob, Usage

SCRIPT = "Speed is a tier — schnell, быстро, 速い 🚀. " * 8
VOCAB_SIZE = 256


class ByteTokenizer:
    """Token ids are bytes; 0 is a control token that ends generation."""

    vocab_size = VOCAB_SIZE
    longest_token = 1
    bos_id = None
    eog_ids = frozenset({0})
    strips_leading_space = False

    def is_special(self, token_id: int) -> bool:
        return token_id in self.eog_ids

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Iterable[int]) -> str:
        return bytes(ids).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id])


class ScriptedSequence:
    """One request's way through the script."""

    def __init__(self, request: GenerateRequest, tier: str, script: str, *, max_context: int) -> None:
        self.request = request
        self.tier = tier
        self.timings = Timings(arrived=time.monotonic())
        self.finish_reason: FinishReason | None = None
        self.num_generated = 0
        self._limit = request.params.max_tokens or max_context - len(request.prompt_ids)
        self._script = script.encode()
        self._detokenizer = Detokenizer(ByteTokenizer(), request.params.stop)  # type: ignore[arg-type]

    @property
    def usage(self) -> Usage:
        predicted = bytes(self.request.prediction)
        accepted = sum(map(operator.eq, predicted, self._script[: self.num_generated]))
        return Usage(
            len(self.request.prompt_ids),
            self.num_generated,
            cached_tokens=len(self.request.prompt_ids) // 2,
            accepted_draft_tokens=accepted,
            rejected_draft_tokens=min(len(predicted), self.num_generated) - accepted,
        )

    def next_delta(self) -> TokenDelta:
        params = self.request.params
        of_prompt = None
        if self.request.prompt_logprobs is not None and not self.num_generated:
            of_prompt = [_scripted_logprob(t, self.request.prompt_logprobs) for t in self.request.prompt_ids[1:]]
        if params.max_tokens == 0:
            self.finish_reason = FinishReason.LENGTH
            return TokenDelta("", [], None, self.finish_reason, prompt_logprobs=of_prompt)
        token = self._script[self.num_generated]
        self.num_generated += 1
        if self.num_generated == len(self._script):
            self.finish_reason = FinishReason.STOP
        elif self.num_generated == self._limit:
            self.finish_reason = FinishReason.LENGTH
        text = self._detokenizer.push([token]).text
        if self.finish_reason is not None:
            text += self._detokenizer.flush()
        if self._detokenizer.stop is not None:
            self.finish_reason = FinishReason.STOP
        logprobs = None
        if params.logprobs is not None:
            logprobs = [_scripted_logprob(token, params.logprobs)]
        return TokenDelta(
            text, [token], logprobs, self.finish_reason, self._detokenizer.stop, prompt_logprobs=of_prompt
        )

    def rest(self) -> str:
        """What is left of a character that will not be completed."""
        return self._detokenizer.flush()


def _scripted_logprob(token: int, num_top: int) -> TokenLogprob:
    top = tuple((other % VOCAB_SIZE, -1.0 - other) for other in range(num_top))
    return TokenLogprob(token, -0.5, top)


def with_tiers(**changes: dict[str, Any]) -> Tiers:
    """The default tiers with some fields of some changed."""
    policies = {tier: replace(policy, **changes.get(tier, {})) for tier, policy in DEFAULT_TIERS.policies.items()}
    return Tiers(policies)


class ScriptedEngine:
    """See the module.

    Args:
        script: what every request is answered.
        scripts: one answer a request instead, in the order of `add`; the last one goes on.
        num_slots: sequences of the shared tiers that run at once; the others wait in order.
        tiers: in place of the default ones with that many slots.
        paced: wait for `allow` before each step; otherwise run freely.
        max_context: tokens of prompt and output.
    """

    model_id = "scripted"
    shape = SimpleNamespace(name="Scripted", vocab_size=VOCAB_SIZE)

    def __init__(
        self,
        script: str = SCRIPT,
        *,
        scripts: Sequence[str] = (),
        num_slots: int = 4,
        tiers: Tiers | None = None,
        paced: bool = False,
        max_context: int = 4096,
    ) -> None:
        self.max_context = max_context
        self.tokenizer = ByteTokenizer()
        self.chat = ChatFormat(None)
        self.tiers = tiers or with_tiers(default={"slots": num_slots})
        self.fail_next: Exception | None = None  # raised by the next step
        self.closed = False
        self.num_steps = 0
        self.num_preempts = 0
        self.requests: list[GenerateRequest] = []
        self._scripts = scripts or [script]
        self.meter = Meter(self.tiers)
        self._running: list[ScriptedSequence] = []
        self._waiting: list[ScriptedSequence] = []
        self._changed = threading.Condition()
        self._granted = 0 if paced else None
        self._interrupted = False

    def allow(self, steps: int | None) -> None:
        """Grant steps; None: any number from now on."""
        with self._changed:
            self._granted = None if steps is None or self._granted is None else self._granted + steps
            self._changed.notify_all()

    def preempt(self) -> None:
        self.num_preempts += 1
        self.interrupt()

    def interrupt(self) -> None:
        with self._changed:
            self._interrupted = True
            self._changed.notify_all()

    def encode_prompt(self, prompt: Prompt, *, tools: Any = None) -> list[int]:
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt)
        if all(isinstance(item, int) for item in prompt):
            return [*prompt]  # type: ignore[list-item]
        text = "".join(f"<{m['role']}>{m['content']}" for m in prompt if isinstance(m, Mapping))
        return self.tokenizer.encode(text)

    def prepare_grammar(self, text: str) -> None:
        """A script keeps to no grammar."""

    def check(self, request: GenerateRequest) -> None:
        if not request.prompt_ids or not all(0 <= token < VOCAB_SIZE for token in request.prompt_ids):
            raise RequestError("no tokens, or no such token", param="prompt")
        needed = len(request.prompt_ids) + (request.params.max_tokens or 1)
        if needed > self.max_context:
            if len(request.prompt_ids) < self.max_context:
                raise PromptTooLong(f"{needed} tokens do not fit {self.max_context}", param="max_tokens")
            tokens, limit = len(request.prompt_ids), self.max_context - 1
            raise PromptTooLong(f"{tokens} tokens do not fit {limit}", param="prompt", tokens=tokens, limit=limit)
        if any(not 0 <= token < VOCAB_SIZE for token in request.params.logit_bias):
            raise RequestError("no such token id", param="logit_bias")

    def add(self, request: GenerateRequest, tier: str | None = None) -> ScriptedSequence:
        script = self._scripts[min(len(self.requests), len(self._scripts) - 1)]
        self.requests.append(request)
        sequence = ScriptedSequence(request, tier or request.tier, script, max_context=self.max_context)
        self._waiting.append(sequence)
        return sequence

    def step(self) -> list[tuple[ScriptedSequence, TokenDelta]]:
        self._start_who_can()
        with self._changed:
            self._changed.wait_for(lambda: self._interrupted or self._granted is None or self._granted)
            self._interrupted = False
            if self._granted == 0:
                return []
            if self._granted is not None:
                self._granted -= 1
        if self.fail_next is not None:
            error, self.fail_next = self.fail_next, None
            raise error
        self.num_steps += 1
        deltas = [(sequence, sequence.next_delta()) for sequence in self._running]
        for sequence, delta in deltas:
            sequence.timings.first_token = sequence.timings.first_token or time.monotonic()
            self.meter.tokens(sequence.tier, len(delta.token_ids), time.monotonic())
            if sequence.finish_reason is not None:
                self._finished(sequence, sequence.finish_reason)
        self._running = [sequence for sequence in self._running if sequence.finish_reason is None]
        return deltas

    def _start_who_can(self) -> None:
        for sequence in sorted(self._waiting, key=lambda s: TIERS.index(s.tier)):
            running = [other.tier for other in self._running]
            policies = self.tiers.policies
            is_shared = sequence.tier != ULTRAFAST
            if running.count(sequence.tier) < policies[sequence.tier].slots and not (
                is_shared and len(running) - running.count(ULTRAFAST) >= policies[DEFAULT].slots
            ):
                self._waiting.remove(sequence)
                self._running.append(sequence)
                sequence.timings.started = time.monotonic()

    def expire(self, sequence: ScriptedSequence) -> TokenDelta:
        sequence.finish_reason = FinishReason.LENGTH
        self._drop(sequence, FinishReason.LENGTH)
        return TokenDelta(sequence.rest(), [], None, FinishReason.LENGTH)

    def cancel(self, sequence: ScriptedSequence) -> None:
        self._drop(sequence, FinishReason.CANCELLED)

    def _drop(self, sequence: ScriptedSequence, reason: FinishReason) -> None:
        if sequence in self._running:
            self._running.remove(sequence)
        else:
            self._waiting.remove(sequence)
        self._finished(sequence, reason)

    def _finished(self, sequence: ScriptedSequence, reason: FinishReason) -> None:
        sequence.timings.finished = time.monotonic()
        self.meter.finished(sequence, reason, sequence.timings.finished)

    def stats(self) -> dict[str, int]:
        blocks = 64
        return {
            "running": len(self._running),
            "waiting": len(self._waiting),
            "free_blocks": blocks - len(self._running),
            "cached_blocks": 0,
            "held_blocks": len(self._running),
            "num_blocks": blocks,
        }

    def snapshot(self, arriving: Sequence[Watched] = ()) -> ModelStatus:
        blocks = self.stats()
        return self.meter.status(
            self.model_id,
            list(self._running),
            [*self._waiting, *arriving],
            blocks=blocks["num_blocks"],
            free_blocks=blocks["free_blocks"],
            cached_blocks=0,
            block_tokens=64,
            bytes_per_block=1 << 20,
            now=time.monotonic(),
        )

    def close(self) -> None:
        self.closed = True


def text_of(num_tokens: int | None = None, script: str = SCRIPT) -> str:
    """The answer to a request with that limit."""
    return script.encode()[:num_tokens].decode("utf-8", "replace")
