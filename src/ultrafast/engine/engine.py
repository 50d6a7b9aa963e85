"""The engine: a model in memory that answers requests. Read this first, then `scheduler`, then native/decode/burst.cpp.

`Engine` is synchronous. ``generate``, ``stream`` and ``logits`` may be called from several threads: whoever waits for
tokens makes the next step for all. The service drives ``add``, ``step`` and ``cancel`` itself (`loop`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ultrafast.chat.plan import ChatFormat
from ultrafast.engine import memory
from ultrafast.engine.blocks import BlockPool
from ultrafast.engine.callers import Callers
from ultrafast.engine.grammar import Grammars
from ultrafast.engine.lanes import LaneClock, Turn
from ultrafast.engine.limits import check_prompt, check_request, resolve_max_tokens
from ultrafast.engine.meter import Meter, Watched
from ultrafast.engine.native import (
    KV_BLOCK,
    MAX_DRAFT,
    Lane,
    NativeModel,
    NativeSequence,
    Profile,
    choose_isa,
    worker_cpus,
)
from ultrafast.engine.pace import PrefillPace
from ultrafast.engine.prefix_cache import PrefixCache
from ultrafast.engine.prompt import encode_prompt
from ultrafast.engine.prompt import token_ids as as_token_ids
from ultrafast.engine.scheduler import Burst, Scheduler
from ultrafast.engine.sequence import Sequence
from ultrafast.engine.status import ModelStatus
from ultrafast.engine.tiers import DEFAULT, DEFAULT_TIERS, ULTRAFAST, Tiers
from ultrafast.engine.topology import default_threads, detect
from ultrafast.errors import ConfigError, PromptTooLong, RequestError, UltrafastError
from ultrafast.models import catalog, fetch
from ultrafast.models.detokenize import Detokenizer
from ultrafast.models.gguf import GgufFile
from ultrafast.models.shape import ModelShape
from ultrafast.models.tokenizer import Tokenizer
from ultrafast.types import FinishReason, GenerateRequest, Output, Prompt, SamplingParams, TokenDelta, TokenLogprob

_MAX_ROWS = 512  # tokens of one step: past a few hundred, longer chunks are no faster
_LOGITS_CHUNK = 64  # rows of logits held at once
_KEPT_KV_BYTES = 64 << 20  # of KV memory that stays with an idle engine, so that small requests find it warm
_PROMPT_REMEMBERED = 32  # last tokens of a prompt, by which its repetition finds the output it had
_CACHE_BYTES = 160 << 20  # of keys and values that are kept for prompts with the same beginning


class Engine:
    """A model, its KV blocks and its sequences.

    Args:
        model: a name that ``ultrafast models`` lists, a path, or ``hf:ORG/REPO[/FILE]``; fetched if not on disk.
        threads: workers; default: one a physical core that this process may use.
        isa: ``avx512vnni``, ``avx2``, ``scalar`` or ``reference`` (plain fp32); default: ``ULTRAFAST_ISA``, else the
            best that this processor runs.
        context: tokens of prompt and output together; default: what the model was trained for.
        prefill_chunk: prompt tokens per step; default: as many as keep a step short. The tokens do not depend on it.
        tiers: slots, speculation and time share of each service tier.
        cache_mib: memory for the keys and values of prefixes, MiB; 0 shares none; default: 160.
        draft_model: a smaller model with the same vocabulary that drafts where tiers speculate, named like ``model``.

    Raises:
        ModelNotFound, DownloadError, ModelFileError: the model cannot be had or read.
        ConfigError, IsaError: an argument is wrong.
        ResourceError: the machine has too little memory.
    """

    def __init__(
        self,
        model: str | Path = "smollm2-135m",
        *,
        threads: int | None = None,
        isa: str | None = None,
        context: int | None = None,
        prefill_chunk: int | None = None,
        tiers: Tiers = DEFAULT_TIERS,
        cache_mib: int | None = None,
        draft_model: str | Path | None = None,
    ) -> None:
        self.isa = choose_isa(isa)
        machine = detect()
        self.threads = _positive("threads", threads, default=len(default_threads(machine)), at_most=1024)
        self.path = fetch.resolve(str(model))
        self.model_id = str(model) if str(model) in catalog.KNOWN else self.path.stem
        with GgufFile(self.path) as file, _open_draft(draft_model) as draft:
            self.shape = ModelShape.from_gguf(file)
            self.tokenizer = Tokenizer.from_gguf(file.metadata, str(self.path))
            self._grammars = Grammars(self.tokenizer, self.shape.vocab_size)
            self.chat = ChatFormat(self.tokenizer.chat_template, self.tokenizer.apply_chat_template)
            limit = self.shape.max_context
            self.max_context = _positive("context", context, default=limit, at_most=limit)
            self.tiers = tiers
            # What all requests of a burst can be at most: those of `ultrafast`, or all others.
            self.num_slots = max(tiers.policies[ULTRAFAST].slots, tiers.policies[DEFAULT].slots)
            num_blocks = memory.plan_kv_blocks(
                file,
                self.shape,
                isa=self.isa,
                context=self.max_context,
                num_slots=tiers.policies[ULTRAFAST].slots + tiers.policies[DEFAULT].slots,
                available=machine.memory_bytes,
                draft=draft,
            )
            self._native = NativeModel(
                file,
                self.shape,
                isa=self.isa,
                cpus=worker_cpus(self.threads),
                num_blocks=num_blocks,
                max_rows=_MAX_ROWS,
                max_logits=max(_LOGITS_CHUNK, self.num_slots),
                max_context=self.max_context,
            )
            if draft is not None:
                self._native.load_draft(*draft)
        pool = BlockPool(num_blocks)
        cache_bytes = _CACHE_BYTES if cache_mib is None else cache_mib << 20
        cache = PrefixCache(pool, min(cache_bytes // self._block_bytes, num_blocks))
        self._scheduler = Scheduler(tiers=tiers, pool=pool, cache=cache, max_rows=_MAX_ROWS)
        self._clock = LaneClock(tiers.share)
        chunk = _positive("prefill_chunk", prefill_chunk, default=0, at_most=_MAX_ROWS)
        self._paces = {lane: PrefillPace(chunk, _MAX_ROWS) for lane in Lane}
        self.meter = Meter(tiers)
        self._lock = threading.RLock()  # the scheduler and native sequences
        self._callers = Callers(self, self._lock)
        self._closed = False

    # ---- ask and receive ----------------------------------------------------------------------------------

    def generate(self, prompt: Prompt, **params: Any) -> Output:
        """Answer a prompt.

        Args:
            prompt: raw text, chat messages or token ids.
            **params: fields of `SamplingParams`, such as ``max_tokens=64, temperature=0, seed=0, stop=["\\n"]``; and
                ``tier``, ``prediction`` (token ids, or text), ``cache_salt``, ``grammar`` and ``prompt_logprobs`` of
                `GenerateRequest`.

        Raises:
            RequestError: the request is wrong or does not fit; ``param`` names the field.
        """
        token_ids: list[int] = []
        texts: list[str] = []
        logprobs: list[TokenLogprob] = []
        prompt_logprobs: list[TokenLogprob] = []
        sequence = self._callers.begin(self._request(prompt, params))
        for delta in self._callers.deltas(sequence):
            texts.append(delta.text)
            token_ids.extend(delta.token_ids)
            logprobs.extend(delta.logprobs or ())
            prompt_logprobs.extend(delta.prompt_logprobs or ())
        assert sequence.finish_reason is not None
        return Output(
            text="".join(texts),
            token_ids=token_ids,
            finish_reason=sequence.finish_reason,
            usage=sequence.usage,
            timings=sequence.timings,
            logprobs=None if sequence.request.params.logprobs is None else logprobs,
            prompt_logprobs=None if sequence.request.prompt_logprobs is None else prompt_logprobs,
        )

    def stream(self, prompt: Prompt, **params: Any) -> Iterator[TokenDelta]:
        """Like `generate`, but yields what each burst added.

        The request is checked now and queued when the first delta is asked for. Closing the iterator cancels it.
        """
        self._require_open()
        request = self._request(prompt, params)
        self.check(request)
        if request.grammar is not None:
            self.prepare_grammar(request.grammar)
        return self._stream(request)

    def logits(self, token_ids: Seq[int]) -> npt.NDArray[np.float32]:
        """Next-token logits after each of ``token_ids``: float32 [n, vocab_size]."""
        ids = as_token_ids(token_ids)
        params = SamplingParams(max_tokens=1)
        check_prompt(ids, self.shape.vocab_size)
        if len(ids) > self.max_context:
            raise PromptTooLong(f"{len(ids)} tokens do not fit the context of {self.max_context}", param="prompt")
        with self._lock:
            self._require_open()
            sequence = Sequence(
                GenerateRequest(ids, params),
                NativeSequence(ids, params, max_tokens=0, stop_ids=()),
                Detokenizer(self.tokenizer),
                max_tokens=1,
            )
            pool, count = self._scheduler.pool, sequence.num_blocks_needed
            if pool.num_free < count:
                self._scheduler.cache.evict(count - pool.num_free)
            if pool.num_free < count:
                raise RequestError(
                    "running requests hold the KV blocks that this needs; try again when they end", status=429
                )
            sequence.blocks = pool.allocate(count)
            try:
                sequence.begin(0)
                chunk = min(self._paces[Lane.URGENT].fixed or _LOGITS_CHUNK, _LOGITS_CHUNK)
                return self._native.all_logits(sequence.native, chunk)
            finally:
                pool.release(sequence.blocks)
                if not self.has_work:
                    self._release_memory()

    def encode_prompt(self, prompt: Prompt, *, tools: Seq[Mapping[str, Any]] | None = None) -> list[int]:
        """Token ids of a prompt, the beginning-of-sequence token included where the model file wants one. Thread-safe.

        Args:
            prompt: raw text, chat messages or token ids.
            tools: for the chat template, as `ChatPlan` has them.

        Raises:
            PromptTooLong, TemplateError, RequestError: see `prompt.encode_prompt`.
        """
        return encode_prompt(self.tokenizer, prompt, self.max_context, tools=tools)

    def prepare_grammar(self, text: str) -> None:
        """Compile a grammar, so that `add` finds it ready; takes up to seconds. Thread-safe.

        Raises:
            RequestError: see `Grammars.prepare`.
        """
        self._grammars.prepare(text)

    def check(self, request: GenerateRequest) -> None:
        """Refuse what cannot be served. Thread-safe.

        Raises:
            PromptTooLong: prompt, or prompt and ``max_tokens``, exceed the context.
            RequestError: ``param`` names the field that is wrong.
        """
        check_request(request, self.shape.vocab_size, self.max_context)
        max_tokens = resolve_max_tokens(request, self.max_context)
        needed = len(request.prompt_ids) + max_tokens
        limit = self._scheduler.pool.num_blocks * KV_BLOCK
        if needed - min(max_tokens, 1) > limit:  # the last token of an output is never computed
            raise PromptTooLong(
                f"prompt and output need {needed} tokens of KV cache; this machine has room for {limit}"
            )

    # ---- the three verbs of the service loop ----------------------------------------------------------------

    def add(self, request: GenerateRequest, tier: str | None = None) -> Sequence:
        """Queue a request; `step` will bring its tokens.

        Args:
            request: what is asked.
            tier: that serves it; default: the one asked for.

        Raises:
            RequestError: what `check` and `prepare_grammar` raise.
        """
        self.check(request)
        max_tokens = resolve_max_tokens(request, self.max_context)
        constraint = None if request.grammar is None else self._grammars.constraint(request.grammar)
        stop_ids = () if request.params.ignore_eos and constraint is None else sorted(self.tokenizer.eog_ids)
        tier = tier or request.tier
        native = NativeSequence(
            request.prompt_ids,
            request.params,
            max_tokens=max_tokens,
            stop_ids=stop_ids,
            draft_limit=MAX_DRAFT if self.tiers.policies[tier].speculation else 0,
            prediction=request.prediction,
            domain=request.cache_salt,
            prompt_logprobs=request.prompt_logprobs,
            constraint=constraint,
        )
        sequence = Sequence(request, native, Detokenizer(self.tokenizer, request.params.stop), max_tokens, tier)
        sequence.timings.arrived = time.monotonic()
        with self._lock:
            self._require_open()
            self._scheduler.add(sequence)
        return sequence

    def step(self) -> list[tuple[Sequence, TokenDelta | RequestError]]:
        """Admit, run one burst of one lane, commit: the deltas of all sequences that got tokens, and the errors of
        those that failed: these have ended, and the others do not notice."""
        with self._lock:
            self._require_open()
            self._admit()
            turn = self._next_turn()
            return [] if turn is None else self._commit(self._run(turn))

    def cancel(self, sequence: Sequence) -> None:
        """Drop a request: its slot and blocks are free at once, and it gets no more deltas. Its usage stays."""
        with self._lock:
            if sequence.finish_reason is None:
                self._finish(sequence, FinishReason.CANCELLED)

    def expire(self, sequence: Sequence) -> TokenDelta:
        """End a request that has tokens with what it has, as if it had reached its ``max_tokens``: its last delta."""
        with self._lock:
            text = sequence.detokenizer.flush()  # what might have become a stop string or a whole character
            self._finish(sequence, FinishReason.LENGTH)
            return TokenDelta(text, [], None if sequence.request.params.logprobs is None else [], FinishReason.LENGTH)

    def interrupt(self) -> None:
        """End the running burst after its current step. Thread-safe, never waits."""
        self._native.interrupt()

    def preempt(self) -> None:
        """The same, but a burst of the shared lane is suspended after its current layer."""
        self._native.preempt()

    @property
    def has_work(self) -> bool:
        """Whether any request is running or waiting."""
        return bool(self._scheduler.running or self._scheduler.waiting)

    @property
    def weight_bytes(self) -> int:
        """Weight bytes that decoding one token reads."""
        return self._native.bytes_per_token

    @property
    def num_pinned(self) -> int:
        """Workers that are pinned to a core; the system may refuse."""
        return self._native.num_pinned

    def profile(self, on: bool) -> Profile:
        """Where steps spent their time since profiling was switched on; then start a new profile, or stop."""
        with self._lock:
            self._require_open()
            return self._native.profile(on)

    def stats(self) -> dict[str, int]:
        """Counts: running, waiting, free_blocks, cached_blocks, num_blocks; held_blocks: by requests, each counts all
        of its own."""
        scheduler = self._scheduler
        return {
            "running": len(scheduler.running),
            "waiting": len(scheduler.waiting),
            "free_blocks": scheduler.pool.num_free,
            "cached_blocks": scheduler.cache.num_blocks,
            "held_blocks": sum(len(sequence.blocks) for sequence in scheduler.running),
            "num_blocks": scheduler.pool.num_blocks,
        }

    def snapshot(self, arriving: Seq[Watched] = ()) -> ModelStatus:
        """Lanes, cache and requests at this moment. Thread-safe, and never waits for a step.

        Args:
            arriving: requests on their way to `add`, which wait as well.
        """
        scheduler = self._scheduler
        waiting = list(scheduler.waiting)  # first: who gets a slot meanwhile is in both, and not in neither
        running = list(scheduler.running)
        return self.meter.status(
            self.model_id,
            running,
            [*(sequence for sequence in waiting if sequence not in set(running)), *arriving],
            blocks=scheduler.pool.num_blocks,
            free_blocks=scheduler.pool.num_free,
            cached_blocks=scheduler.cache.num_blocks,
            block_tokens=KV_BLOCK,
            bytes_per_block=self._block_bytes,
            now=time.monotonic(),
        )

    def close(self) -> None:
        """Cancel all requests and free the model's memory. Safe to call twice."""
        self.interrupt()
        with self._lock:
            if self._closed:
                return
            for sequence in [*self._scheduler.running, *self._scheduler.waiting]:
                self.cancel(sequence)
            self._closed = True
            self._native.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ---- schedule, run, commit ------------------------------------------------------------------------------

    def _admit(self) -> None:
        now = time.monotonic()
        for admitted in self._scheduler.admit(now):
            if admitted.copy is not None:
                self._native.copy_block(*admitted.copy)
            timings = admitted.sequence.timings
            timings.started = timings.started or now

    def _next_turn(self) -> Turn | None:
        running = self._scheduler.running
        if not running:
            return None
        now = time.monotonic()
        working = {sequence.lane for sequence in running}
        decoding = {sequence.lane for sequence in running if not sequence.is_prefilling}
        youngest = min(now - (s.timings.first_token or now) for s in running if s.lane is min(working))
        return self._clock.next_turn(working=working, decoding=decoding, youngest_s=youngest)

    def _run(self, turn: Turn) -> Burst:
        """Make a burst, or go on with one that was suspended."""
        scheduler, pace = self._scheduler, self._paces[turn.lane]
        start = time.monotonic()
        burst = scheduler.suspended if turn.lane is Lane.SHARED else None
        if burst is not None:
            ran = self._native.resume(
                turn.lane, max_steps=burst.max_steps, time_limit_s=turn.time_limit_s, slice=turn.slice
            )
        else:
            burst = scheduler.burst(turn, pace.budget(turn.step_s))
            prefilling = [sequence for sequence, _ in burst.entries if sequence.is_prefilling]
            before = sum(sequence.native.num_pending for sequence in prefilling)
            ran = self._native.run(
                turn.lane,
                [(sequence.native, chunk) for sequence, chunk in burst.entries],
                max_steps=burst.max_steps,
                time_limit_s=turn.time_limit_s,
                slice=turn.slice,
            )
            burst.rows = before - sum(sequence.native.num_pending for sequence in prefilling)
        seconds = time.monotonic() - start
        self._clock.ran(turn, seconds)
        burst.steps += ran.steps
        burst.seconds += seconds
        if ran.suspended:
            scheduler.suspended = burst
        else:
            pace.learn(burst.rows, burst.steps, burst.seconds)
            scheduler.finished(burst)
        return burst

    def _commit(self, burst: Burst) -> list[tuple[Sequence, TokenDelta | RequestError]]:
        outcome: list[tuple[Sequence, TokenDelta | RequestError]] = []
        now = time.monotonic()
        for sequence, _ in burst.entries:
            if sequence.finish_reason is not None:
                continue  # cancelled while its step was suspended
            if delta := self._take_delta(sequence, now):
                outcome.append((sequence, delta))
            if sequence.finish_reason is None and (error := sequence.take_error()):
                self._finish(sequence, FinishReason.CANCELLED)
                outcome.append((sequence, error))
        return outcome

    def _take_delta(self, sequence: Sequence, now: float) -> TokenDelta | None:
        """What the last burst added to a sequence, which ends here if it has an end."""
        delta = sequence.take_delta()
        if delta is None:
            return None
        if sequence.timings.first_token == 0.0:
            sequence.timings.first_token = now
            self._scheduler.share_prompt(sequence)
        self.meter.tokens(sequence.tier, len(delta.token_ids), now)
        if delta.finish_reason is not None:
            self._finish(sequence, delta.finish_reason)
        return delta

    def _finish(self, sequence: Sequence, reason: FinishReason) -> None:
        sequence.finish_reason = reason
        sequence.timings.finished = time.monotonic()
        self._scheduler.remove(sequence)
        if self._scheduler.suspended_in_vain:
            self._native.abandon(Lane.SHARED)
            self._scheduler.abandoned()
        self.meter.finished(sequence, reason, sequence.timings.finished)
        self._remember(sequence)
        if not self.has_work:
            self._release_memory()

    def _remember(self, sequence: Sequence) -> None:
        """Let what a sequence said be a draft for others of its salt, where any tier drafts."""
        if sequence.num_output and any(policy.speculation for policy in self.tiers.policies.values()):
            start = max(0, len(sequence.request.prompt_ids) - _PROMPT_REMEMBERED)
            self._native.remember(sequence.request.cache_salt, sequence.token_ids[start:])

    def _release_memory(self) -> None:
        pool, cache = self._scheduler.pool, self._scheduler.cache
        keep = max(1, _KEPT_KV_BYTES // self._block_bytes - cache.num_blocks)
        self._native.release_blocks(pool.forget_idle_blocks(keep))

    @property
    def _block_bytes(self) -> int:
        return memory.kv_block_bytes(self.shape, isa=self.isa)

    def _request(self, prompt: Prompt, params: dict[str, Any]) -> GenerateRequest:
        given = {name: value for name, value in params.items() if value is not None}  # None: the default
        service = ("tier", "prediction", "cache_salt", "grammar", "prompt_logprobs")
        how = {name: given.pop(name) for name in service if name in given}
        unknown = given.keys() - {field.name for field in fields(SamplingParams)}
        if unknown:
            raise TypeError(f"unknown parameter {', '.join(sorted(unknown))}; see ultrafast.SamplingParams")
        if isinstance(given.get("stop"), str):
            given["stop"] = (given["stop"],)
        if isinstance(how.get("prediction"), str):
            how["prediction"] = self.tokenizer.encode(how["prediction"])
        return GenerateRequest(self.encode_prompt(prompt), SamplingParams(**given), **how)

    def _stream(self, request: GenerateRequest) -> Iterator[TokenDelta]:
        yield from self._callers.deltas(self._callers.begin(request))

    def _require_open(self) -> None:
        if self._closed:
            raise UltrafastError("this engine is closed")


@contextmanager
def _open_draft(name: str | Path | None) -> Iterator[tuple[GgufFile, ModelShape] | None]:
    if name is None:
        yield None
        return
    with GgufFile(fetch.resolve(str(name))) as file:
        yield file, ModelShape.from_gguf(file)


def _positive(name: str, value: int | None, *, default: int, at_most: int) -> int:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= at_most:
        raise ConfigError(f"{name} must be a whole number from 1 to {at_most}, not {value!r}")
    return value
