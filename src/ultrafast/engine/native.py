"""The only door to the native extension: instruction sets by name, a loaded model, its sequences."""

from __future__ import annotations

import os
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ultrafast import _native
from ultrafast.engine import topology
from ultrafast.errors import ConfigError, IsaError, ModelFileError, ResourceError
from ultrafast.models.gguf import GgufFile
from ultrafast.models.shape import ModelShape
from ultrafast.types import FinishReason, SamplingParams

KV_BLOCK: int = _native.KV_BLOCK
"""Positions of a KV block."""

MAX_DRAFT: int = _native.MAX_DRAFT
"""Tokens that a step can draft and verify for one sequence."""

REFERENCE = "reference"
"""The plain fp32 path: not an instruction set, but chosen like one."""

_FINISH = (None, FinishReason.STOP, FinishReason.LENGTH, None)  # order of native Finish; the last is a failure


def available_isas() -> list[str]:
    """Instruction sets built in, best first."""
    return _native.available_isas()


def supported_isas() -> list[str]:
    """Instruction sets that this processor runs, best first."""
    return _native.supported_isas()


def choose_isa(name: str | None = None) -> str:
    """The instruction set to use: ``name``, else ``ULTRAFAST_ISA``, else the best that this processor runs.

    Raises:
        IsaError: the name is unknown, or not supported here.
    """
    source = "isa" if name else "ULTRAFAST_ISA"
    name = name or os.environ.get("ULTRAFAST_ISA") or None
    if name is None:
        return supported_isas()[0]
    choices = [*supported_isas(), REFERENCE]
    if name in choices:
        return name
    problem = "is not supported by this processor" if name in available_isas() else "is unknown"
    raise IsaError(f"{source}={name!r} {problem}; choose one of: {', '.join(choices)}")


def worker_cpus(threads: int) -> list[int]:
    """CPUs to pin ``threads`` workers to: one a physical core that this process may use, -1 (not pinned) past them.

    Under a quota smaller than the cores nobody is pinned: every such process would pin to the same first cores.
    """
    machine = topology.detect()
    cpus = topology.default_threads(machine)
    if len(cpus) < len(machine.cores):
        cpus = []
    return (cpus + [-1] * threads)[:threads]


class ReadSpeed(NamedTuple):
    """How fast memory can be read, and which way of reading was the fastest."""

    bytes_per_s: float
    method: str


_READS = 7  # of which the median counts: a decode speed beside it is a mean over many steps, not the best of them


def read_speed(bytes: int, threads: int) -> ReadSpeed:
    """The speed at which ``threads`` workers read ``bytes`` of memory: the best of several ways, by medians."""
    return ReadSpeed(*_native.read_speed(bytes, worker_cpus(threads), _READS))


def matmul_speed(*, isa: str, type: int, cols: int, tokens: int, threads: int) -> float:
    """Multiply-adds per second of the matrix kernel on ``threads`` workers when all that it reads is in cache.

    Args:
        isa: not the reference, which has no such kernel.
        type: tensor type of the file.
        cols: inputs of a row, a multiple of 32 and of the type's block.
        tokens: computed in one call.
    """
    return _native.matmul_speed(isa, type, cols, tokens, worker_cpus(threads))


def attention_speed(*, isa: str, num_q: int, head_dim: int, threads: int) -> float:
    """The same for the attention kernel: ``num_q`` query heads that share a KV head."""
    return _native.attention_speed(isa, num_q, head_dim, worker_cpus(threads))


def dequantize(type: int, rows: int, cols: int, data: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """A tensor of the file as float32 [rows, cols], by way of the tiles that the engine computes with."""
    return _native.dequantize(type, rows, cols, data, True)


class StageTime(NamedTuple):
    """Seconds of one worker in a stage: at work, and waiting for the others."""

    work_s: float
    wait_s: float


@dataclass(frozen=True, slots=True)
class Profile:
    """Where the time of ``steps`` steps went, by stage in the order of a step; empty if nothing was profiled."""

    stages: dict[str, StageTime]
    steps: int


class Lane(IntEnum):
    """Who computes. A step of one lane may be suspended between two layers while the other lane runs."""

    URGENT = 0  # never suspended
    SHARED = 1


class Ran(NamedTuple):
    """What became of a burst: steps finished, and whether one more is suspended."""

    steps: int
    suspended: bool


class NativeSequence:
    """A request's running state on the native side.

    Args:
        prompt_ids: not empty.
        params: ranges already checked.
        max_tokens: output tokens at most.
        stop_ids: tokens that end the output.
        draft_limit: tokens drafted in a step, `MAX_DRAFT` at most; 0 drafts none. The tokens do not depend on it.
        prediction: what the output probably is.
        domain: whose past outputs, as `NativeModel.remember` got them, may become drafts.
        replay: for measurements: output tokens that take the place of the sampler's picks.
        prompt_logprobs: of the prompt's second token and on, each with so many of the most likely; None: off.
        constraint: ``accept(token)`` follows the output, and ``mask_into(address)`` then sets bit t % 32 of the uint32
            word t // 32, all 0 before, for each token t that may be next: no other is picked. It is asked along the
            output alone, whatever is drafted, and never told of the last token. Log-probabilities stay the model's own.
            Called from any of the workers, with the GIL; what it raises ends the sequence (`take_error`).
    """

    __slots__ = ("handle",)

    def __init__(
        self,
        prompt_ids: Seq[int],
        params: SamplingParams,
        *,
        max_tokens: int,
        stop_ids: Seq[int],
        draft_limit: int = 0,
        prediction: Seq[int] = (),
        domain: str = "",
        replay: Seq[int] = (),
        prompt_logprobs: int | None = None,
        constraint: _native.Constraint | None = None,
    ) -> None:
        self.handle = _native.Sequence(
            list(prompt_ids),
            max_tokens,
            list(stop_ids),
            temperature=float(params.temperature),
            top_k=int(params.top_k),
            top_p=float(params.top_p),
            min_p=float(params.min_p),
            repetition_penalty=float(params.repetition_penalty),
            presence_penalty=float(params.presence_penalty),
            frequency_penalty=float(params.frequency_penalty),
            logit_bias=sorted((int(token), float(bias)) for token, bias in params.logit_bias.items()),
            seed=int(params.seed) & 0xFFFF_FFFF_FFFF_FFFF,
            num_logprobs=-1 if params.logprobs is None else int(params.logprobs),
            draft_limit=draft_limit,
            prediction=list(prediction),
            domain=domain,
            replay=list(replay),
            num_prompt_logprobs=-1 if prompt_logprobs is None else int(prompt_logprobs),
            constraint=constraint,
        )

    def begin(self, blocks: list[int], num_computed: int) -> None:
        """Take ``blocks`` for all positions; the first ``num_computed`` of them are computed, never the last token."""
        self.handle.block_table = blocks
        self.handle.num_computed = num_computed

    @property
    def num_pending(self) -> int:
        """Tokens whose keys and values are still to be computed; 1 while decoding."""
        return self.handle.num_pending

    @property
    def num_accepted(self) -> int:
        """Drafted tokens that became output."""
        return self.handle.num_accepted

    @property
    def num_rejected(self) -> int:
        """Drafted tokens that did not."""
        return self.handle.num_rejected

    @property
    def num_scored(self) -> int:
        """Prompt tokens whose log-probabilities are known."""
        return self.handle.num_scored

    @property
    def finish_reason(self) -> FinishReason | None:
        """Set when a stop token was sampled or the last token allowed; without output, when the prompt is computed."""
        return _FINISH[self.handle.finish]

    def take_error(self) -> Exception | None:
        """Why the sequence has failed, if it has: what its constraint raised, or that it allowed no token. Once."""
        if not self.handle.error:
            return None
        return self.handle.take_raised() or RuntimeError(self.handle.error)


class NativeModel:
    """A model in memory, ready to run bursts. One thread at a time, except for `interrupt`.

    Args:
        num_blocks: KV blocks; their memory is taken when they are first written.
        max_rows: tokens computed in one step.
        max_logits: tokens that may be sampled in one step: one for every sequence, the rest for drafts.
        max_context: positions of the longest sequence.

    Raises:
        ResourceError: the memory or the threads cannot be had.
    """

    def __init__(
        self,
        file: GgufFile,
        shape: ModelShape,
        *,
        isa: str,
        cpus: list[int],
        num_blocks: int,
        max_rows: int,
        max_logits: int,
        max_context: int,
    ) -> None:
        with _refusals(file, max_context, len(cpus)):
            self._model = _native.Model(
                _config(shape),
                file.fileno(),
                _tensors(file, shape),
                isa=isa,
                cpus=cpus,
                num_blocks=num_blocks,
                max_rows=max_rows,
                max_logits=max_logits,
                max_context=max_context,
            )
        self._vocab_size, self._max_context, self._num_workers = shape.vocab_size, max_context, len(cpus)

    def load_draft(self, file: GgufFile, shape: ModelShape) -> None:
        """Have a smaller model draft, where nothing better is found. Once, before any burst.

        Raises:
            ConfigError: its vocabulary is another.
            ResourceError: the memory cannot be had.
        """
        if shape.vocab_size != self._vocab_size:
            raise ConfigError(
                f"{file.path} cannot draft: it has a vocabulary of {shape.vocab_size} tokens, the model one of "
                f"{self._vocab_size}; choose a smaller model of the same family"
            )
        with _refusals(file, self._max_context, self._num_workers):
            self._model.load_draft(_config(shape), file.fileno(), _tensors(file, shape), max_context=shape.max_context)

    @property
    def bytes_per_token(self) -> int:
        """Weight bytes that one decode step reads."""
        return self._model.bytes_per_token

    @property
    def num_pinned(self) -> int:
        """Workers that the system let us pin."""
        return self._model.num_pinned

    def run(
        self,
        lane: Lane,
        burst: list[tuple[NativeSequence, int]],
        *,
        max_steps: int,
        time_limit_s: float,
        slice: bool = False,
    ) -> Ran:
        """Run up to ``max_steps`` steps of (sequence, prefill chunk) pairs.

        Args:
            lane: not suspended.
            burst: kept alive by the caller while the lane is suspended.
            max_steps: steps at most.
            time_limit_s: looked at after every step; with ``slice``, which needs the shared lane, after every layer.
            slice: suspend the lane when the time is over, instead of finishing the step.
        """
        handles = [(sequence.handle, chunk) for sequence, chunk in burst]
        return Ran(*self._model.run(lane, handles, max_steps=max_steps, time_limit_s=time_limit_s, slice=slice))

    def resume(self, lane: Lane, *, max_steps: int, time_limit_s: float, slice: bool = False) -> Ran:
        """Go on with a suspended lane; arguments as for `run`."""
        return Ran(*self._model.resume(lane, max_steps=max_steps, time_limit_s=time_limit_s, slice=slice))

    def abandon(self, lane: Lane) -> None:
        """Give the lane's suspended step up: its sequences are as they were before it."""
        self._model.abandon(lane)

    def copy_block(self, source: int, target: int) -> None:
        """Copy keys and values of all positions of a KV block."""
        self._model.copy_block(source, target)

    def all_logits(self, sequence: NativeSequence, chunk: int) -> npt.NDArray[np.float32]:
        """Logits after every token of a fresh sequence: float32 [tokens, vocab]."""
        return self._model.all_logits(sequence.handle, chunk)

    def release_blocks(self, blocks: list[int]) -> None:
        """Give the memory of KV blocks that nobody holds back to the system; it returns, as zeros, when written."""
        self._model.release_blocks(blocks)

    def remember(self, domain: str, token_ids: Seq[int]) -> None:
        """Keep what a request of ``domain`` said: later ones of the same domain may say it again, and draft it.

        Where the tokens begin with the last ones of the prompt, its repetition finds them before it has any output.
        """
        self._model.remember(domain, list(token_ids))

    def interrupt(self) -> None:
        """End the running burst, or the next if none runs, after a step; nothing once closed. Thread-safe."""
        with suppress(AttributeError):  # another thread may be closing just now
            self._model.interrupt()

    def preempt(self) -> None:
        """The same, but suspend a burst of the shared lane after its current layer."""
        with suppress(AttributeError):
            self._model.preempt()

    def profile(self, on: bool) -> Profile:
        """What worker 0 did since profiling was switched on; then start a new profile, or with ``on`` false stop."""
        stages, steps = self._model.profile(on)
        return Profile({name: StageTime(work / 1e9, wait / 1e9) for name, work, wait in stages}, steps)

    def close(self) -> None:
        """Free the model's memory; nothing may be called afterwards."""
        del self._model


def _config(shape: ModelShape) -> _native.ModelConfig:
    return _native.ModelConfig(
        num_layers=shape.num_layers,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        vocab_size=shape.vocab_size,
        rms_norm_eps=shape.rms_norm_eps,
        rope_inv_freq=list(shape.rope_inv_freq),
        rope_halves=shape.rope_halves,
        query_scale=shape.query_scale,
        embedding_scale=shape.embedding_scale,
        gelu=shape.gelu,
        windows=list(shape.windows),
        local_rope_inv_freq=list(shape.local_rope_inv_freq),
    )


def _tensors(file: GgufFile, shape: ModelShape) -> list[tuple[str, int, int, int, int]]:
    return [
        (name, int(file.tensors[name].type), rows, cols, file.tensors[name].offset)
        for name, rows, cols in shape.tensor_names()
    ]


@contextmanager
def _refusals(file: GgufFile, max_context: int, num_workers: int) -> Iterator[None]:
    """Say in our words why a model could not be loaded."""
    try:
        yield
    except IndexError:
        raise ModelFileError(file.path, "became shorter while it was read; has somebody replaced it?") from None
    except MemoryError:
        raise ResourceError(
            f"the system refused the memory for {file.path} with a context of {max_context} tokens; "
            "choose a smaller context or a smaller model"
        ) from None
    except RuntimeError as error:  # std::system_error, of a thread that could not start
        raise ResourceError(f"the system refused {num_workers} threads ({error}); choose fewer (--threads)") from None
