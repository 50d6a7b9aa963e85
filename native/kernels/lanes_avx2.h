// Sixteen lanes as two 256-bit vectors (AVX2, FMA, F16C). Same results as lanes_scalar.h.
#pragma once

#include <immintrin.h>

#include "kernels/kernels.h"

namespace ultrafast {
namespace {

struct F32 { __m256 a, b; };
struct I32 { __m256i a, b; };

inline F32 set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F32 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline F32 load_f16(const uint16_t* p) {
  const auto* v = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(v)), _mm256_cvtph_ps(_mm_loadu_si128(v + 1))};
}
inline __m256 widen_bf16(__m128i v) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16)); }
inline F32 load_bf16(const uint16_t* p) {
  const auto* v = reinterpret_cast<const __m128i*>(p);
  return {widen_bf16(_mm_loadu_si128(v)), widen_bf16(_mm_loadu_si128(v + 1))};
}
inline __m128i load8(const uint8_t* p) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)); }
inline F32 load_u8(const uint8_t* p) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load8(p))), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load8(p + 8)))};
}
inline F32 load_i8(const uint8_t* p) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load8(p))), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load8(p + 8)))};
}
inline void store(float* p, F32 x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
inline void store_f16(uint16_t* p, F32 x) {
  auto* v = reinterpret_cast<__m128i*>(p);
  _mm_storeu_si128(v, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(v + 1, _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
inline F32 add(F32 x, F32 y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline F32 sub(F32 x, F32 y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline F32 mul(F32 x, F32 y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline F32 div(F32 x, F32 y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline F32 fma(F32 x, F32 y, F32 z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
inline F32 max(F32 x, F32 y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline F32 min(F32 x, F32 y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline F32 abs(F32 x) {
  const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  return {_mm256_and_ps(x.a, mask), _mm256_and_ps(x.b, mask)};
}
inline F32 replace_from(F32 x, int n, F32 y) {  // lanes below n of x, the others of y
  const __m256i count = _mm256_set1_epi32(n);
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i low = _mm256_cmpgt_epi32(count, index);
  const __m256i high = _mm256_cmpgt_epi32(count, _mm256_add_epi32(index, _mm256_set1_epi32(8)));
  return {_mm256_blendv_ps(y.a, x.a, _mm256_castsi256_ps(low)), _mm256_blendv_ps(y.b, x.b, _mm256_castsi256_ps(high))};
}
inline F32 keep_first(F32 x, int n, float other) { return replace_from(x, n, set1(other)); }
inline F32 drop_first(F32 x, int n, float other) { return replace_from(set1(other), n, x); }
inline F32 to_f32(I32 x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
inline __m256 pow2(__m256i n) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23)); }
inline F32 times_pow2(F32 x, I32 n) { return {_mm256_mul_ps(x.a, pow2(n.a)), _mm256_mul_ps(x.b, pow2(n.b))}; }
inline I32 round_to_i32(F32 x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }

inline float reduce_add(F32 x) {
  const __m256 eight = _mm256_add_ps(x.a, x.b);
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_shuffle_ps(four, four, 1)));
}
inline float reduce_max(F32 x) {
  const __m256 eight = _mm256_max_ps(x.a, x.b);
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_shuffle_ps(four, four, 1)));
}

inline __m128i narrow_to_i8(__m256i v) {  // 8 x i32 -> 8 x i8 in the low half, truncating
  const __m256i pick = _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                                        0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  const __m256i bytes = _mm256_shuffle_epi8(v, pick);
  return _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
}

inline __m256i store_fixed8(const ActRow& out, int offset, __m256i q) {
  const __m256i hi = _mm256_srai_epi32(_mm256_add_epi32(q, _mm256_set1_epi32(128)), 8);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(out.hi + offset), narrow_to_i8(hi));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(out.lo + offset), narrow_to_i8(q));  // q - 256 * hi, modulo 256
  const __m256i order = _mm256_setr_epi8(0, 1, 8, 9, 4, 5, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1,
                                         0, 1, 8, 9, 4, 5, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1);
  const __m256i words = _mm256_shuffle_epi8(q, order);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out.pairs + offset),
                   _mm_unpacklo_epi64(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
  return q;
}

inline int32_t store_fixed(const ActRow& out, int offset, I32 x, I32 y) {
  __m256i sum = _mm256_add_epi32(store_fixed8(out, offset, x.a), store_fixed8(out, offset + 8, x.b));
  sum = _mm256_add_epi32(sum, store_fixed8(out, offset + 16, y.a));
  sum = _mm256_add_epi32(sum, store_fixed8(out, offset + 24, y.b));
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

inline __m256i broadcast4(const void* p) {
  int32_t word;
  __builtin_memcpy(&word, p, 4);
  return _mm256_set1_epi32(word);
}

// Tokens that share one pass over a tile: with more, accumulators would not stay in the sixteen registers.
constexpr int kTokensPerPass = 2;
// From so many tokens on, unpacking a tile to 16-bit integers once is cheaper (docs/performance.md).
constexpr int kMinPanelTokens = 16;
constexpr int kTokensPerPanelPass = 4;

constexpr int kHeadsPerPass = 2;  // query heads that share one pass over keys and values

// The compiler would reorder the integer sums below into trees whose leaves live on the stack: this fixes their order.
inline void keep_order(__m256i& x, __m256i& y) { asm("" : "+x"(x), "+x"(y)); }

inline __m256i load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

// A tile of nibbles, both halves (8 rows each) at once, so that they share the broadcast activations. A pair sum is at
// most 2 * 15 * 128 = 3840, so eight of them fit 16 bits.
template <int M>
inline void dot_nibbles(const uint8_t* tile, const ActRow* x, int offset, I32* dots) {
  const __m256i mask = _mm256_set1_epi8(15);
  I32 hi[M], lo[M];
  for (int t = 0; t < M; ++t) hi[t].a = hi[t].b = lo[t].a = lo[t].b = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m256i packed_a = load256(tile + 64 * j), packed_b = load256(tile + 64 * j + 32);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m256i a = _mm256_and_si256(half == 0 ? packed_a : _mm256_srli_epi16(packed_a, 4), mask);
      const __m256i b = _mm256_and_si256(half == 0 ? packed_b : _mm256_srli_epi16(packed_b, 4), mask);
#pragma GCC unroll 2
      for (int t = 0; t < M; ++t) {
        const __m256i x_hi = broadcast4(x[t].hi + offset + 16 * half + 4 * j), x_lo = broadcast4(x[t].lo + offset + 16 * half + 4 * j);
        hi[t].a = _mm256_add_epi16(hi[t].a, _mm256_maddubs_epi16(a, x_hi));
        hi[t].b = _mm256_add_epi16(hi[t].b, _mm256_maddubs_epi16(b, x_hi));
        lo[t].a = _mm256_add_epi16(lo[t].a, _mm256_maddubs_epi16(a, x_lo));
        lo[t].b = _mm256_add_epi16(lo[t].b, _mm256_maddubs_epi16(b, x_lo));
        keep_order(hi[t].a, hi[t].b);
        keep_order(lo[t].a, lo[t].b);
      }
    }
  }
  const __m256i c256 = _mm256_set1_epi16(256), c1 = _mm256_set1_epi16(1);
  for (int t = 0; t < M; ++t)
    dots[t] = {_mm256_add_epi32(_mm256_madd_epi16(hi[t].a, c256), _mm256_madd_epi16(lo[t].a, c1)),
               _mm256_add_epi32(_mm256_madd_epi16(hi[t].b, c256), _mm256_madd_epi16(lo[t].b, c1))};
}

// Bytes times 16-bit activations: maddubs would saturate, so even and odd bytes are widened and meet `pairs`.
template <int M>
inline void dot_bytes(const uint8_t* tile, const ActRow* x, int offset, I32* dots) {
  const __m256i mask = _mm256_set1_epi16(255);
  for (int t = 0; t < M; ++t) dots[t].a = dots[t].b = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    const __m256i bytes_a = load256(tile + 64 * j), bytes_b = load256(tile + 64 * j + 32);
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; ++odd) {
      const __m256i a = odd == 0 ? _mm256_and_si256(bytes_a, mask) : _mm256_srli_epi16(bytes_a, 8);
      const __m256i b = odd == 0 ? _mm256_and_si256(bytes_b, mask) : _mm256_srli_epi16(bytes_b, 8);
#pragma GCC unroll 2
      for (int t = 0; t < M; ++t) {
        const __m256i pair = broadcast4(x[t].pairs + offset + 4 * j + 2 * odd);
        dots[t].a = _mm256_add_epi32(dots[t].a, _mm256_madd_epi16(a, pair));
        dots[t].b = _mm256_add_epi32(dots[t].b, _mm256_madd_epi16(b, pair));
        keep_order(dots[t].a, dots[t].b);
      }
    }
  }
}

// Eight rows of vector k of a block; what shifts bring from the neighbouring byte is masked away.
inline __m256i nibble_vector(const uint8_t* block, int k) {
  const __m256i packed = load256(block + 64 * (k % 4));
  return _mm256_and_si256(k < 4 ? packed : _mm256_srli_epi16(packed, 4), _mm256_set1_epi8(15));
}
inline __m256i five_bit_vector(const uint8_t* block, int k) {
  const __m256i fifth = load256(block + 256);
  const __m256i placed = k < 4 ? _mm256_slli_epi16(fifth, 4 - k) : _mm256_srli_epi16(fifth, k - 4);
  return _mm256_or_si256(nibble_vector(block, k), _mm256_and_si256(placed, _mm256_set1_epi8(16)));
}
inline __m256i six_bit_vector(const uint8_t* block, int k) {
  const __m256i upper = load256(block + 256 + 64 * (k / 4));
  const __m256i placed = k % 4 < 2 ? _mm256_slli_epi16(upper, 4 - 2 * (k % 4)) : _mm256_srli_epi16(upper, 2 * (k % 4) - 4);
  return _mm256_or_si256(nibble_vector(block, k), _mm256_and_si256(placed, _mm256_set1_epi8(48)));
}

// As dot_nibbles, but a pair sum is up to 2 * 31 * 128 = 7936, so only four fit 16 bits.
template <int M>
inline void dot_five_bits(const uint8_t* block, const ActRow* x, int offset, I32* dots) {
  const __m256i c256 = _mm256_set1_epi16(256), c1 = _mm256_set1_epi16(1);
  for (int t = 0; t < M; ++t) dots[t].a = dots[t].b = _mm256_setzero_si256();
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    I32 hi[M], lo[M];
    for (int t = 0; t < M; ++t) hi[t].a = hi[t].b = lo[t].a = lo[t].b = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const int k = 4 * half + j;
      const __m256i a = five_bit_vector(block, k), b = five_bit_vector(block + 32, k);
#pragma GCC unroll 2
      for (int t = 0; t < M; ++t) {
        const __m256i x_hi = broadcast4(x[t].hi + offset + 4 * k), x_lo = broadcast4(x[t].lo + offset + 4 * k);
        hi[t].a = _mm256_add_epi16(hi[t].a, _mm256_maddubs_epi16(a, x_hi));
        hi[t].b = _mm256_add_epi16(hi[t].b, _mm256_maddubs_epi16(b, x_hi));
        lo[t].a = _mm256_add_epi16(lo[t].a, _mm256_maddubs_epi16(a, x_lo));
        lo[t].b = _mm256_add_epi16(lo[t].b, _mm256_maddubs_epi16(b, x_lo));
        keep_order(hi[t].a, hi[t].b);
        keep_order(lo[t].a, lo[t].b);
      }
    }
    for (int t = 0; t < M; ++t) {
      dots[t].a = _mm256_add_epi32(dots[t].a, _mm256_add_epi32(_mm256_madd_epi16(hi[t].a, c256), _mm256_madd_epi16(lo[t].a, c1)));
      dots[t].b = _mm256_add_epi32(dots[t].b, _mm256_add_epi32(_mm256_madd_epi16(hi[t].b, c256), _mm256_madd_epi16(lo[t].b, c1)));
    }
  }
}

// As dot_bytes: of six bits only two pair sums would fit. First the dot products of the first 16 inputs, then the others'.
template <int M>
inline void dot_six_bits(const uint8_t* block, const ActRow* x, int offset, I32* dots) {
  const __m256i mask = _mm256_set1_epi16(255);
  for (int i = 0; i < 2 * M; ++i) dots[i].a = dots[i].b = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int k = 0; k < 8; ++k) {
    const __m256i bytes_a = six_bit_vector(block, k), bytes_b = six_bit_vector(block + 32, k);
    I32* part = dots + k / 4 * M;
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; ++odd) {
      const __m256i a = odd == 0 ? _mm256_and_si256(bytes_a, mask) : _mm256_srli_epi16(bytes_a, 8);
      const __m256i b = odd == 0 ? _mm256_and_si256(bytes_b, mask) : _mm256_srli_epi16(bytes_b, 8);
#pragma GCC unroll 2
      for (int t = 0; t < M; ++t) {
        const __m256i pair = broadcast4(x[t].pairs + offset + 4 * k + 2 * odd);
        part[t].a = _mm256_add_epi32(part[t].a, _mm256_madd_epi16(a, pair));
        part[t].b = _mm256_add_epi32(part[t].b, _mm256_madd_epi16(b, pair));
        keep_order(part[t].a, part[t].b);
      }
    }
  }
}

inline int32_t sum_of_16(const ActRow& x, int offset) {
  const __m256i eight = _mm256_madd_epi16(load256(x.pairs + offset), _mm256_set1_epi16(1));
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

inline void store_pair(int16_t* pairs, int half, __m256i x, int offset) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(pairs + 16 * half), _mm256_sub_epi16(x, _mm256_set1_epi16(static_cast<int16_t>(offset))));
}

inline void unpack_nibbles(const uint8_t* tile, int offset, int16_t (*pairs)[32]) {
  const __m256i mask = _mm256_set1_epi16(15);
  for (int j = 0; j < 4; ++j)
    for (int half = 0; half < 2; ++half) {
      const __m256i packed = load256(tile + 64 * j + 32 * half);
      store_pair(pairs[2 * j], half, _mm256_and_si256(packed, mask), offset);
      store_pair(pairs[2 * j + 1], half, _mm256_and_si256(_mm256_srli_epi16(packed, 8), mask), offset);
      store_pair(pairs[8 + 2 * j], half, _mm256_and_si256(_mm256_srli_epi16(packed, 4), mask), offset);
      store_pair(pairs[8 + 2 * j + 1], half, _mm256_srli_epi16(packed, 12), offset);
    }
}

inline void store_bytes(int16_t (*pairs)[32], int k, int half, __m256i bytes, int offset) {
  store_pair(pairs[2 * k], half, _mm256_and_si256(bytes, _mm256_set1_epi16(255)), offset);
  store_pair(pairs[2 * k + 1], half, _mm256_srli_epi16(bytes, 8), offset);
}

inline void unpack_bytes(const uint8_t* tile, int offset, int16_t (*pairs)[32]) {
  for (int j = 0; j < 8; ++j)
    for (int half = 0; half < 2; ++half) store_bytes(pairs, j, half, load256(tile + 64 * j + 32 * half), offset);
}

inline void unpack_five_bits(const uint8_t* block, int offset, int16_t (*pairs)[32]) {
#pragma GCC unroll 8
  for (int k = 0; k < 8; ++k)
    for (int half = 0; half < 2; ++half) store_bytes(pairs, k, half, five_bit_vector(block + 32 * half, k), offset);
}

inline void unpack_six_bits(const uint8_t* block, int offset, int16_t (*pairs)[32]) {
#pragma GCC unroll 8
  for (int k = 0; k < 8; ++k)
    for (int half = 0; half < 2; ++half) store_bytes(pairs, k, half, six_bit_vector(block + 32 * half, k), offset);
}

// Part number `part` of kParts of an unpacked block.
template <int M, int kParts>
inline void dot_pairs(const int16_t (*pairs)[32], int part, const ActRow* x, int offset, I32* dots) {
  constexpr int kPairs = 16 / kParts;
  pairs += part * kPairs;
  offset += 2 * part * kPairs;
#pragma GCC unroll 16
  for (int p = 0; p < kPairs; ++p) {
    const __m256i a = load256(pairs[p]), b = load256(pairs[p] + 16);
#pragma GCC unroll 4
    for (int t = 0; t < M; ++t) {
      const __m256i pair = broadcast4(x[t].pairs + offset + 2 * p);
      const __m256i product_a = _mm256_madd_epi16(a, pair), product_b = _mm256_madd_epi16(b, pair);
      dots[t].a = p == 0 ? product_a : _mm256_add_epi32(dots[t].a, product_a);
      dots[t].b = p == 0 ? product_b : _mm256_add_epi32(dots[t].b, product_b);
      keep_order(dots[t].a, dots[t].b);
    }
  }
}

inline I32 sub_i32(I32 x, int32_t y) {
  const __m256i s = _mm256_set1_epi32(y);
  return {_mm256_sub_epi32(x.a, s), _mm256_sub_epi32(x.b, s)};
}

inline void prefetch(const void* p) { __builtin_prefetch(p); }

}  // namespace
}  // namespace ultrafast
