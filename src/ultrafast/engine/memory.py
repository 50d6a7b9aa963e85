"""How much memory a model takes, and how many KV blocks the machine has room for."""

from __future__ import annotations

from ultrafast.engine.native import KV_BLOCK, REFERENCE
from ultrafast.errors import ResourceError
from ultrafast.models.gguf import GgufFile
from ultrafast.models.shape import ModelShape

_KV_SHARE = 0.6  # of what the weights leave: the rest is for activations, Python and neighbours


def kv_block_bytes(shape: ModelShape, *, isa: str = "") -> int:
    """Bytes of one KV block: keys and values of `KV_BLOCK` positions in all layers (value rows padded to 16)."""
    element_bytes = 4 if isa == REFERENCE else 2
    per_head = shape.head_dim + -(-shape.head_dim // 16) * 16
    return KV_BLOCK * shape.num_layers * shape.num_kv_heads * per_head * element_bytes


def weight_bytes(file: GgufFile, shape: ModelShape, *, isa: str) -> int:
    """Bytes of the weights in memory: those of the file (Q4_K: +3 %), or four a parameter for the fp32 reference."""
    if isa == REFERENCE:
        return shape.num_parameters * 4
    return sum(file.tensors[name].nbytes for name, _, _ in shape.tensor_names())


def plan_kv_blocks(
    file: GgufFile,
    shape: ModelShape,
    *,
    isa: str,
    context: int,
    num_slots: int,
    available: int,
    draft: tuple[GgufFile, ModelShape] | None = None,
) -> int:
    """KV blocks to reserve: a full context for every slot, or what fits; memory is taken only when it is used.

    A draft model has as many blocks of its own.

    Raises:
        ResourceError: not even one sequence of ``context`` tokens fits; the message has the numbers.
    """
    models = [(file, shape)] if draft is None else [(file, shape), draft]
    weights = sum(weight_bytes(*model, isa=isa) for model in models)
    block = sum(kv_block_bytes(shape, isa=isa) for _, shape in models)
    one_context = -(-context // KV_BLOCK)
    room = int((available - weights) * _KV_SHARE)
    if room < one_context * block:
        raise ResourceError(
            f"{file.path} needs {_mib(weights)} for weights and {_mib(one_context * block)} for a context of {context} "
            f"tokens; {_mib(available)} are available. Choose a smaller context (--context) or model"
        )
    return min(num_slots * one_context, room // block)


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"
