"""What drafts are worth when the answer is a capable model's: it takes the place of what the model would pick.

All else is as it is: every step computes the rows of its drafts, and a draft counts when the answer goes on with it.
The native loop alone, without a server: one sequence, drafted and plain in turns.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tier_cases.bench import Run
from tier_cases.copying import Task, tasks
from tier_cases.drafting import FIGURES, ROUNDS, Said, compare
from ultrafast.engine.native import KV_BLOCK, MAX_DRAFT, Lane, NativeModel, NativeSequence, choose_isa, worker_cpus
from ultrafast.models.gguf import GgufFile
from ultrafast.models.shape import ModelShape
from ultrafast.types import SamplingParams

__all__ = ["FIGURES", "measure"]

_MOST_ROWS = 512  # of a step
_BURST_S = 0.025
_MOST_STEPS = 256


def measure(run: Run) -> None:
    with _loaded(run) as model:
        for drafts in (False, True):  # the first requests find caches cold and costs unknown
            _say(run, model, tasks(run.words, run.rng)[-1], drafts=drafts)
        for number in run.rounds(ROUNDS):
            for task in tasks(run.words, run.rng):
                said = {drafts: _say(run, model, task, drafts=drafts) for drafts in (bool(number % 2), number % 2 == 0)}
                compare(run.found, task.key, plain=said[False], drafted=said[True])


@contextmanager
def _loaded(run: Run) -> Iterator[NativeModel]:
    with GgufFile(run.model) as file:
        shape = ModelShape.from_gguf(file)
        model = NativeModel(
            file,
            shape,
            isa=choose_isa(),
            cpus=worker_cpus(run.threads),
            num_blocks=-(-shape.max_context // KV_BLOCK),
            max_rows=_MOST_ROWS,
            max_logits=1 + MAX_DRAFT,
            max_context=shape.max_context,
        )
    try:
        yield model
    finally:
        model.close()


def _say(run: Run, model: NativeModel, task: Task, *, drafts: bool) -> Said:
    """Replay the task's target, and time what comes after its first token."""
    encode = run.words.tokenizer.encode
    prompt = encode(run.words.tokenizer.apply_chat_template(task.messages))
    target = encode(task.target)[: run.tokens(task.max_tokens)]
    sequence = NativeSequence(
        prompt,
        SamplingParams(),
        max_tokens=len(target),
        stop_ids=(),
        draft_limit=MAX_DRAFT if drafts else 0,
        prediction=encode(task.prediction or ""),
        replay=target,
    )
    sequence.begin(list(range(-(-(len(prompt) + len(target)) // KV_BLOCK))), 0)
    said: list[int] = []
    while not said:
        model.run(Lane.URGENT, [(sequence, _MOST_ROWS)], max_steps=1, time_limit_s=_BURST_S)
        said += sequence.handle.take()[0]
    start, first_tokens = time.perf_counter(), len(said)
    while sequence.finish_reason is None:
        model.run(Lane.URGENT, [(sequence, 1)], max_steps=_MOST_STEPS, time_limit_s=_BURST_S)
        said += sequence.handle.take()[0]
    speed = (len(said) - first_tokens) / (time.perf_counter() - start)
    return Said(said, len(said), speed, sequence.num_accepted, sequence.num_rejected)
