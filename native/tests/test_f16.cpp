// Half precision: f16.h against its definition and, where there is one, against the hardware.
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cmath>

#include "tests/check.h"
#include "tests/random.h"

using namespace ultrafast;
using namespace ultrafast::test;

namespace {

double defined_value(int half) {  // of a finite, positive half
  const int exponent = half >> 10, mantissa = half & 0x3ff;
  return exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
}

}  // namespace

TEST(kernels, every_half_has_its_value) {
  for (int half = 0; half < 0x10000; ++half) {
    const float value = f16_to_f32(static_cast<uint16_t>(half));
    const int magnitude = half & 0x7fff;
    if (magnitude > 0x7c00)
      CHECK(std::isnan(value), half);
    else
      CHECK(std::fabs(value) == (magnitude == 0x7c00 ? INFINITY : defined_value(magnitude)), half, value);
    CHECK(std::signbit(value) == (half >= 0x8000), half);
    if (magnitude <= 0x7c00) CHECK(f32_to_f16(value) == half, half);
  }
}

TEST(kernels, floats_round_to_the_nearest_half_ties_to_even) {
  for (int half = 0; half < 0x7c00; ++half) {
    const double low = defined_value(half), high = half == 0x7bff ? 65536.0 : defined_value(half + 1);  // past the largest: infinity
    const auto middle = static_cast<float>((low + high) / 2);
    for (const int sign : {0, 0x8000}) {
      const float s = sign == 0 ? 1.0f : -1.0f;
      CHECK(f32_to_f16(s * middle) == (sign | (half % 2 == 0 ? half : half + 1)), half);
      CHECK(f32_to_f16(s * std::nextafter(middle, 0.0f)) == (sign | half), half);
      CHECK(f32_to_f16(s * std::nextafter(middle, INFINITY)) == (sign | (half + 1)), half);
    }
  }
  CHECK(f32_to_f16(INFINITY) == 0x7c00 && f32_to_f16(-INFINITY) == 0xfc00 && f32_to_f16(1e38f) == 0x7c00);
  CHECK(f32_to_f16(1e-45f) == 0 && f32_to_f16(-1e-45f) == 0x8000);
  CHECK((f32_to_f16(NAN) & 0x7c00) == 0x7c00 && (f32_to_f16(NAN) & 0x3ff) != 0);
}

TEST(kernels, every_bf16_is_the_upper_half_of_a_float) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) CHECK(f32_to_bits(bf16_to_f32(static_cast<uint16_t>(bits))) == bits << 16, bits);
}

#if defined(__x86_64__)
namespace {

__attribute__((target("avx,f16c"))) uint16_t hardware_f16(float x) {
  return static_cast<uint16_t>(_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT)));
}
__attribute__((target("avx,f16c"))) float hardware_f32(uint16_t half) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half))); }

}  // namespace

TEST(kernels, half_precision_equals_the_hardwares) {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2")) return note("no f16c here");
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const auto h = static_cast<uint16_t>(half);
    CHECK(f32_to_bits(f16_to_f32(h)) == f32_to_bits(hardware_f32(h)), half);
  }
  Random random(9);
  for (int i = 0; i < 1000000; ++i) {
    const auto bits = static_cast<uint32_t>(random.bits());
    for (const float x : {f32_from_bits(bits), f32_from_bits((bits & 0x8fffffffu) | 0x30000000u)})  // the second: near the range of halves
      CHECK(f32_to_f16(x) == hardware_f16(x), f32_to_bits(x), f32_to_f16(x), hardware_f16(x));
  }
}
#endif
