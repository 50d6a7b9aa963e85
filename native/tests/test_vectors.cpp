// The kernels over plain vectors: every table against scalar, and scalar against double precision.
#include <algorithm>
#include <cmath>

#include "tests/guarded.h"
#include "tests/tables.h"

using namespace ultrafast;
using namespace ultrafast::test;

namespace {

constexpr int kSizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 575, 1031};

// body(table, n, x, y, want, got): inputs and outputs of n floats, in every size, placement and style.
template <class Body>
void for_each_case(Body body, int multiple = 1) {
  const auto tables = vector_tables();
  for (const int size : kSizes)
    for (const Style style : {Style::kNormal, Style::kWide, Style::kSpecial})
      for (const size_t slack : {0, 1}) {
        const int n = size * multiple;
        Random random(static_cast<uint64_t>(n));
        const auto count = static_cast<size_t>(n);
        const Guarded<float> x(count, slack), y(count, slack), want(count, slack), got(count, slack);
        fill(x, random, style);
        fill(y, random, style);
        for (const KernelTable* table : tables) body(*table, n, x, y, want, got);
      }
}

void check_same(const KernelTable& table, const Guarded<float>& want, const Guarded<float>& got) {
  for (size_t i = 0; i < want.size(); ++i) CHECK(same_bits(want[i], got[i]), table.name, want.size(), i, want[i], got[i]);
}

}  // namespace

TEST(kernels, rms_norm_is_the_same_on_every_isa) {
  for_each_case([](const KernelTable& table, int n, auto& x, auto& y, auto& want, auto& got) {
    scalar().rms_norm(x.data(), y.data(), n, 1e-5f, want.data());
    table.rms_norm(x.data(), y.data(), n, 1e-5f, got.data());
    check_same(table, want, got);
  });
}

TEST(kernels, silu_mul_is_the_same_on_every_isa) {
  for_each_case([](const KernelTable& table, int n, auto& x, auto& y, auto& want, auto& got) {
    scalar().silu_mul(x.data(), y.data(), n, want.data());
    table.silu_mul(x.data(), y.data(), n, got.data());
    check_same(table, want, got);
  });
}

TEST(kernels, gelu_mul_is_the_same_on_every_isa) {
  for_each_case([](const KernelTable& table, int n, auto& x, auto& y, auto& want, auto& got) {
    scalar().gelu_mul(x.data(), y.data(), n, want.data());
    table.gelu_mul(x.data(), y.data(), n, got.data());
    check_same(table, want, got);
  });
}

TEST(kernels, add_and_scale_are_the_same_on_every_isa) {
  for_each_case([](const KernelTable& table, int n, auto& x, auto& y, auto& want, auto& got) {
    for (const bool adding : {true, false})
      for (const KernelTable* each : {&scalar(), &table}) {
        const Guarded<float>& out = each == &table ? got : want;
        std::copy(x.begin(), x.end(), out.begin());
        if (adding)
          each->add(out.data(), y.data(), n);
        else
          each->scale(out.data(), y[0], n);
      }
    check_same(table, want, got);
  });
}

TEST(kernels, rope_is_the_same_on_every_isa) {
  const auto body = [](const KernelTable& table, int n, auto& x, auto& y, auto& want, auto& got) {
    for (const KernelTable* each : {&scalar(), &table}) {
      const Guarded<float>& out = each == &table ? got : want;
      std::copy(x.begin(), x.end(), out.begin());
      each->rope(out.data(), y.data(), n);
    }
    check_same(table, want, got);
  };
  for_each_case(body, 2);
}

TEST(kernels, softmax_numerators_are_the_same_on_every_isa) {
  for_each_case([](const KernelTable& table, int n, auto& x, auto&, auto& want, auto& got) {
    for (const float factor : {1.0f, 0.3f, 40.0f}) {
      const float sum = scalar().softmax_numerators(x.data(), n, x[0], factor, want.data());
      CHECK(same_bits(sum, table.softmax_numerators(x.data(), n, x[0], factor, got.data())), table.name, n, factor);
      check_same(table, want, got);
    }
  });
}

TEST(kernels, to_f16_is_the_same_on_every_isa_and_stays_finite) {
  for_each_case([](const KernelTable& table, int n, auto& x, auto&, auto&, auto&) {
    const auto count = static_cast<size_t>(n);
    const Guarded<uint16_t> want(count, count % 2), got(count, count % 2);
    scalar().to_f16(x.data(), want.data(), n);
    table.to_f16(x.data(), got.data(), n);
    for (size_t i = 0; i < count; ++i) {
      CHECK(want[i] == got[i], table.name, n, i, x[i]);
      CHECK(std::isfinite(f16_to_f32(want[i])), x[i]);
      if (std::isfinite(x[i]) && std::fabs(x[i]) <= 65504.0f) CHECK(want[i] == f32_to_f16(x[i]), x[i]);
    }
  });
}

TEST(kernels, argmax_is_the_same_on_every_isa) {
  for_each_case([](const KernelTable& table, int n, auto& x, auto&, auto&, auto&) {
    const int best = scalar().argmax(x.data(), n);
    CHECK(table.argmax(x.data(), n) == best, table.name, n, best);
    for (int i = 0; i < n; ++i)
      if (x[static_cast<size_t>(best)] == x[static_cast<size_t>(best)])
        CHECK(!(i < best ? x[static_cast<size_t>(i)] >= x[static_cast<size_t>(best)] : x[static_cast<size_t>(i)] > x[static_cast<size_t>(best)]),
              n, i, best);
  });
}

TEST(kernels, argmax_takes_the_lowest_of_equals_and_never_nan) {
  std::vector<const KernelTable*> tables = vector_tables();
  tables.push_back(&scalar());
  Random random(5);
  for (const KernelTable* table : tables) {
    const Guarded<float> x(1300);
    for (int trial = 0; trial < 100; ++trial) {
      for (float& value : x) value = random.below(8) == 0 ? NAN : -static_cast<float>(random.below(50));
      const int first = random.below(1300), second = random.below(1300);
      x[static_cast<size_t>(first)] = x[static_cast<size_t>(second)] = 1.0f;
      CHECK(table->argmax(x.data(), 1300) == std::min(first, second), table->name, first, second);
    }
    std::fill(x.begin(), x.end(), NAN);
    CHECK(table->argmax(x.data(), 1300) == 0, table->name);
    x[777] = -INFINITY;
    CHECK(table->argmax(x.data(), 1300) == 777, table->name);
    std::fill(x.begin(), x.end(), -INFINITY);
    CHECK(table->argmax(x.data(), 1300) == 0, table->name);
    x[1299] = INFINITY;
    CHECK(table->argmax(x.data(), 1300) == 1299, table->name);
  }
}

TEST(kernels, exponentials_are_accurate) {
  const Guarded<float> x(4096), out(4096);
  Random random(6);
  long double worst = 0.0;
  for (int trial = 0; trial < 20; ++trial) {
    long double total = 0.0;
    const double highest = trial % 2 == 0 ? 88.0 : 78.0;  // from 88 the sum leaves f32
    for (float& value : x) value = static_cast<float>(random.uniform() * (highest + 87.0) - 87.0);
    const float sum = scalar().softmax_numerators(x.data(), 4096, 0.0f, 1.0f, out.data());
    for (size_t i = 0; i < 4096; ++i) {
      worst = std::max(worst, std::fabs(out[i] / std::exp(static_cast<long double>(x[i])) - 1.0L));
      total += out[i];
    }
    if (highest < 80.0) CHECK(std::fabs(sum / total - 1.0L) < 3e-6L, sum);
  }
  CHECK(worst < 0x1.8p-23L, static_cast<double>(worst));
  x[0] = 0.0f;
  x[1] = -INFINITY;
  x[2] = NAN;
  x[3] = -1e30f;
  CHECK(scalar().softmax_numerators(x.data(), 4, 0.0f, 1.0f, out.data()) == 1.0f);
  CHECK(out[0] == 1.0f && out[1] < 2e-38f && out[2] < 2e-38f && out[3] < 2e-38f, out[1], out[2], out[3]);
}

TEST(kernels, vectors_are_close_to_double_precision) {
  Random random(7);
  const Guarded<float> x(577), y(577), out(577);
  fill(x, random, Style::kNormal);
  fill(y, random, Style::kNormal);
  double squares = 0.0;
  for (const float value : x) squares += double{value} * value;
  scalar().rms_norm(x.data(), y.data(), 577, 1e-5f, out.data());
  for (size_t i = 0; i < 577; ++i) {
    const double want = x[i] / std::sqrt(squares / 577 + 1e-5f) * y[i];
    CHECK(std::fabs(out[i] - want) <= 5e-7 * std::fabs(want), i, out[i], want);
  }
  for (float& value : x) value *= 30.0f;
  scalar().silu_mul(x.data(), y.data(), 577, out.data());
  for (size_t i = 0; i < 577; ++i) {
    const double want = x[i] / (1.0 + std::exp(-double{x[i]})) * y[i];
    CHECK(std::fabs(out[i] - want) <= 5e-7 * std::fabs(want) + 1e-30, x[i], out[i], want);
  }
  scalar().gelu_mul(x.data(), y.data(), 577, out.data());
  for (size_t i = 0; i < 577; ++i) {
    const double cubic = x[i] + 0.044715 * std::pow(double{x[i]}, 3);
    const double want = x[i] / (1.0 + std::exp(-1.5957691216057308 * cubic)) * y[i];
    CHECK(std::fabs(out[i] - want) <= 4e-6 * std::fabs(want) + 1e-30, x[i], out[i], want);
  }
  const float turned[] = {3.0f, 4.0f, 1.0f, 2.0f}, quarter_turns[] = {0.0f, 1.0f, -1.0f, 0.0f};  // a quarter, then a half turn
  std::copy(turned, turned + 4, out.begin());
  scalar().rope(out.data(), quarter_turns, 4);
  CHECK(out[0] == -4.0f && out[1] == 3.0f && out[2] == -1.0f && out[3] == -2.0f);
}
