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
inline F32 keep_first(F32 x, int n, float other) {
  const __m256i count = _mm256_set1_epi32(n);
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256 o = _mm256_set1_ps(other);
  const __m256i low = _mm256_cmpgt_epi32(count, index);
  const __m256i high = _mm256_cmpgt_epi32(count, _mm256_add_epi32(index, _mm256_set1_epi32(8)));
  return {_mm256_blendv_ps(o, x.a, _mm256_castsi256_ps(low)), _mm256_blendv_ps(o, x.b, _mm256_castsi256_ps(high))};
}
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

// Between the two halves of a tile: else the compiler keeps every broadcast for the second half, on the stack, which
// costs more than broadcasting again (docs/performance.md).
inline void forget_loads() { asm volatile("" ::: "memory"); }

// Eight rows of a tile of nibbles. A pair sum is at most 2 * 15 * 128 = 3840, so eight of them fit 16 bits.
template <int M>
inline void dot_nibbles8(const uint8_t* tile, const ActRow* x, int offset, __m256i* dots) {
  const __m256i mask = _mm256_set1_epi8(15);
  __m256i quants[8];
  for (int j = 0; j < 4; ++j) {
    const __m256i packed = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(tile + 64 * j));
    quants[j] = _mm256_and_si256(packed, mask);
    quants[4 + j] = _mm256_and_si256(_mm256_srli_epi16(packed, 4), mask);
  }
  for (int t = 0; t < M; ++t) {
    const int8_t* hi = x[t].hi + offset;
    const int8_t* lo = x[t].lo + offset;
    __m256i sum_hi = _mm256_maddubs_epi16(quants[0], broadcast4(hi));
    __m256i sum_lo = _mm256_maddubs_epi16(quants[0], broadcast4(lo));
    for (int j = 1; j < 8; ++j) {
      sum_hi = _mm256_add_epi16(sum_hi, _mm256_maddubs_epi16(quants[j], broadcast4(hi + 4 * j)));
      sum_lo = _mm256_add_epi16(sum_lo, _mm256_maddubs_epi16(quants[j], broadcast4(lo + 4 * j)));
    }
    dots[t] = _mm256_add_epi32(_mm256_madd_epi16(sum_hi, _mm256_set1_epi16(256)), _mm256_madd_epi16(sum_lo, _mm256_set1_epi16(1)));
  }
}

template <int M>
inline void dot_nibbles(const uint8_t* tile, const ActRow* x, int offset, I32* dots) {
  __m256i a[M], b[M];
  dot_nibbles8<M>(tile, x, offset, a);
  forget_loads();
  dot_nibbles8<M>(tile + 32, x, offset, b);
  for (int t = 0; t < M; ++t) dots[t] = {a[t], b[t]};
}

// Bytes times 16-bit activations: maddubs would saturate, so even and odd bytes are widened and meet `pairs`.
template <int M>
inline void dot_bytes8(const uint8_t* tile, const ActRow* x, int offset, __m256i* dots) {
  for (int t = 0; t < M; ++t) dots[t] = _mm256_setzero_si256();
  for (int j = 0; j < 8; ++j) {
    const __m256i bytes = _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(tile + 64 * j)),
                                           _mm256_set1_epi8(static_cast<char>(0x80)));
    const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8);
    const __m256i odd = _mm256_srai_epi16(bytes, 8);
    for (int t = 0; t < M; ++t) {
      const int16_t* pairs = x[t].pairs + offset + 4 * j;
      dots[t] = _mm256_add_epi32(dots[t], _mm256_madd_epi16(even, broadcast4(pairs)));
      dots[t] = _mm256_add_epi32(dots[t], _mm256_madd_epi16(odd, broadcast4(pairs + 2)));
    }
  }
}

template <int M>
inline void dot_bytes(const uint8_t* tile, const ActRow* x, int offset, int, I32* dots) {
  __m256i a[M], b[M];
  dot_bytes8<M>(tile, x, offset, a);
  forget_loads();
  dot_bytes8<M>(tile + 32, x, offset, b);
  for (int t = 0; t < M; ++t) dots[t] = {a[t], b[t]};
}

inline I32 sub_eight_times(I32 x, int32_t sum) {
  const __m256i s = _mm256_set1_epi32(8 * sum);
  return {_mm256_sub_epi32(x.a, s), _mm256_sub_epi32(x.b, s)};
}

inline void prefetch(const void* p) { __builtin_prefetch(p); }

}  // namespace
}  // namespace ultrafast
