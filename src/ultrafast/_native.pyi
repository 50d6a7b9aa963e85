"""Types of the native extension (native/bindings.cpp). Only ultrafast.engine.native imports it."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

KV_BLOCK: int
MAX_DRAFT: int

def available_isas() -> list[str]: ...
def supported_isas() -> list[str]: ...
def read_speed(bytes: int, cpus: list[int], repeats: int) -> tuple[float, str]: ...
def matmul_speed(isa: str, type: int, cols: int, tokens: int, cpus: list[int]) -> float: ...
def attention_speed(isa: str, num_q: int, head_dim: int, cpus: list[int]) -> float: ...
def uniform_at(seed: int, position: int) -> float: ...
def dequantize(
    type: int, rows: int, cols: int, data: npt.NDArray[np.uint8], through_tiles: bool
) -> npt.NDArray[np.float32]: ...

class ModelConfig:
    def __init__(
        self,
        *,
        num_layers: int,
        hidden_size: int,
        intermediate_size: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        vocab_size: int,
        rms_norm_eps: float,
        rope_inv_freq: list[float],
        rope_halves: bool,
        query_scale: float,
        embedding_scale: float,
        gelu: bool,
        windows: list[int],
        local_rope_inv_freq: list[float],
    ) -> None: ...

class Constraint(Protocol):
    """What is asked, from any thread, for the tokens that may come next."""

    def mask_into(self, pointer: int) -> None: ...
    def accept(self, token: int) -> None: ...

class Sequence:
    def __init__(
        self,
        prompt: list[int],
        max_tokens: int,
        stop_tokens: list[int],
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        logit_bias: list[tuple[int, float]] = ...,
        seed: int = 0,
        num_logprobs: int = -1,
        draft_limit: int = 0,
        prediction: list[int] = ...,
        domain: str = "",
        replay: list[int] = ...,
        num_prompt_logprobs: int = -1,
        constraint: Constraint | None = None,
    ) -> None: ...
    block_table: list[int]
    num_computed: int
    @property
    def tokens(self) -> list[int]: ...
    @property
    def num_pending(self) -> int: ...
    @property
    def num_output(self) -> int: ...
    @property
    def num_accepted(self) -> int: ...
    @property
    def num_rejected(self) -> int: ...
    @property
    def finish(self) -> int: ...
    @property
    def error(self) -> str: ...
    def take_raised(self) -> Exception | None: ...
    @property
    def num_scored(self) -> int: ...
    def take_prompt_logprobs(self) -> list[tuple[float, list[tuple[int, float]]]]: ...
    def take(self) -> tuple[list[int], list[tuple[float, list[tuple[int, float]]]]]: ...

class Model:
    def __init__(
        self,
        config: ModelConfig,
        fd: int,
        tensors: list[tuple[str, int, int, int, int]],
        *,
        isa: str,
        cpus: list[int],
        num_blocks: int,
        max_rows: int,
        max_logits: int,
        max_context: int,
    ) -> None: ...
    def load_draft(
        self, config: ModelConfig, fd: int, tensors: list[tuple[str, int, int, int, int]], *, max_context: int
    ) -> None: ...
    def run(
        self, lane: int, burst: list[tuple[Sequence, int]], *, max_steps: int, time_limit_s: float, slice: bool = False
    ) -> tuple[int, bool]: ...
    def resume(self, lane: int, *, max_steps: int, time_limit_s: float, slice: bool = False) -> tuple[int, bool]: ...
    def abandon(self, lane: int) -> None: ...
    def all_logits(self, sequence: Sequence, chunk: int) -> npt.NDArray[np.float32]: ...
    def release_blocks(self, blocks: list[int]) -> None: ...
    def copy_block(self, source: int, target: int) -> None: ...
    def remember(self, domain: str, tokens: list[int]) -> None: ...
    def interrupt(self) -> None: ...
    def preempt(self) -> None: ...
    def profile(self, on: bool) -> tuple[list[tuple[str, int, int]], int]: ...
    @property
    def bytes_per_token(self) -> int: ...
    @property
    def num_pinned(self) -> int: ...
