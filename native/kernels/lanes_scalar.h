// Sixteen lanes in plain C++. This file defines the answer: the vector versions must return the same bits.
#pragma once

#include <cmath>

#include "kernels/f16.h"
#include "kernels/kernels.h"

namespace ultrafast {
namespace {

struct F32 { float v[16]; };
struct I32 { int32_t v[16]; };

#define ULTRAFAST_EACH(expression) \
  F32 r;                           \
  for (int i = 0; i < 16; ++i) r.v[i] = (expression); \
  return r

inline F32 set1(float a) { ULTRAFAST_EACH(a); }
inline F32 load(const float* p) { ULTRAFAST_EACH(p[i]); }
inline F32 load_f16(const uint16_t* p) { ULTRAFAST_EACH(f16_to_f32(p[i])); }
inline F32 load_bf16(const uint16_t* p) { ULTRAFAST_EACH(bf16_to_f32(p[i])); }
inline F32 load_u8(const uint8_t* p) { ULTRAFAST_EACH(static_cast<float>(p[i])); }
inline F32 load_i8(const uint8_t* p) { ULTRAFAST_EACH(static_cast<float>(static_cast<int8_t>(p[i]))); }
inline void store(float* p, F32 a) { for (int i = 0; i < 16; ++i) p[i] = a.v[i]; }
inline void store_f16(uint16_t* p, F32 a) { for (int i = 0; i < 16; ++i) p[i] = f32_to_f16(a.v[i]); }
inline F32 add(F32 a, F32 b) { ULTRAFAST_EACH(a.v[i] + b.v[i]); }
inline F32 sub(F32 a, F32 b) { ULTRAFAST_EACH(a.v[i] - b.v[i]); }
inline F32 mul(F32 a, F32 b) { ULTRAFAST_EACH(a.v[i] * b.v[i]); }
inline F32 div(F32 a, F32 b) { ULTRAFAST_EACH(a.v[i] / b.v[i]); }
inline F32 fma(F32 a, F32 b, F32 c) { ULTRAFAST_EACH(__builtin_fmaf(a.v[i], b.v[i], c.v[i])); }
// As the x86 instructions: the second operand where a comparison involves NaN.
inline F32 max(F32 a, F32 b) { ULTRAFAST_EACH(a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
inline F32 min(F32 a, F32 b) { ULTRAFAST_EACH(a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
inline F32 abs(F32 a) { ULTRAFAST_EACH(f32_from_bits(f32_to_bits(a.v[i]) & 0x7fffffffu)); }
inline F32 keep_first(F32 a, int n, float other) { ULTRAFAST_EACH(i < n ? a.v[i] : other); }
inline F32 drop_first(F32 a, int n, float other) { ULTRAFAST_EACH(i < n ? other : a.v[i]); }
inline F32 to_f32(I32 a) { ULTRAFAST_EACH(static_cast<float>(a.v[i])); }
inline F32 times_pow2(F32 a, I32 n) {
  ULTRAFAST_EACH(a.v[i] * f32_from_bits(static_cast<uint32_t>(n.v[i] + 127) << 23));
}
#undef ULTRAFAST_EACH

inline I32 round_to_i32(F32 a) {  // |a| < 2^31
  I32 r;
  for (int i = 0; i < 16; ++i) r.v[i] = static_cast<int32_t>(__builtin_rintf(a.v[i]));
  return r;
}

inline float reduce_add(F32 a) {
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) a.v[i] = a.v[i] + a.v[i + half];
  return a.v[0];
}
inline float reduce_max(F32 a) {
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) a.v[i] = a.v[i] > a.v[i + half] ? a.v[i] : a.v[i + half];
  return a.v[0];
}

// Writes one block of 32 fixed-point values (0 low half, 1 high half of each 32); returns their sum.
inline int32_t store_fixed(const ActRow& out, int offset, I32 a, I32 b) {
  constexpr int pair_order[4] = {0, 2, 1, 3};
  int32_t sum = 0;
  for (int i = 0; i < 32; ++i) {
    const int32_t q = i < 16 ? a.v[i] : b.v[i - 16];
    const int32_t hi = (q + 128) >> 8;
    out.hi[offset + i] = static_cast<int8_t>(hi);
    out.lo[offset + i] = static_cast<int8_t>(q - 256 * hi);
    out.pairs[offset + i / 4 * 4 + pair_order[i % 4]] = static_cast<int16_t>(q);
    sum += q;
  }
  return sum;
}

constexpr int kTokensPerPass = 4;
constexpr int kMinPanelTokens = 8;
constexpr int kTokensPerPanelPass = 4;
constexpr int kHeadsPerPass = 4;  // query heads that share one pass over keys and values

// A block's weights minus `offset`, laid out by row: a shape that any compiler turns into packed multiply-adds.
inline void unpack_nibbles(const uint8_t* tile, int offset, int16_t (*rows)[32]) {
  for (int j = 0; j < 4; ++j)
    for (int row = 0; row < 16; ++row)
      for (int c = 0; c < 4; ++c) {
        const uint8_t byte = tile[64 * j + 4 * row + c];
        rows[row][4 * j + c] = static_cast<int16_t>((byte & 15) - offset);
        rows[row][16 + 4 * j + c] = static_cast<int16_t>((byte >> 4) - offset);
      }
}

inline void unpack_bytes(const uint8_t* tile, int offset, int16_t (*rows)[32]) {
  for (int j = 0; j < 8; ++j)
    for (int row = 0; row < 16; ++row)
      for (int c = 0; c < 4; ++c) rows[row][4 * j + c] = static_cast<int16_t>(tile[64 * j + 4 * row + c] - offset);
}

inline void unpack_five_bits(const uint8_t* block, int offset, int16_t (*rows)[32]) {
  unpack_nibbles(block, offset, rows);
  for (int i = 0; i < 32; ++i)
    for (int row = 0; row < 16; ++row)
      rows[row][i] = static_cast<int16_t>(rows[row][i] + (block[256 + 4 * row + i % 4] >> i / 4 & 1) * 16);
}

inline void unpack_six_bits(const uint8_t* block, int offset, int16_t (*rows)[32]) {
  unpack_nibbles(block, offset, rows);
  for (int i = 0; i < 32; ++i)
    for (int row = 0; row < 16; ++row)
      rows[row][i] = static_cast<int16_t>(rows[row][i] + (block[256 + i / 16 * 64 + 4 * row + i % 4] >> i / 4 % 4 * 2 & 3) * 16);
}

// Integer dot products of a block's part number `part` of kParts with the same inputs of M tokens.
template <int M, int kParts>
inline void dot_pairs(const int16_t (*rows)[32], int part, const ActRow* x, int offset, I32* dots) {
  constexpr int kInputs = 32 / kParts;
  const int first = part * kInputs;
  for (int t = 0; t < M; ++t) {
    int16_t input[kInputs];
    for (int i = 0; i < kInputs; ++i)
      input[i] = static_cast<int16_t>(256 * x[t].hi[offset + first + i] + x[t].lo[offset + first + i]);
    for (int row = 0; row < 16; ++row) {
      int32_t total = 0;
      for (int i = 0; i < kInputs; ++i) total += rows[row][first + i] * input[i];
      dots[t].v[row] = total;
    }
  }
}

// The same straight from a tile: dots[t] = sum of quants * (256 * hi + lo).
template <int M>
inline void dot_nibbles(const uint8_t* tile, const ActRow* x, int offset, I32* dots) {
  int16_t rows[16][32];
  unpack_nibbles(tile, 0, rows);
  dot_pairs<M, 1>(rows, 0, x, offset, dots);
}

template <int M>
inline void dot_bytes(const uint8_t* tile, const ActRow* x, int offset, I32* dots) {
  int16_t rows[16][32];
  unpack_bytes(tile, 0, rows);
  dot_pairs<M, 1>(rows, 0, x, offset, dots);
}

template <int M>
inline void dot_five_bits(const uint8_t* block, const ActRow* x, int offset, I32* dots) {
  int16_t rows[16][32];
  unpack_five_bits(block, 0, rows);
  dot_pairs<M, 1>(rows, 0, x, offset, dots);
}

// First the dot products of the first 16 inputs, then those of the others.
template <int M>
inline void dot_six_bits(const uint8_t* block, const ActRow* x, int offset, I32* dots) {
  int16_t rows[16][32];
  unpack_six_bits(block, 0, rows);
  for (int part = 0; part < 2; ++part) dot_pairs<M, 2>(rows, part, x, offset, dots + part * M);
}

inline int32_t sum_of_16(const ActRow& x, int offset) {
  int32_t sum = 0;
  for (int i = 0; i < 16; ++i) sum += x.pairs[offset + i];
  return sum;
}

inline I32 sub_i32(I32 a, int32_t y) {
  for (int i = 0; i < 16; ++i) a.v[i] -= y;
  return a;
}

inline void prefetch(const void*) {}

}  // namespace
}  // namespace ultrafast
