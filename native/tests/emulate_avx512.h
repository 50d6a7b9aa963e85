// The intrinsics of kernels/lanes_avx512vnni.h in plain C++, so that those kernels can be tested on any processor.
// Semantics as in Intel's Intrinsics Guide; test_emulation.cpp holds each to what the guide says. Conversions of half
// precision are those of kernels/f16.h, which test_f16.cpp holds to the hardware's.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/f16.h"

// Internal linkage: no other file may be handed these.
namespace {

struct __m128 { float f[4]; };
struct __m128i { uint8_t b[16]; };
struct __m256 { float f[8]; };
struct __m256i { uint8_t b[32]; };
struct __m512 { float f[16]; };
struct __m512i { int32_t i[16]; };
using __mmask16 = uint16_t;

constexpr int _MM_FROUND_TO_NEAREST_INT = 0;

template <class To, class From>
inline To emulated_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

template <class T>
inline T emulated_load(const void* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

inline int32_t emulated_wrap(int64_t x) { return static_cast<int32_t>(static_cast<uint32_t>(x)); }
// MAXPS and MINPS return the second operand when either is NaN, and when both are zeros.
inline float emulated_max(float a, float b) { return a > b ? a : b; }
inline float emulated_min(float a, float b) { return a < b ? a : b; }
// CVTPS2DQ: to nearest even; 0x80000000 for NaN and whatever does not fit.
inline int32_t emulated_round(float x) {
  return x >= -0x1p31f && x < 0x1p31f ? static_cast<int32_t>(std::rint(x)) : INT32_MIN;
}

#define ULTRAFAST_LANES(Type, member, count, expression) \
  Type r;                                                \
  for (int i = 0; i < (count); ++i) r.member[i] = (expression); \
  return r

// ---- 128 and 256 bits ----
inline __m256i _mm256_loadu_si256(const __m256i* p) { return emulated_load<__m256i>(p); }
inline __m128i _mm_loadu_si128(const __m128i* p) { return emulated_load<__m128i>(p); }
inline void _mm256_storeu_si256(__m256i* p, __m256i a) { std::memcpy(static_cast<void*>(p), &a, sizeof a); }
inline void _mm_storeu_si128(__m128i* p, __m128i a) { std::memcpy(static_cast<void*>(p), &a, sizeof a); }
inline __m256 _mm256_add_ps(__m256 a, __m256 b) { ULTRAFAST_LANES(__m256, f, 8, a.f[i] + b.f[i]); }
inline __m256 _mm256_max_ps(__m256 a, __m256 b) { ULTRAFAST_LANES(__m256, f, 8, emulated_max(a.f[i], b.f[i])); }
inline __m128 _mm256_castps256_ps128(__m256 a) { ULTRAFAST_LANES(__m128, f, 4, a.f[i]); }
inline __m128 _mm256_extractf128_ps(__m256 a, int half) { ULTRAFAST_LANES(__m128, f, 4, a.f[4 * (half & 1) + i]); }
inline __m128 _mm_add_ps(__m128 a, __m128 b) { ULTRAFAST_LANES(__m128, f, 4, a.f[i] + b.f[i]); }
inline __m128 _mm_max_ps(__m128 a, __m128 b) { ULTRAFAST_LANES(__m128, f, 4, emulated_max(a.f[i], b.f[i])); }
inline __m128 _mm_add_ss(__m128 a, __m128 b) { ULTRAFAST_LANES(__m128, f, 4, i == 0 ? a.f[0] + b.f[0] : a.f[i]); }
inline __m128 _mm_max_ss(__m128 a, __m128 b) { ULTRAFAST_LANES(__m128, f, 4, i == 0 ? emulated_max(a.f[0], b.f[0]) : a.f[i]); }
inline __m128 _mm_movehl_ps(__m128 a, __m128 b) { ULTRAFAST_LANES(__m128, f, 4, i < 2 ? b.f[2 + i] : a.f[i]); }
inline __m128 _mm_shuffle_ps(__m128 a, __m128 b, int pick) {
  ULTRAFAST_LANES(__m128, f, 4, (i < 2 ? a : b).f[pick >> (2 * i) & 3]);
}
inline float _mm_cvtss_f32(__m128 a) { return a.f[0]; }

// ---- 512 bits: moving ----
inline __m512 _mm512_loadu_ps(const void* p) { return emulated_load<__m512>(p); }
inline void _mm512_storeu_ps(void* p, __m512 a) { std::memcpy(p, &a, sizeof a); }
inline __m512i _mm512_loadu_si512(const void* p) { return emulated_load<__m512i>(p); }
inline __m512 _mm512_set1_ps(float a) { ULTRAFAST_LANES(__m512, f, 16, a); }
inline void _mm512_storeu_si512(void* p, __m512i a) { std::memcpy(p, &a, sizeof a); }
inline __m512i _mm512_set1_epi32(int32_t a) { ULTRAFAST_LANES(__m512i, i, 16, a); }
inline __m512i _mm512_set1_epi8(char a) { return _mm512_set1_epi32(emulated_wrap(0x01010101LL * static_cast<uint8_t>(a))); }
inline __m512i _mm512_set1_epi16(int16_t a) { return _mm512_set1_epi32(emulated_wrap(0x00010001LL * static_cast<uint16_t>(a))); }
inline __m512i _mm512_setzero_si512() { return _mm512_set1_epi32(0); }
inline __m512 _mm512_castsi512_ps(__m512i a) { return emulated_cast<__m512>(a); }
inline __m256 _mm512_castps512_ps256(__m512 a) { ULTRAFAST_LANES(__m256, f, 8, a.f[i]); }
inline __m256 _mm512_extractf32x8_ps(__m512 a, int half) { ULTRAFAST_LANES(__m256, f, 8, a.f[8 * (half & 1) + i]); }
inline __m512 _mm512_mask_blend_ps(__mmask16 mask, __m512 a, __m512 b) {  // a set bit takes b
  ULTRAFAST_LANES(__m512, f, 16, mask >> i & 1 ? b.f[i] : a.f[i]);
}

template <class... Lanes>
inline __m512i _mm512_setr_epi32(Lanes... lanes) {  // in the order of the lanes
  static_assert(sizeof...(lanes) == 16);
  return {{static_cast<int32_t>(lanes)...}};
}
inline __m512i _mm512_permutexvar_epi32(__m512i index, __m512i a) { ULTRAFAST_LANES(__m512i, i, 16, a.i[index.i[i] & 15]); }

// ---- 512 bits: converting ----
inline __m512 _mm512_cvtph_ps(__m256i a) { ULTRAFAST_LANES(__m512, f, 16, ultrafast::f16_to_f32(emulated_load<uint16_t>(a.b + 2 * i))); }
inline __m256i _mm512_cvtps_ph(__m512 a, int) {
  __m256i r;
  for (int i = 0; i < 16; ++i) {
    const uint16_t half = ultrafast::f32_to_f16(a.f[i]);
    std::memcpy(r.b + 2 * i, &half, 2);
  }
  return r;
}
inline __m512i _mm512_cvtepu16_epi32(__m256i a) { ULTRAFAST_LANES(__m512i, i, 16, emulated_load<uint16_t>(a.b + 2 * i)); }
inline __m512i _mm512_cvtepu8_epi32(__m128i a) { ULTRAFAST_LANES(__m512i, i, 16, a.b[i]); }
inline __m512i _mm512_cvtepi8_epi32(__m128i a) { ULTRAFAST_LANES(__m512i, i, 16, static_cast<int8_t>(a.b[i])); }
inline __m512i _mm512_cvtepi16_epi32(__m256i a) { ULTRAFAST_LANES(__m512i, i, 16, emulated_load<int16_t>(a.b + 2 * i)); }
inline __m512 _mm512_cvtepi32_ps(__m512i a) { ULTRAFAST_LANES(__m512, f, 16, static_cast<float>(a.i[i])); }
inline __m512i _mm512_cvtps_epi32(__m512 a) { ULTRAFAST_LANES(__m512i, i, 16, emulated_round(a.f[i])); }
inline __m256i _mm512_cvtepi32_epi16(__m512i a) {  // truncates
  __m256i r;
  for (int i = 0; i < 16; ++i) std::memcpy(r.b + 2 * i, &a.i[i], 2);
  return r;
}
inline __m128i _mm512_cvtepi32_epi8(__m512i a) { ULTRAFAST_LANES(__m128i, b, 16, static_cast<uint8_t>(a.i[i])); }  // truncates

// ---- 512 bits: arithmetic ----
inline __m512 _mm512_add_ps(__m512 a, __m512 b) { ULTRAFAST_LANES(__m512, f, 16, a.f[i] + b.f[i]); }
inline __m512 _mm512_sub_ps(__m512 a, __m512 b) { ULTRAFAST_LANES(__m512, f, 16, a.f[i] - b.f[i]); }
inline __m512 _mm512_mul_ps(__m512 a, __m512 b) { ULTRAFAST_LANES(__m512, f, 16, a.f[i] * b.f[i]); }
inline __m512 _mm512_div_ps(__m512 a, __m512 b) { ULTRAFAST_LANES(__m512, f, 16, a.f[i] / b.f[i]); }
inline __m512 _mm512_fmadd_ps(__m512 a, __m512 b, __m512 c) { ULTRAFAST_LANES(__m512, f, 16, std::fma(a.f[i], b.f[i], c.f[i])); }
inline __m512 _mm512_max_ps(__m512 a, __m512 b) { ULTRAFAST_LANES(__m512, f, 16, emulated_max(a.f[i], b.f[i])); }
inline __m512 _mm512_min_ps(__m512 a, __m512 b) { ULTRAFAST_LANES(__m512, f, 16, emulated_min(a.f[i], b.f[i])); }
inline __m512 _mm512_abs_ps(__m512 a) { ULTRAFAST_LANES(__m512, f, 16, std::fabs(a.f[i])); }
inline __m512i _mm512_add_epi32(__m512i a, __m512i b) { ULTRAFAST_LANES(__m512i, i, 16, emulated_wrap(int64_t{a.i[i]} + b.i[i])); }
inline __m512i _mm512_sub_epi32(__m512i a, __m512i b) { ULTRAFAST_LANES(__m512i, i, 16, emulated_wrap(int64_t{a.i[i]} - b.i[i])); }
inline __m512i _mm512_and_si512(__m512i a, __m512i b) { ULTRAFAST_LANES(__m512i, i, 16, a.i[i] & b.i[i]); }
inline __m512i _mm512_or_si512(__m512i a, __m512i b) { ULTRAFAST_LANES(__m512i, i, 16, a.i[i] | b.i[i]); }
inline __m512i _mm512_slli_epi32(__m512i a, unsigned n) { ULTRAFAST_LANES(__m512i, i, 16, n > 31 ? 0 : emulated_wrap(int64_t{a.i[i]} << n)); }
inline __m512i _mm512_srai_epi32(__m512i a, unsigned n) { ULTRAFAST_LANES(__m512i, i, 16, a.i[i] >> (n > 31 ? 31 : n)); }
inline __m512i _mm512_srli_epi16(__m512i a, unsigned n) {  // each half word alone
  const uint32_t keep = n > 15 ? 0 : 0xffffu >> n;
  ULTRAFAST_LANES(__m512i, i, 16, n > 15 ? 0 : static_cast<int32_t>(static_cast<uint32_t>(a.i[i]) >> n & (keep << 16 | keep)));
}
inline __m512i _mm512_slli_epi16(__m512i a, unsigned n) {
  const uint32_t keep = n > 15 ? 0 : 0xffffu << n & 0xffffu;
  ULTRAFAST_LANES(__m512i, i, 16, n > 15 ? 0 : static_cast<int32_t>(static_cast<uint32_t>(a.i[i]) << n & (keep << 16 | keep)));
}
inline int32_t _mm512_reduce_add_epi32(__m512i a) {
  int64_t sum = 0;
  for (const int32_t lane : a.i) sum += lane;
  return emulated_wrap(sum);
}
// VPDPBUSD: four products of an unsigned byte of a and a signed byte of b are added to sum, without saturation.
inline __m512i _mm512_dpbusd_epi32(__m512i sum, __m512i a, __m512i b) {
  for (int i = 0; i < 16; ++i) {
    int64_t total = sum.i[i];
    for (int c = 0; c < 4; ++c) total += static_cast<uint8_t>(a.i[i] >> 8 * c) * static_cast<int8_t>(b.i[i] >> 8 * c);
    sum.i[i] = emulated_wrap(total);
  }
  return sum;
}

// VPDPWSSD: two products of signed 16-bit halves are added to sum, without saturation.
inline __m512i _mm512_dpwssd_epi32(__m512i sum, __m512i a, __m512i b) {
  for (int i = 0; i < 16; ++i) {
    int64_t total = sum.i[i];
    for (int c = 0; c < 2; ++c) total += int64_t{static_cast<int16_t>(a.i[i] >> 16 * c)} * static_cast<int16_t>(b.i[i] >> 16 * c);
    sum.i[i] = emulated_wrap(total);
  }
  return sum;
}
inline __m512i _mm512_sub_epi16(__m512i a, __m512i b) {  // each half word alone
  ULTRAFAST_LANES(__m512i, i, 16,
                  static_cast<int32_t>((static_cast<uint32_t>(a.i[i]) - static_cast<uint32_t>(b.i[i])) & 0xffffu) |
                      static_cast<int32_t>(((static_cast<uint32_t>(a.i[i]) >> 16) - (static_cast<uint32_t>(b.i[i]) >> 16)) << 16));
}

#undef ULTRAFAST_LANES

}  // namespace
