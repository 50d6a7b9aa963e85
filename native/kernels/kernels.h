// The math of the engine: one table of function pointers per instruction set.
//
// Rules for everything in this folder:
//  - kernels take row ranges and plain pointers; they know no threads, allocation, Python or exceptions;
//  - files built for one instruction set contain intrinsics, fixed-width types and internal-linkage functions only, so
//    that the linker can never hand code built for one processor to another (tests/test_kernel_symbols.py checks);
//  - every kernel fixes its accumulation order per output element, whatever the number of rows, tokens or workers,
//    and all instruction sets use the same order and the same fused multiply-adds: their results are equal bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ultrafast {

constexpr int kLanes = 16;     // output rows of a tile
constexpr int kBlock = 32;     // inputs of a quantised block, and of one activation scale
constexpr int kSuperBlock = 256;  // inputs of a tile whose blocks share factors
constexpr int kKvBlock = 64;   // positions of a KV block, and of one attention chunk

// Weight formats in memory. A tile is 16 output rows x 32 inputs; quantised tiles of one row group follow each other.
//   kQ4_0  nibbles, 16 f16 scales                                      weight = scale * (q - 8)
//   kQ4_1  nibbles, 16 f16 scales, 16 f16 minima                       weight = scale * q + minimum
//   kQ5_0  nibbles, fifth bits, 16 f16 scales                          weight = scale * (q - 16)
//   kQ5_1  nibbles, fifth bits, 16 f16 scales, 16 f16 minima           weight = scale * q + minimum
//   kQ8_0  512 B bytes, 16 f16 scales                                  weight = scale * (byte - 128)
//   kF16, kBF16, kF32   per input 16 values                            weight = value
// Tiles of 16 rows x 256 inputs: f16 factors of the rows, then eight blocks of 32 inputs.
//   kQ4_K  16 d, 16 dmin; nibbles, 16 u8 scales, 16 u8 minima          weight = (d * scale) * q - (dmin * minimum)
//   kQ5_K  16 d, 16 dmin; nibbles, fifth bits, u8 as above             weight = (d * scale) * q - (dmin * minimum)
//   kQ6_K  16 d; nibbles, upper bits, 16 i8 scales of the block's
//          first 16 inputs, 16 of the others                           weight = (d * scale) * (q - 32)
// A block's 32 inputs make eight vectors of 16 rows x 4 inputs: element [4 * row + c] of vector k is input 4k + c.
//   bytes       512 B: the vectors in turn.
//   nibbles     256 B, the lower four bits: byte [64 * k + 4 * row + c], k < 4, holds vector k low and vector k + 4 high.
//   fifth bits   64 B: byte [4 * row + c], bit k, is of vector k.
//   upper bits  128 B, bits five and six: byte [64 * h + 4 * row + c], bits 2k and 2k + 1, k < 4, are of vector 4h + k.
enum class TileKind : int { kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ4_K, kQ5_K, kQ6_K, kF16, kBF16, kF32 };
constexpr int kNumTileKinds = 11;

constexpr bool is_quantized(TileKind kind) { return kind <= TileKind::kQ6_K; }

// Inputs of a tile; a quantised matrix has whole tiles.
constexpr int tile_cols(TileKind kind) {
  return kind == TileKind::kQ4_K || kind == TileKind::kQ5_K || kind == TileKind::kQ6_K ? kSuperBlock : kBlock;
}

constexpr size_t tile_bytes(TileKind kind) {
  switch (kind) {
    case TileKind::kQ4_0: return 256 + 32;
    case TileKind::kQ4_1: return 256 + 64;
    case TileKind::kQ5_0: return 256 + 64 + 32;
    case TileKind::kQ5_1: return 256 + 64 + 64;
    case TileKind::kQ8_0: return 512 + 32;
    case TileKind::kQ4_K: return 64 + 8 * (256 + 32);
    case TileKind::kQ5_K: return 64 + 8 * (256 + 64 + 32);
    case TileKind::kQ6_K: return 32 + 8 * (256 + 128 + 32);
    case TileKind::kF16:
    case TileKind::kBF16: return kBlock * kLanes * 2;
    case TileKind::kF32: return kBlock * kLanes * 4;
  }
  return 0;
}

// Bytes of a row group (16 rows x cols inputs).
constexpr size_t group_bytes(TileKind kind, int cols) {
  return tile_bytes(kind) * static_cast<size_t>(cols) / static_cast<size_t>(tile_cols(kind));
}

// One token's input to a matrix. Quantised matrices read 16-bit fixed point per block of 32 inputs,
// x = scale * (256 * hi + lo); others read f32.
struct ActRow {
  int8_t* hi;         // [cols]
  int8_t* lo;         // [cols]
  int16_t* pairs;     // [cols] 256 * hi + lo, each four inputs ordered 0 2 1 3
  float* scale;       // [cols / 32]
  float* scaled_sum;  // [cols / 32] scale * sum of the block's integers
  int32_t* sum;       // [cols / 32]
  float* f32;         // [cols]
};

struct AttentionChunk {
  const float* q = nullptr;       // [num_q][head_dim], scaled: query heads that share this KV head
  int num_q = 0;
  int head_dim = 0;
  int padded_dim = 0;             // head_dim rounded up to 16: row length of v and acc
  const uint16_t* k = nullptr;    // f16 [kKvBlock / 16][head_dim][16]: transposed in groups of 16 positions
  const uint16_t* v = nullptr;    // f16 [kKvBlock][padded_dim]
  int first = 0;                  // valid positions: [first, length), 0 <= first < length <= kKvBlock
  int length = 0;
  const uint16_t* next = nullptr; // k and v of the chunk that this worker reads next, brought near meanwhile; may be null
  // Results for this chunk alone: softmax numerators relative to the chunk's own maximum.
  float* max = nullptr;           // [num_q]
  float* sum = nullptr;           // [num_q]
  float* acc = nullptr;           // [num_q][padded_dim]
};

struct KernelTable {
  const char* name;

  // out[t * out_stride + 16 * g + lane] = sum over inputs of row 16 * g + lane times token t, for g < num_groups, t < num_tokens.
  // Order: blocks ascending; within a block the integer dot product is exact.
  void (*matmul[kNumTileKinds])(const uint8_t* tiles, int num_groups, int cols, const ActRow* x, int num_tokens, float* out,
                                ptrdiff_t out_stride);

  // out = x / sqrt(mean(x^2) + eps) * weight; 16 partial sums, element i in sum i % 16, then a halving tree.
  void (*rms_norm)(const float* x, const float* weight, int n, float eps, float* out);

  // Fills hi, lo, pairs, scale, scaled_sum, sum from x[n]; n % 32 == 0. Rounds to nearest even.
  void (*quantize)(const float* x, int n, const ActRow& out);

  // Rotates consecutive pairs (x[2i], x[2i+1]) by the angle with cos_sin[2i], cos_sin[2i+1]; n even.
  void (*rope)(float* x, const float* cos_sin, int n);

  // out[i] = gate[i] * sigmoid(gate[i]) * up[i].
  void (*silu_mul)(const float* gate, const float* up, int n, float* out);

  // out[i] = gelu(gate[i]) * up[i], gelu(x) = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
  void (*gelu_mul)(const float* gate, const float* up, int n, float* out);

  void (*attention)(const AttentionChunk& chunk);

  // Folds the next chunk's (max, sum, acc) of one query head into the running ones; dim % 16 == 0.
  void (*attention_merge)(float* max, float* sum, float* acc, float chunk_max, float chunk_sum, const float* chunk_acc, int dim);

  void (*add)(float* x, const float* y, int n);               // x += y
  void (*scale)(float* x, float factor, int n);               // x *= factor
  void (*to_f16)(const float* x, uint16_t* out, int n);       // clamped to the finite range, round to nearest even

  // Index of the largest value; the lowest index wins a tie; NaN never wins. n >= 1.
  int (*argmax)(const float* x, int n);

  // out[i] = exp((x[i] - max) * factor); returns the sum: 16 partial sums, then a halving tree.
  float (*softmax_numerators)(const float* x, int n, float max, float factor, float* out);
};

extern const KernelTable kernel_table_scalar;
extern const KernelTable kernel_table_avx2;
extern const KernelTable kernel_table_avx512vnni;

}  // namespace ultrafast
