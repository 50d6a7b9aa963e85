// Activations in 16-bit fixed point.
#include <algorithm>
#include <cmath>

#include "tests/act_rows.h"
#include "tests/tables.h"

using namespace ultrafast;
using namespace ultrafast::test;

TEST(kernels, quantize_is_the_same_on_every_isa) {
  for (const KernelTable* table : vector_tables())
    for (const Style style : {Style::kNormal, Style::kWide, Style::kSpecial})
      for (const int n : {32, 64, 96, 160, 1024})
        for (const size_t slack : {0, 1}) {
          Random random(static_cast<uint64_t>(n));
          const Guarded<float> x(static_cast<size_t>(n), slack);
          fill(x, random, style);
          const ActBuffers want(n, slack), got(n, slack);
          scalar().quantize(x.data(), n, want.row());
          table->quantize(x.data(), n, got.row());
          CHECK(std::equal(want.hi.begin(), want.hi.end(), got.hi.begin()), table->name, n);
          CHECK(std::equal(want.lo.begin(), want.lo.end(), got.lo.begin()), table->name, n);
          CHECK(std::equal(want.sum.begin(), want.sum.end(), got.sum.begin()), table->name, n);
          CHECK(same_bits(want.scale.data(), got.scale.data(), want.scale.size()), table->name, n);
          CHECK(same_bits(want.scaled_sum.data(), got.scaled_sum.data(), want.scale.size()), table->name, n);
        }
}

TEST(kernels, quantize_keeps_every_input_within_half_a_step) {
  Random random(2);
  const Guarded<float> x(32);
  const ActBuffers out(32, 0);
  for (int trial = 0; trial < 2000; ++trial) {
    fill(x, random, Style::kNormal);
    const float size = std::ldexp(1.0f, random.below(160) - 80);
    for (float& value : x) value *= size;
    scalar().quantize(x.data(), 32, out.row());
    const double step = out.scale[0];
    int sum = 0;
    for (size_t i = 0; i < 32; ++i) {
      const double error = std::fabs(x[i] - step * out.fixed(i));
      CHECK(error <= step * 0.5 * 1.02, trial, x[i], error / step);  // 1.02: 32512 times the rounding of the quotient, twice
      CHECK(std::abs(out.fixed(i)) <= 32512, trial, out.fixed(i));
      sum += out.fixed(i);
    }
    CHECK(sum == out.sum[0], trial);
    CHECK(out.scaled_sum[0] == out.scale[0] * static_cast<float>(sum), trial);
  }
}

TEST(kernels, quantize_rounds_ties_to_even_and_reaches_the_limits) {
  const Guarded<float> x(32);
  const ActBuffers out(32, 0);
  const float inputs[] = {32512.0f, -32512.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 127.0f, 128.0f, -128.0f, -129.0f};
  const int fixed[] = {32512, -32512, 0, 2, 2, 0, -2, 127, 128, -128, -129};
  std::copy(std::begin(inputs), std::end(inputs), x.begin());
  scalar().quantize(x.data(), 32, out.row());
  CHECK(out.scale[0] == 1.0f, out.scale[0]);
  for (size_t i = 0; i < std::size(fixed); ++i) CHECK(out.fixed(i) == fixed[i], i, out.fixed(i));
  CHECK(out.hi[8] == 1 && out.lo[8] == -128, int{out.hi[8]}, int{out.lo[8]});
}

TEST(kernels, quantize_of_zeros_is_zero) {
  for (const KernelTable* table : vector_tables()) {
    const Guarded<float> x(64);
    const ActBuffers out(64, 0);
    std::fill(x.begin(), x.begin() + 32, -0.0f);
    std::fill(out.hi.begin(), out.hi.end(), int8_t{9});
    out.scale[1] = out.scaled_sum[0] = 7.0f;
    table->quantize(x.data(), 64, out.row());
    for (size_t i = 0; i < 64; ++i) CHECK(out.fixed(i) == 0, table->name, i);
    for (size_t b = 0; b < 2; ++b) CHECK(out.scale[b] == 0.0f && out.scaled_sum[b] == 0.0f && out.sum[b] == 0, table->name, b);
  }
}

TEST(kernels, quantize_takes_a_vanishing_block_for_zero) {  // the inverse of its scale would be infinite
  const Guarded<float> x(32);
  const ActBuffers out(32, 0);
  for (const float largest : {1e-45f, 1e-38f, 9e-35f}) {
    std::fill(x.begin(), x.end(), 0.0f);
    x.begin()[5] = largest;
    scalar().quantize(x.data(), 32, out.row());
    for (size_t i = 0; i < 32; ++i) CHECK(out.fixed(i) == 0, largest, i, out.fixed(i));
    CHECK(out.scale[0] == 0.0f && out.sum[0] == 0, largest);
  }
}

TEST(kernels, quantize_orders_pairs_for_the_isa_that_reads_them) {
  const KernelTable* table = find_kernels("avx2");
  if (table == nullptr) return note("no avx2 here");
  Random random(3);
  const Guarded<float> x(96);
  fill(x, random, Style::kNormal);
  const ActBuffers out(96, 0);
  table->quantize(x.data(), 96, out.row());
  constexpr size_t kInput[] = {0, 2, 1, 3};
  for (size_t i = 0; i < 96; ++i) CHECK(out.pairs[i] == out.fixed(i / 4 * 4 + kInput[i % 4]), i);
}
