// IEEE 754 half precision and bfloat16 in plain C++: the definition that the vector conversions must equal.
#pragma once

#include <cstdint>
#include <cstring>

namespace ultrafast {

static inline float f32_from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

static inline uint32_t f32_to_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float f16_to_f32(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24 is exact in f32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return f32_from_bits(sign | f32_to_bits(magnitude));
  }
  if (exponent == 31) return f32_from_bits(sign | 0x7f800000u | (mantissa != 0 ? 0x400000u | (mantissa << 13) : 0u));
  return f32_from_bits(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

// Round to nearest even; overflow goes to infinity, as vcvtps2ph does.
static inline uint16_t f32_to_f16(float value) {
  const uint32_t bits = f32_to_bits(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to >= 65520
  if (magnitude < 0x38800000u) {                                               // below 2^-14: subnormal half
    // Adding 0.5 aligns the ulp of the sum with the half subnormal step 2^-24, so the hardware rounds to nearest even.
    const float shifted = f32_from_bits(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (f32_to_bits(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

static inline float bf16_to_f32(uint16_t value) { return f32_from_bits(static_cast<uint32_t>(value) << 16); }

}  // namespace ultrafast
