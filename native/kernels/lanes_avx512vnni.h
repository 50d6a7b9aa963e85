// Sixteen lanes as one 512-bit vector (AVX-512 F, BW, DQ, VL, VNNI). Same results as lanes_scalar.h.
#pragma once

#ifdef ULTRAFAST_EMULATE_AVX512  // native/tests run this file on processors without AVX-512
#include "tests/emulate_avx512.h"
#else
#include <immintrin.h>
#endif

#include "kernels/kernels.h"

namespace ultrafast {
namespace {

struct F32 { __m512 v; };
struct I32 { __m512i v; };

inline F32 set1(float x) { return {_mm512_set1_ps(x)}; }
inline F32 load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline F32 load_f16(const uint16_t* p) { return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))}; }
inline F32 load_bf16(const uint16_t* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
inline F32 load_u8(const uint8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
inline F32 load_i8(const uint8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
inline void store(float* p, F32 x) { _mm512_storeu_ps(p, x.v); }
inline void store_f16(uint16_t* p, F32 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT));
}
inline F32 add(F32 x, F32 y) { return {_mm512_add_ps(x.v, y.v)}; }
inline F32 sub(F32 x, F32 y) { return {_mm512_sub_ps(x.v, y.v)}; }
inline F32 mul(F32 x, F32 y) { return {_mm512_mul_ps(x.v, y.v)}; }
inline F32 div(F32 x, F32 y) { return {_mm512_div_ps(x.v, y.v)}; }
inline F32 fma(F32 x, F32 y, F32 z) { return {_mm512_fmadd_ps(x.v, y.v, z.v)}; }
inline F32 max(F32 x, F32 y) { return {_mm512_max_ps(x.v, y.v)}; }
inline F32 min(F32 x, F32 y) { return {_mm512_min_ps(x.v, y.v)}; }
inline F32 abs(F32 x) { return {_mm512_abs_ps(x.v)}; }
inline F32 keep_first(F32 x, int n, float other) {
  const auto mask = static_cast<__mmask16>(n >= 16 ? 0xffff : (1 << n) - 1);
  return {_mm512_mask_blend_ps(mask, _mm512_set1_ps(other), x.v)};
}
inline F32 drop_first(F32 x, int n, float other) {
  const auto mask = static_cast<__mmask16>(n <= 0 ? 0 : n >= 16 ? 0xffff : (1 << n) - 1);
  return {_mm512_mask_blend_ps(mask, x.v, _mm512_set1_ps(other))};
}
inline F32 to_f32(I32 x) { return {_mm512_cvtepi32_ps(x.v)}; }
inline F32 times_pow2(F32 x, I32 n) {
  return {_mm512_mul_ps(x.v, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n.v, _mm512_set1_epi32(127)), 23)))};
}
inline I32 round_to_i32(F32 x) { return {_mm512_cvtps_epi32(x.v)}; }

inline __m256 upper_half(__m512 v) { return _mm512_extractf32x8_ps(v, 1); }
inline float reduce_add(F32 x) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x.v), upper_half(x.v));
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_shuffle_ps(four, four, 1)));
}
inline float reduce_max(F32 x) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(x.v), upper_half(x.v));
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_shuffle_ps(four, four, 1)));
}

inline void store_fixed16(const ActRow& out, int offset, __m512i q) {
  const __m512i hi = _mm512_srai_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(128)), 8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out.hi + offset), _mm512_cvtepi32_epi8(hi));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out.lo + offset), _mm512_cvtepi32_epi8(q));  // q - 256 * hi, modulo 256
  const __m512i order = _mm512_setr_epi32(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.pairs + offset), _mm512_cvtepi32_epi16(_mm512_permutexvar_epi32(order, q)));
}

inline int32_t store_fixed(const ActRow& out, int offset, I32 x, I32 y) {
  store_fixed16(out, offset, x.v);
  store_fixed16(out, offset + 16, y.v);
  return _mm512_reduce_add_epi32(_mm512_add_epi32(x.v, y.v));
}

// Tokens that share one pass over a tile, and from how many on unpacking a tile to 16-bit integers once is cheaper.
constexpr int kTokensPerPass = 4;
constexpr int kMinPanelTokens = 8;
constexpr int kTokensPerPanelPass = 8;  // as many sums at once hide the latency of a multiply-add
constexpr int kHeadsPerPass = 4;  // query heads that share one pass over keys and values

inline __m512i broadcast4(const void* p) {
  int32_t word;
  __builtin_memcpy(&word, p, 4);
  return _mm512_set1_epi32(word);
}

inline I32 combine(__m512i hi_a, __m512i hi_b, __m512i lo_a, __m512i lo_b) {
  return {_mm512_add_epi32(_mm512_slli_epi32(_mm512_add_epi32(hi_a, hi_b), 8), _mm512_add_epi32(lo_a, lo_b))};
}

template <int M>
inline void dot_nibbles(const uint8_t* tile, const ActRow* x, int offset, I32* dots) {
  const __m512i mask = _mm512_set1_epi8(15);
  __m512i low[4], high[4];
  for (int j = 0; j < 4; ++j) {
    const __m512i packed = _mm512_loadu_si512(tile + 64 * j);
    low[j] = _mm512_and_si512(packed, mask);
    high[j] = _mm512_and_si512(_mm512_srli_epi16(packed, 4), mask);
  }
  for (int t = 0; t < M; ++t) {
    const int8_t* hi = x[t].hi + offset;
    const int8_t* lo = x[t].lo + offset;
    __m512i hi_a = _mm512_setzero_si512(), hi_b = hi_a, lo_a = hi_a, lo_b = hi_a;
    for (int j = 0; j < 4; ++j) {
      hi_a = _mm512_dpbusd_epi32(hi_a, low[j], broadcast4(hi + 4 * j));
      hi_b = _mm512_dpbusd_epi32(hi_b, high[j], broadcast4(hi + 16 + 4 * j));
      lo_a = _mm512_dpbusd_epi32(lo_a, low[j], broadcast4(lo + 4 * j));
      lo_b = _mm512_dpbusd_epi32(lo_b, high[j], broadcast4(lo + 16 + 4 * j));
    }
    dots[t] = combine(hi_a, hi_b, lo_a, lo_b);
  }
}

template <int M>
inline void dot_bytes(const uint8_t* tile, const ActRow* x, int offset, I32* dots) {
  __m512i bytes[8];
  for (int j = 0; j < 8; ++j) bytes[j] = _mm512_loadu_si512(tile + 64 * j);
  for (int t = 0; t < M; ++t) {
    const int8_t* hi = x[t].hi + offset;
    const int8_t* lo = x[t].lo + offset;
    __m512i hi_a = _mm512_setzero_si512(), hi_b = hi_a, lo_a = hi_a, lo_b = hi_a;
    for (int j = 0; j < 8; j += 2) {
      hi_a = _mm512_dpbusd_epi32(hi_a, bytes[j], broadcast4(hi + 4 * j));
      hi_b = _mm512_dpbusd_epi32(hi_b, bytes[j + 1], broadcast4(hi + 4 * j + 4));
      lo_a = _mm512_dpbusd_epi32(lo_a, bytes[j], broadcast4(lo + 4 * j));
      lo_b = _mm512_dpbusd_epi32(lo_b, bytes[j + 1], broadcast4(lo + 4 * j + 4));
    }
    dots[t] = combine(hi_a, hi_b, lo_a, lo_b);
  }
}

// The eight vectors of a block.
inline void load_nibbles(const uint8_t* block, __m512i* vectors) {
  const __m512i mask = _mm512_set1_epi8(15);
  for (int k = 0; k < 4; ++k) {
    const __m512i packed = _mm512_loadu_si512(block + 64 * k);
    vectors[k] = _mm512_and_si512(packed, mask);
    vectors[4 + k] = _mm512_and_si512(_mm512_srli_epi16(packed, 4), mask);
  }
}

// What shifts bring from the neighbouring byte is masked away.
inline void add_bits(__m512i& vector, __m512i bits, __m512i mask) { vector = _mm512_or_si512(vector, _mm512_and_si512(bits, mask)); }

inline void load_five_bits(const uint8_t* block, __m512i* vectors) {
  load_nibbles(block, vectors);
  const __m512i fifth = _mm512_loadu_si512(block + 256), mask = _mm512_set1_epi8(16);
  add_bits(vectors[0], _mm512_slli_epi16(fifth, 4), mask);
  add_bits(vectors[1], _mm512_slli_epi16(fifth, 3), mask);
  add_bits(vectors[2], _mm512_slli_epi16(fifth, 2), mask);
  add_bits(vectors[3], _mm512_slli_epi16(fifth, 1), mask);
  add_bits(vectors[4], fifth, mask);
  add_bits(vectors[5], _mm512_srli_epi16(fifth, 1), mask);
  add_bits(vectors[6], _mm512_srli_epi16(fifth, 2), mask);
  add_bits(vectors[7], _mm512_srli_epi16(fifth, 3), mask);
}

inline void load_six_bits(const uint8_t* block, __m512i* vectors) {
  load_nibbles(block, vectors);
  const __m512i mask = _mm512_set1_epi8(48);
  for (int k = 0; k < 8; k += 4) {
    const __m512i upper = _mm512_loadu_si512(block + 256 + 16 * k);
    add_bits(vectors[k], _mm512_slli_epi16(upper, 4), mask);
    add_bits(vectors[k + 1], _mm512_slli_epi16(upper, 2), mask);
    add_bits(vectors[k + 2], upper, mask);
    add_bits(vectors[k + 3], _mm512_srli_epi16(upper, 2), mask);
  }
}

// Four vectors times 16 inputs.
inline __m512i dot_four(const __m512i* vectors, const int8_t* hi, const int8_t* lo) {
  __m512i hi_dot = _mm512_setzero_si512(), lo_dot = hi_dot;
  for (int k = 0; k < 4; ++k) {
    hi_dot = _mm512_dpbusd_epi32(hi_dot, vectors[k], broadcast4(hi + 4 * k));
    lo_dot = _mm512_dpbusd_epi32(lo_dot, vectors[k], broadcast4(lo + 4 * k));
  }
  return _mm512_add_epi32(_mm512_slli_epi32(hi_dot, 8), lo_dot);
}

template <int M>
inline void dot_five_bits(const uint8_t* block, const ActRow* x, int offset, I32* dots) {
  __m512i vectors[8];
  load_five_bits(block, vectors);
  for (int t = 0; t < M; ++t)
    dots[t] = {_mm512_add_epi32(dot_four(vectors, x[t].hi + offset, x[t].lo + offset),
                                dot_four(vectors + 4, x[t].hi + offset + 16, x[t].lo + offset + 16))};
}

// First the dot products of the first 16 inputs, then those of the others.
template <int M>
inline void dot_six_bits(const uint8_t* block, const ActRow* x, int offset, I32* dots) {
  __m512i vectors[8];
  load_six_bits(block, vectors);
  for (int t = 0; t < M; ++t) {
    dots[t] = {dot_four(vectors, x[t].hi + offset, x[t].lo + offset)};
    dots[M + t] = {dot_four(vectors + 4, x[t].hi + offset + 16, x[t].lo + offset + 16)};
  }
}

inline int32_t sum_of_16(const ActRow& x, int offset) {
  return _mm512_reduce_add_epi32(_mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x.pairs + offset))));
}

inline void store_pair(int16_t* pairs, __m512i x, int offset) {
  _mm512_storeu_si512(pairs, _mm512_sub_epi16(x, _mm512_set1_epi16(static_cast<int16_t>(offset))));
}

inline void unpack_nibbles(const uint8_t* tile, int offset, int16_t (*pairs)[32]) {
  const __m512i mask = _mm512_set1_epi16(15);
  for (int j = 0; j < 4; ++j) {
    const __m512i packed = _mm512_loadu_si512(tile + 64 * j);
    store_pair(pairs[2 * j], _mm512_and_si512(packed, mask), offset);
    store_pair(pairs[2 * j + 1], _mm512_and_si512(_mm512_srli_epi16(packed, 8), mask), offset);
    store_pair(pairs[8 + 2 * j], _mm512_and_si512(_mm512_srli_epi16(packed, 4), mask), offset);
    store_pair(pairs[8 + 2 * j + 1], _mm512_srli_epi16(packed, 12), offset);
  }
}

inline void store_bytes(int16_t (*pairs)[32], int k, __m512i bytes, int offset) {
  store_pair(pairs[2 * k], _mm512_and_si512(bytes, _mm512_set1_epi16(255)), offset);
  store_pair(pairs[2 * k + 1], _mm512_srli_epi16(bytes, 8), offset);
}

inline void unpack_bytes(const uint8_t* tile, int offset, int16_t (*pairs)[32]) {
  for (int j = 0; j < 8; ++j) store_bytes(pairs, j, _mm512_loadu_si512(tile + 64 * j), offset);
}

inline void unpack_five_bits(const uint8_t* block, int offset, int16_t (*pairs)[32]) {
  __m512i vectors[8];
  load_five_bits(block, vectors);
  for (int k = 0; k < 8; ++k) store_bytes(pairs, k, vectors[k], offset);
}

inline void unpack_six_bits(const uint8_t* block, int offset, int16_t (*pairs)[32]) {
  __m512i vectors[8];
  load_six_bits(block, vectors);
  for (int k = 0; k < 8; ++k) store_bytes(pairs, k, vectors[k], offset);
}

// Part number `part` of kParts of an unpacked block.
template <int M, int kParts>
inline void dot_pairs(const int16_t (*pairs)[32], int part, const ActRow* x, int offset, I32* dots) {
  constexpr int kPairs = 16 / kParts;
  pairs += part * kPairs;
  offset += 2 * part * kPairs;
  for (int t = 0; t < M; ++t) dots[t].v = _mm512_setzero_si512();
#pragma GCC unroll 16
  for (int p = 0; p < kPairs; ++p) {
    const __m512i weights = _mm512_loadu_si512(pairs[p]);
    for (int t = 0; t < M; ++t) dots[t].v = _mm512_dpwssd_epi32(dots[t].v, weights, broadcast4(x[t].pairs + offset + 2 * p));
  }
}

inline I32 sub_i32(I32 x, int32_t y) { return {_mm512_sub_epi32(x.v, _mm512_set1_epi32(y))}; }

inline void prefetch(const void* p) { __builtin_prefetch(p); }

}  // namespace
}  // namespace ultrafast
