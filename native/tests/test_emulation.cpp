// The emulated intrinsics against what their documentation says, at the values where an easy mistake would show.
#include <cstring>

#include "tests/check.h"
#include "tests/emulate_avx512.h"

namespace {

constexpr float kNan = __builtin_nanf("");
constexpr float kInf = __builtin_inff();

__m512i bytes(int value) { return _mm512_set1_epi8(static_cast<char>(value)); }

int32_t dot(int32_t sum, int a, int b) { return _mm512_dpbusd_epi32(_mm512_set1_epi32(sum), bytes(a), bytes(b)).i[7]; }

}  // namespace

TEST(emulation, dot_products_do_not_saturate) {
  CHECK(dot(0, 255, -128) == 4 * 255 * -128);
  CHECK(dot(0, 255, 127) == 4 * 255 * 127);
  CHECK(dot(5, 128, 1) == 5 + 4 * 128);     // the first operand's bytes are unsigned
  CHECK(dot(5, 1, 255) == 5 - 4);           // the second's are signed
  CHECK(dot(INT32_MAX, 1, 1) == INT32_MIN + 3);  // the sum wraps
  const __m512i order = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi32(0x04030201), _mm512_set1_epi32(0x05ff0100));
  CHECK(order.i[0] == 1 * 0 + 2 * 1 + 3 * -1 + 4 * 5);
}

TEST(emulation, dot_products_of_half_words) {
  const auto halves = [](int low, int high) { return _mm512_set1_epi32((high << 16) | (low & 0xffff)); };
  CHECK(_mm512_dpwssd_epi32(_mm512_set1_epi32(7), halves(2, -3), halves(-5, 11)).i[15] == 7 + 2 * -5 + -3 * 11);
  CHECK(_mm512_dpwssd_epi32(_mm512_setzero_si512(), halves(-32768, -32768), halves(-32768, -32768)).i[0] == INT32_MIN);  // wraps
  CHECK(_mm512_dpwssd_epi32(_mm512_setzero_si512(), halves(32767, 32767), halves(32767, 32767)).i[0] == 2 * 32767 * 32767);
  CHECK(_mm512_sub_epi16(halves(0, 5), halves(1, 7)).i[3] == halves(-1, -2).i[3]);  // no borrow crosses
  CHECK(_mm512_set1_epi16(-2).i[0] == halves(-2, -2).i[0]);
}

TEST(emulation, conversions) {
  const float from[] = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 2147483520.0f, 2147483648.0f, -2147483648.0f, kNan, kInf, -kInf};
  const int32_t to[] = {0, 2, 2, 0, -2, 2147483520, INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN};
  for (size_t i = 0; i < std::size(to); ++i) CHECK(_mm512_cvtps_epi32(_mm512_set1_ps(from[i])).i[0] == to[i], from[i]);
  CHECK(_mm512_cvtepi32_epi8(_mm512_set1_epi32(0x12345680)).b[15] == 0x80);  // truncated, not saturated
  CHECK(_mm512_cvtepi32_epi8(_mm512_set1_epi32(-129)).b[0] == 0x7f);
  const __m256i narrowed = _mm512_cvtepi32_epi16(_mm512_set1_epi32(0x12348765));  // truncated too
  CHECK(narrowed.b[0] == 0x65 && narrowed.b[1] == 0x87 && narrowed.b[30] == 0x65 && narrowed.b[31] == 0x87);
  CHECK(_mm512_cvtepi32_ps(_mm512_set1_epi32(16777217)).f[0] == 16777216.0f);
  const __m256i halves = _mm512_cvtps_ph(_mm512_set1_ps(1.0f + 0x1p-11f), _MM_FROUND_TO_NEAREST_INT);  // a tie
  CHECK(halves.b[0] == 0x00 && halves.b[1] == 0x3c);
  CHECK(_mm512_cvtph_ps(halves).f[15] == 1.0f);
  __m256i words;
  std::memset(words.b, 0xff, sizeof words.b);
  CHECK(_mm512_cvtepu16_epi32(words).i[3] == 65535 && _mm512_cvtepi16_epi32(words).i[3] == -1);
  __m128i sixteen;
  for (int i = 0; i < 16; ++i) sixteen.b[i] = static_cast<uint8_t>(120 + i);
  CHECK(_mm512_cvtepu8_epi32(sixteen).i[7] == 127 && _mm512_cvtepu8_epi32(sixteen).i[8] == 128);
  CHECK(_mm512_cvtepi8_epi32(sixteen).i[7] == 127 && _mm512_cvtepi8_epi32(sixteen).i[8] == -128);
}

TEST(emulation, maximum_and_minimum_return_the_second_operand_for_nan_and_zeros) {
  const __m512 nan = _mm512_set1_ps(kNan), one = _mm512_set1_ps(1.0f), zero = _mm512_set1_ps(0.0f), minus_zero = _mm512_set1_ps(-0.0f);
  CHECK(_mm512_max_ps(nan, one).f[0] == 1.0f && _mm512_min_ps(nan, one).f[0] == 1.0f);
  CHECK(std::isnan(_mm512_max_ps(one, nan).f[0]) && std::isnan(_mm512_min_ps(one, nan).f[0]));
  CHECK(std::signbit(_mm512_max_ps(zero, minus_zero).f[0]) && !std::signbit(_mm512_max_ps(minus_zero, zero).f[0]));
  CHECK(std::signbit(_mm512_min_ps(zero, minus_zero).f[0]) && !std::signbit(_mm512_min_ps(minus_zero, zero).f[0]));
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(nan), _mm512_castps512_ps256(one));
  CHECK(eight.f[7] == 1.0f && _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_castps256_ps128(eight)).f[3] == 1.0f);
  CHECK(!std::signbit(_mm512_abs_ps(minus_zero).f[0]) && std::isnan(_mm512_abs_ps(nan).f[0]));
}

TEST(emulation, shifts) {
  CHECK(_mm512_srli_epi16(_mm512_set1_epi32(INT32_MIN + 0x8010), 4).i[0] == 0x08000801);  // nothing crosses a half word
  CHECK(_mm512_srli_epi16(_mm512_set1_epi32(-1), 16).i[0] == 0);
  CHECK(_mm512_slli_epi16(_mm512_set1_epi32(INT32_MIN + 0x18010), 4).i[0] == 0x00100100);
  CHECK(_mm512_slli_epi16(_mm512_set1_epi32(-1), 16).i[0] == 0);
  CHECK(_mm512_srai_epi32(_mm512_set1_epi32(-257), 8).i[0] == -2);
  CHECK(_mm512_srai_epi32(_mm512_set1_epi32(-1), 40).i[0] == -1);
  CHECK(_mm512_slli_epi32(_mm512_set1_epi32(3), 31).i[0] == INT32_MIN);
  CHECK(_mm512_slli_epi32(_mm512_set1_epi32(3), 32).i[0] == 0);
}

TEST(emulation, integers_wrap) {
  CHECK(_mm512_add_epi32(_mm512_set1_epi32(INT32_MAX), _mm512_set1_epi32(1)).i[0] == INT32_MIN);
  CHECK(_mm512_sub_epi32(_mm512_set1_epi32(INT32_MIN), _mm512_set1_epi32(1)).i[0] == INT32_MAX);
  CHECK(_mm512_reduce_add_epi32(_mm512_set1_epi32(1 << 27)) == INT32_MIN);
  CHECK(_mm512_reduce_add_epi32(_mm512_set1_epi32(-3)) == -48);
  CHECK(_mm512_and_si512(bytes(0x5a), bytes(15)).i[0] == 0x0a0a0a0a);
  CHECK(_mm512_or_si512(bytes(0x50), bytes(0x1a)).i[0] == 0x5a5a5a5a);
}

TEST(emulation, arithmetic_rounds_once) {
  const float a = 1.0f + 0x1p-23f;  // a * a - 1 needs more bits than a product has
  CHECK(_mm512_fmadd_ps(_mm512_set1_ps(a), _mm512_set1_ps(a), _mm512_set1_ps(-1.0f)).f[0] == 0x1p-22f + 0x1p-46f);
  CHECK(_mm512_div_ps(_mm512_set1_ps(1.0f), _mm512_set1_ps(3.0f)).f[0] == 1.0f / 3.0f);
  CHECK(_mm512_sub_ps(_mm512_set1_ps(1.0f), _mm512_set1_ps(3.0f)).f[0] == -2.0f);
  CHECK(_mm512_mul_ps(_mm512_set1_ps(2.0f), _mm512_set1_ps(3.0f)).f[0] == 6.0f);
  CHECK(_mm512_add_ps(_mm512_set1_ps(2.0f), _mm512_set1_ps(3.0f)).f[0] == 5.0f);
}

TEST(emulation, lanes_move_as_documented) {
  __m512 x;
  for (int i = 0; i < 16; ++i) x.f[i] = static_cast<float>(i);
  CHECK(_mm512_extractf32x8_ps(x, 1).f[0] == 8 && _mm512_castps512_ps256(x).f[7] == 7);
  const __m256 eight = _mm512_castps512_ps256(x);
  const __m128 low = _mm256_castps256_ps128(eight), high = _mm256_extractf128_ps(eight, 1);
  CHECK(low.f[3] == 3 && high.f[0] == 4);
  const __m128 moved = _mm_movehl_ps(low, high);
  CHECK(moved.f[0] == 6 && moved.f[1] == 7 && moved.f[2] == 2 && moved.f[3] == 3);
  const __m128 shuffled = _mm_shuffle_ps(low, high, 0b11100001);
  CHECK(shuffled.f[0] == 1 && shuffled.f[1] == 0 && shuffled.f[2] == 6 && shuffled.f[3] == 7);
  const __m128 first = _mm_add_ss(low, high);
  CHECK(first.f[0] == 4 && first.f[1] == 1);
  CHECK(_mm_max_ss(low, high).f[0] == 4 && _mm_max_ss(low, high).f[1] == 1 && _mm_cvtss_f32(high) == 4);
  CHECK(_mm_add_ps(low, high).f[3] == 10 && _mm256_add_ps(eight, eight).f[7] == 14);
  const __m512 blended = _mm512_mask_blend_ps(0x8001, x, _mm512_set1_ps(-1.0f));
  CHECK(blended.f[0] == -1 && blended.f[1] == 1 && blended.f[14] == 14 && blended.f[15] == -1);
  CHECK(_mm512_castsi512_ps(_mm512_set1_epi32(0x3f800000)).f[9] == 1.0f);
}

TEST(emulation, permutation_takes_lanes_by_index) {
  const __m512i lanes = _mm512_setr_epi32(0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120, 130, 140, 150);
  const __m512i index = _mm512_setr_epi32(15, 0, 16, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 1);  // only four bits count
  const __m512i moved = _mm512_permutexvar_epi32(index, lanes);
  CHECK(moved.i[0] == 150 && moved.i[1] == 0 && moved.i[2] == 0 && moved.i[3] == 30 && moved.i[15] == 10);
}

TEST(emulation, loads_and_stores_need_no_alignment) {
  alignas(64) uint8_t memory[65], copy[65] = {};
  for (int i = 0; i < 65; ++i) memory[i] = static_cast<uint8_t>(3 * i);
  _mm512_storeu_ps(copy + 1, _mm512_loadu_ps(memory + 1));
  CHECK(std::memcmp(memory + 1, copy + 1, 64) == 0 && copy[0] == 0);
  CHECK(_mm512_loadu_si512(memory + 1).i[0] == 0x0c090603);
  std::memset(copy, 0, sizeof copy);
  _mm512_storeu_si512(copy + 1, _mm512_loadu_si512(memory + 1));
  CHECK(std::memcmp(memory + 1, copy + 1, 64) == 0 && copy[0] == 0);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(copy + 3), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(memory + 1)));
  CHECK(std::memcmp(memory + 1, copy + 3, 32) == 0);
  __m128i sixteen;
  std::memcpy(sixteen.b, memory, 16);
  sixteen = _mm_loadu_si128(&sixteen);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(copy + 5), sixteen);
  CHECK(std::memcmp(memory, copy + 5, 16) == 0);
}
