"""The time below which this machine cannot do a piece of work: its bytes or its multiply-adds, whichever take longer.

Both speeds are measured in the same round as the engine, because those of a shared machine change from minute to
minute: memory by reading as many bytes as the weights have, arithmetic by the kernels themselves over data in cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ultrafast.engine import memory, native
from ultrafast.models.gguf import GgufFile

if TYPE_CHECKING:
    from ultrafast.engine.engine import Engine

_PROMPT_TOKENS = 128  # of one kernel call when the arithmetic of a prompt is measured


@dataclass(frozen=True, slots=True)
class Work:
    """What must happen, whoever does it: bytes read, and multiply-adds of the matrices and of attention."""

    bytes: float
    matmul: float
    attention: float
    tokens: int  # that share one pass over the weights


@dataclass(frozen=True, slots=True)
class Bound:
    """The least seconds for some work: to read its bytes, and to do its arithmetic."""

    bytes_s: float
    arithmetic_s: float


class Demand:
    """The work of a model's steps."""

    def __init__(self, engine: Engine) -> None:
        shape = engine.shape
        self.weight_bytes = engine.weight_bytes
        self.kv_bytes = memory.kv_block_bytes(shape, isa=engine.isa) / native.KV_BLOCK  # of one position
        self._layers = sum(
            rows * cols for name, rows, cols in shape.tensor_names() if name.startswith("blk.") and rows > 1
        )
        self._output = shape.vocab_size * shape.hidden_size
        self._attention = 2 * shape.num_layers * shape.num_heads * shape.head_dim  # of one position attended to

    def decode_step(self, context: float, sequences: int) -> Work:
        """One step of ``sequences``, each with ``context`` positions so far."""
        return Work(
            bytes=self.weight_bytes + sequences * context * self.kv_bytes,
            matmul=sequences * (self._layers + self._output),
            attention=sequences * context * self._attention,
            tokens=sequences,
        )

    def prompt(self, length: int) -> Work:
        """A whole prompt in one pass over the weights: attention over half of it on average, one row of logits."""
        return Work(
            bytes=self.weight_bytes + length * self.kv_bytes,
            matmul=length * self._layers + self._output,
            attention=length * (length + 1) / 2 * self._attention,
            tokens=_PROMPT_TOKENS,
        )


class MachineSpeed:
    """What the machine can do at this moment, measured when it is first asked for."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._matmul: dict[int, float] = {}
        self.read = native.read_speed(engine.weight_bytes, engine.threads)

    def matmul(self, tokens: int) -> float:
        """Multiply-adds per second when ``tokens`` share each load of a weight."""
        if tokens not in self._matmul:
            engine = self._engine
            file_type, cols = _main_matrix(engine)
            self._matmul[tokens] = native.matmul_speed(
                isa=engine.isa, type=file_type, cols=cols, tokens=tokens, threads=engine.threads
            )
        return self._matmul[tokens]

    @cached_property
    def attention(self) -> float:
        """Multiply-adds per second of attention."""
        engine, shape = self._engine, self._engine.shape
        queries = shape.num_heads // shape.num_kv_heads
        return native.attention_speed(isa=engine.isa, num_q=queries, head_dim=shape.head_dim, threads=engine.threads)

    def bound(self, work: Work) -> Bound:
        """The least time for ``work``. The plain reference has no kernels: there only bytes count."""
        arithmetic_s = 0.0
        if self._engine.isa != native.REFERENCE:
            arithmetic_s = work.matmul / self.matmul(work.tokens) + work.attention / self.attention
        return Bound(work.bytes / self.read.bytes_per_s, arithmetic_s)


def _main_matrix(engine: Engine) -> tuple[int, int]:
    """The tensor type and the columns that most bytes of the layers' matrices have together."""
    sizes: dict[tuple[int, int], int] = {}
    with GgufFile(engine.path) as file:
        for name, rows, cols in engine.shape.tensor_names():
            if name.startswith("blk.") and rows > 1:
                tensor = file.tensors[name]
                key = int(tensor.type), cols
                sizes[key] = sizes.get(key, 0) + tensor.nbytes
    return max(sizes, key=sizes.__getitem__)
