// Inputs of matrices in guarded memory.
#pragma once

#include <memory>
#include <vector>

#include "kernels/kernels.h"
#include "tests/guarded.h"

namespace ultrafast::test {

// Where one token's ActRow lies.
struct ActBuffers {
  ActBuffers(int cols, size_t slack)
      : hi(n(cols), slack), lo(n(cols), slack), pairs(n(cols), slack), scale(n(cols) / kBlock, slack),
        scaled_sum(n(cols) / kBlock, slack), sum(n(cols) / kBlock, slack), f32(n(cols), slack) {}

  ActRow row() const { return {hi.data(), lo.data(), pairs.data(), scale.data(), scaled_sum.data(), sum.data(), f32.data()}; }

  // Sets one fixed-point input; `finish` then derives what is redundant.
  void set(size_t i, int value) const {
    constexpr size_t kPlace[] = {0, 2, 1, 3};
    const int high = (value + 128) >> 8;
    hi[i] = static_cast<int8_t>(high);
    lo[i] = static_cast<int8_t>(value - 256 * high);
    pairs[i / 4 * 4 + kPlace[i % 4]] = static_cast<int16_t>(value);
  }
  int fixed(size_t i) const { return 256 * hi[i] + lo[i]; }
  void finish(Random& random) const {
    for (size_t b = 0; b < scale.size(); ++b) {
      sum[b] = 0;
      for (size_t i = b * kBlock; i < (b + 1) * kBlock; ++i) sum[b] += fixed(i);
      scale[b] = static_cast<float>(1e-4 * (0.1 + random.uniform()));
      scaled_sum[b] = scale[b] * static_cast<float>(sum[b]);
    }
  }

  Guarded<int8_t> hi, lo;
  Guarded<int16_t> pairs;
  Guarded<float> scale, scaled_sum;
  Guarded<int32_t> sum;
  Guarded<float> f32;

 private:
  static size_t n(int cols) { return static_cast<size_t>(cols); }
};

// The inputs of several tokens.
class ActTokens {
 public:
  ActTokens(int tokens, int cols, size_t slack) {
    for (int t = 0; t < tokens; ++t) {
      buffers_.push_back(std::make_unique<ActBuffers>(cols, slack));
      rows_.push_back(buffers_.back()->row());
    }
  }
  const ActBuffers& operator[](int t) const { return *buffers_[static_cast<size_t>(t)]; }
  const ActRow* rows() const { return rows_.data(); }

  // Random inputs, or only the values that stress the integers most: the range that quantize() writes is +-32512.
  void fill(Random& random, bool extreme) {
    constexpr int kExtremes[] = {32512, -32512, 32639, -32768, 127, -128, 32511, 0};
    for (const auto& b : buffers_) {
      for (size_t i = 0; i < b->f32.size(); ++i) {
        b->f32[i] = number(random, extreme ? Style::kSpecial : Style::kNormal);
        if (b->f32.size() % kBlock == 0) b->set(i, extreme ? kExtremes[random.below(8)] : random.below(65025) - 32512);
      }
      if (b->f32.size() % kBlock == 0) b->finish(random);
    }
  }

 private:
  std::vector<std::unique_ptr<ActBuffers>> buffers_;
  std::vector<ActRow> rows_;
};

}  // namespace ultrafast::test
