"""What the engine benchmark makes the engine do: prompts of random tokens, then decoding, by the service's steps."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ultrafast.engine.native import Profile
from ultrafast.types import GenerateRequest, SamplingParams

if TYPE_CHECKING:
    from ultrafast.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class Case:
    """So many sequences at once, each with a prompt of ``context`` tokens, decoding ``tokens`` more."""

    context: int
    tokens: int
    sequences: int = 1
    every: int = 1  # measured in every so many rounds: the long ones take long

    @property
    def name(self) -> str:
        if self.sequences > 1:
            return f"decode, {self.sequences} sequences"
        return f"{'decode at' if self.tokens > 1 else 'prompt of'} {self.context:,}"


_ALONE = (Case(512, 1), Case(2048, 64), Case(4096, 1, every=2), Case(8000, 64, every=3))
_TOGETHER = tuple(Case(32, 32, sequences) for sequences in (2, 4, 8, 16, 32))
_QUICK_CONTEXT = 2048


def plan(max_context: int, *, quick: bool = False) -> list[Case]:
    """The cases that fit the context, the shortest first; the quick ones only, if asked."""
    shortest = Case(min(64, max_context // 2), min(128, max_context // 2))
    cases = [case for case in (*_ALONE, *_TOGETHER) if case.context + case.tokens <= max_context]
    return [shortest, *(case for case in cases if not quick or case.context <= _QUICK_CONTEXT)]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one run of a case."""

    prompt_s: float  # from the first prompt's slot to its first token
    first_token_s: float  # from the request to the first token in the caller's hands
    step_s: float | None  # of one decode step; None when the case decodes nothing
    mean_context: float  # positions of a sequence while it decoded
    profile: Profile | None = None  # of the decoding


def run(engine: Engine, case: Case, random_ids: random.Random, *, profile: bool = False) -> Timing:
    """Run a case once."""
    params = SamplingParams(max_tokens=case.tokens, ignore_eos=True)
    prompts = [_prompt(engine, random_ids, case.context) for _ in range(case.sequences)]
    asked = time.perf_counter()
    sequences = [engine.add(GenerateRequest(prompt, params)) for prompt in prompts]
    while sequences[0].num_output == 0:
        engine.step()
    first = time.perf_counter()
    while any(sequence.num_output == 0 for sequence in sequences):
        engine.step()
    if profile:
        engine.profile(True)
    start, before = time.perf_counter(), sum(sequence.num_output for sequence in sequences)
    while not any(sequence.finish_reason for sequence in sequences):
        engine.step()
    seconds = time.perf_counter() - start
    steps = (sum(sequence.num_output for sequence in sequences) - before) / case.sequences
    for sequence in sequences:
        engine.cancel(sequence)  # those that started later have a token or two to go
    return Timing(
        prompt_s=sequences[0].timings.prefill_s,
        first_token_s=first - asked,
        step_s=seconds / steps if steps else None,
        mean_context=case.context + (before / case.sequences) + steps / 2,
        profile=engine.profile(False) if profile else None,
    )


@contextmanager
def held(engine: Engine, context: int, random_ids: random.Random) -> Iterator[None]:
    """A sequence with ``context`` tokens in the KV cache, while the body runs."""
    params = SamplingParams(max_tokens=2, ignore_eos=True)
    sequence = engine.add(GenerateRequest(_prompt(engine, random_ids, context), params))
    try:
        while sequence.num_output == 0:
            engine.step()
        yield
    finally:
        engine.cancel(sequence)


def _prompt(engine: Engine, random_ids: random.Random, length: int) -> list[int]:
    """Tokens never seen before, so that no prefix cache can help."""
    return [random_ids.randrange(engine.shape.vocab_size) for _ in range(length)]
