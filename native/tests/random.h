// Numbers for tests: the same on every machine and in every run.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/f16.h"

namespace ultrafast::test {

class Random {  // SplitMix64
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t bits() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  int below(int n) { return static_cast<int>(bits() % static_cast<uint64_t>(n)); }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }  // [0, 1)
  float normal() {                                                          // nearly: the sum of twelve uniform numbers
    double sum = -6.0;
    for (int i = 0; i < 12; ++i) sum += uniform();
    return static_cast<float>(sum);
  }

 private:
  uint64_t state_;
};

enum class Style {
  kNormal,   // mean 0, variance 1
  kWide,     // any finite bit pattern: denormals and huge values too
  kSpecial,  // normal values among NaN, infinities, signed zeros, denormals and the largest numbers
};

inline float number(Random& random, Style style) {
  constexpr float kSpecials[] = {std::numeric_limits<float>::quiet_NaN(), INFINITY, -INFINITY, 0.0f, -0.0f, 1e-45f, -1e-40f,
                                 std::numeric_limits<float>::max(), -std::numeric_limits<float>::max(), 65504.0f, 65520.0f, -1e30f};
  switch (style) {
    case Style::kNormal: break;
    case Style::kWide:
      for (;;) {
        const float x = f32_from_bits(static_cast<uint32_t>(random.bits()));
        if (std::isfinite(x)) return x;
      }
    case Style::kSpecial:
      if (random.below(3) == 0) return kSpecials[random.below(sizeof kSpecials / sizeof *kSpecials)];
      break;
  }
  return random.normal();
}

// The numbers from first up to, but without, last.
inline std::vector<int32_t> range(int32_t first, int32_t last) {
  std::vector<int32_t> numbers;
  for (; first < last; ++first) numbers.push_back(first);
  return numbers;
}

}  // namespace ultrafast::test
