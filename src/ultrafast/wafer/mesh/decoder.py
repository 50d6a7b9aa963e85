"""A model executed on a mesh of PEs: each has its tile of every matrix, sums up its part, and the tree does the rest.

All PEs compute at once, as one numpy operation. What a PE does with its own numbers between two products (norms, RoPE,
softmax, gates) it does in fp32, and stores the result in 16 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ultrafast.errors import ConfigError, ModelFileError
from ultrafast.models.dequantize import dequantize
from ultrafast.models.gguf import GgufFile
from ultrafast.models.shape import ModelShape
from ultrafast.wafer.mesh.layout import Heads, spread, take, tiles
from ultrafast.wafer.mesh.numbers import Floats, Halves, Numbers, total


@dataclass(frozen=True)
class _Layer:
    attention_norm: Floats  # [rows, numbers of a PE]
    qkv: Floats  # tiles
    qkv_bias: Halves | None  # [columns * numbers of a PE]
    out: Floats
    feed_forward_norm: Floats
    gate_up: Floats
    down: Floats


class Decoder:
    """One sequence of a model on a mesh.

    A prompt goes through it at once here, but each of its tokens does what it would do alone.

    Args:
        rows, columns: PEs of the region that each layer has.

    Raises:
        ModelFileError: the model has parts that this does not execute.
    """

    def __init__(self, file: GgufFile, rows: int, columns: int, *, numbers: Numbers) -> None:
        self.shape = shape = ModelShape.from_gguf(file)
        _refuse_unsupported(file, shape)
        self.rows, self.columns, self.numbers, self.position = rows, columns, numbers, 0
        self._heads = Heads.of(shape, columns)
        self._hidden = spread(shape.hidden_size, rows)
        table = dequantize(file, "token_embd.weight")
        self._embedding = take(table, self._hidden, 1)
        self._layers = [self._load(file, f"blk.{layer}.") for layer in range(shape.num_layers)]
        self._norm = self._vector(file, "output_norm.weight")
        head = table if shape.tied_embeddings else dequantize(file, "output.weight")
        self._vocabulary = spread(shape.vocab_size, columns)
        self._head = tiles(head, self._vocabulary, self._hidden)
        self.restart(1)

    def restart(self, context: int) -> None:
        """Begin a sequence of so many positions at most.

        Raises:
            ConfigError: the model was made for fewer.
        """
        if context > self.shape.max_context:
            raise ConfigError(
                f"{context:,} positions; {self.shape.name} was made for {self.shape.max_context:,} at most"
            )
        self.position = 0
        layers, slots, width = self.shape.num_layers, -(-context // self.rows), self._heads.keys.shape[1]
        # Position p is in the cache of row p mod rows, so that all rows have as many as they would if the oldest moved
        # up from row to row (WaferLLM's shifted cache), and none has to move.
        self._keys = np.zeros((layers, self.columns, width, self.rows, slots), np.float32)
        self._values = np.zeros((layers, self.rows, slots, self.columns, width), np.float32)

    def forward(self, tokens: Sequence[int]) -> Floats:
        """Logits after each of the next tokens of the sequence: [tokens, vocabulary]."""
        positions = np.arange(self.position, self.position + len(tokens))
        self.position += len(tokens)
        x = self._blocks(self._embedding[list(tokens)], self.rows)
        for number, layer in enumerate(self._layers):
            x = x + self._attend(number, layer, self._normed(x, layer.attention_norm), positions)
            x = x + self._feed_forward(layer, self._normed(x, layer.feed_forward_norm))
        logits = self.numbers.multiply(self._normed(x, self._norm), self._head)
        return logits[:, self._vocabulary.ravel() >= 0].astype(np.float32)

    @property
    def tile_bytes(self) -> int:
        """Of the fullest PE: its tiles of a layer's matrices, and its share of that layer's cache, in 16 bits."""
        layer = self._layers[0]
        weights = sum(
            tile.size // (self.rows * self.columns) for tile in (layer.qkv, layer.out, layer.gate_up, layer.down)
        )
        cache = 2 * self._keys[0].size // (self.rows * self.columns)
        return int(2 * (weights + cache))

    def _load(self, file: GgufFile, block: str) -> _Layer:
        shape, hidden, heads = self.shape, self._hidden, self._heads
        feed_forward = spread(shape.intermediate_size, self.columns)
        q_size, kv_size = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        queries = heads.queries.reshape(self.columns, -1)
        values = np.where(heads.keys < 0, -1, heads.keys + kv_size)
        rows = np.concatenate([queries, *(np.where(one < 0, -1, one + q_size) for one in (heads.keys, values))], axis=1)
        qkv = np.concatenate([dequantize(file, f"{block}attn_{part}.weight") for part in "qkv"])
        bias = None
        if shape.qkv_bias:
            bias = take(np.concatenate([dequantize(file, f"{block}attn_{part}.bias") for part in "qkv"]), rows, 0)
        gate_up = np.concatenate([dequantize(file, f"{block}ffn_{part}.weight") for part in ("gate", "up")])
        both = np.concatenate(
            [feed_forward, np.where(feed_forward < 0, -1, feed_forward + shape.intermediate_size)], axis=1
        )
        return _Layer(
            attention_norm=self._vector(file, f"{block}attn_norm.weight"),
            qkv=tiles(qkv, rows, hidden),
            qkv_bias=bias,
            out=tiles(dequantize(file, f"{block}attn_output.weight"), hidden, queries),
            feed_forward_norm=self._vector(file, f"{block}ffn_norm.weight"),
            gate_up=tiles(gate_up, both, hidden),
            down=tiles(dequantize(file, f"{block}ffn_down.weight"), hidden, feed_forward),
        )

    def _vector(self, file: GgufFile, name: str) -> Floats:
        return take(dequantize(file, name), self._hidden, 0).reshape(self._hidden.shape).astype(np.float32)

    def _blocks(self, x: Halves, parts: int) -> Halves:
        """[PEs along the line, tokens, numbers of a PE], of [tokens, numbers of all]."""
        return x.reshape(len(x), parts, -1).transpose(1, 0, 2)

    def _normed(self, x: Halves, weight: Floats) -> Halves:
        wide = x.astype(np.float32)
        squares = total((wide * wide).sum(-1))  # [tokens]
        factor = 1 / np.sqrt(squares / self.shape.hidden_size + self.shape.rms_norm_eps)
        return (wide * factor[:, None] * weight[:, None]).astype(np.float16)

    def _attend(self, number: int, layer: _Layer, x: Halves, positions: npt.NDArray[np.int64]) -> Halves:
        count, (columns, group, width) = len(positions), self._heads.queries.shape
        qkv = self.numbers.multiply(x, layer.qkv)
        if layer.qkv_bias is not None:
            qkv = (qkv + layer.qkv_bias).astype(np.float16)
        qkv = qkv.reshape(count, columns, group + 2, width)
        angles = positions[:, None, None, None] * self._heads.frequency[:, None]
        rotated = _rotate(qkv[:, :, :-1].astype(np.float32), angles)
        rows, slots = positions % self.rows, positions // self.rows
        self._keys[number][:, :, rows, slots] = rotated[:, :, -1].transpose(1, 2, 0)
        self._values[number][rows, slots] = qkv[:, :, -1]
        used = int(positions[-1]) // self.rows + 1
        weights, sums = self._softmax(self._scores(number, rotated[:, :, :-1], used), positions)
        values = self._values[number][:, :used].reshape(self.rows, used, -1)
        attended = self.numbers.multiply(weights.reshape(self.rows, -1, used), values)
        attended = attended.reshape(count, group, -1, columns, width)
        # Each column keeps what is of its own heads.
        head = np.maximum(self._heads.head, 0)[None, None, None]
        own = (
            np.take_along_axis(attended, head, 2)[:, :, 0] / np.take_along_axis(sums[..., None, None], head, 2)[:, :, 0]
        )
        out = own.astype(np.float16).transpose(2, 0, 1, 3).reshape(columns, count, -1)
        return self._blocks(self.numbers.multiply(out, layer.out), self.rows)

    def _scores(self, number: int, queries: Floats, used: int) -> Halves:
        """[tokens, queries a key, KV heads, rows, slots]; a query's numbers meet the keys of their own head only."""
        count, columns, group, width = queries.shape
        own = self._heads.head == np.arange(self.shape.num_kv_heads)[:, None, None]  # [KV heads, columns, width]
        scaled = (queries * np.float32(self.shape.query_scale)).astype(np.float16)
        spread_out = np.where(own, scaled.transpose(0, 2, 1, 3)[:, :, None], np.float16(0))
        x = spread_out.transpose(3, 0, 1, 2, 4).reshape(columns, -1, width)
        keys = self._keys[number][..., :used].reshape(columns, width, -1)
        return self.numbers.multiply(x, keys).reshape(count, group, -1, self.rows, used)

    def _softmax(self, scores: Halves, positions: npt.NDArray[np.int64]) -> tuple[Halves, Floats]:
        """Weights before they are divided by their sum [rows, tokens, queries a key, KV heads, slots], and the sum."""
        rows, used = scores.shape[-2:]
        seen = np.arange(used) * rows + np.arange(rows)[:, None]
        hidden = seen > positions[:, None, None, None, None]
        wide = np.where(hidden, -np.inf, scores.astype(np.float32))
        weights = np.exp(wide - wide.max((-2, -1), keepdims=True)).astype(np.float16)
        weights = np.moveaxis(weights, -2, 0)
        return weights, total(weights.astype(np.float32).sum(-1))

    def _feed_forward(self, layer: _Layer, x: Halves) -> Halves:
        both = self.numbers.multiply(x, layer.gate_up).reshape(x.shape[1], self.columns, 2, -1).astype(np.float32)
        gate, up = both[:, :, 0], both[:, :, 1]
        inner = (gate / (1 + np.exp(-gate)) * up).astype(np.float16).transpose(1, 0, 2)
        return self._blocks(self.numbers.multiply(inner, layer.down), self.rows)


def _rotate(heads: Floats, angles: npt.NDArray[np.float64]) -> Floats:
    """Neighbours are coordinates in a plane; in halves, as they are stored."""
    pairs = heads.reshape(*heads.shape[:-1], -1, 2)
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    first, second = pairs[..., 0] * cos - pairs[..., 1] * sin, pairs[..., 0] * sin + pairs[..., 1] * cos
    return np.stack([first, second], -1).reshape(heads.shape).astype(np.float16).astype(np.float32)


def _refuse_unsupported(file: GgufFile, shape: ModelShape) -> None:
    parts = {
        "norms of queries and keys": shape.qk_norm,
        "norms after attention and feed-forward": shape.post_norms,
        "GELU": shape.gelu,
        "layers with a window": any(shape.windows),
    }
    found = [name for name, there in parts.items() if there]
    if found:
        raise ModelFileError(
            file.path,
            f"{shape.architecture} has {' and '.join(found)}, which are not executed on a mesh; llama and qwen2 are",
        )
