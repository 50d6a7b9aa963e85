// Attention over one chunk, and the merge of chunks.
#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/guarded.h"
#include "tests/tables.h"

using namespace ultrafast;
using namespace ultrafast::test;

namespace {

constexpr int kHeadDims[] = {2, 8, 16, 20, 64, 80, 128};

// Inputs of one chunk in guarded memory; keys and values end with the last group that the chunk's length touches.
struct Case {
  Case(int queries, int head_dim, int length, uint64_t seed, bool any_bits, int first = 0)
      : num_q(queries), dim(head_dim), padded((dim + 15) / 16 * 16), q(size(num_q, dim)), k(size((length + 15) / 16 * 16, dim)),
        v(size(length, padded)) {
    Random random(seed);
    fill(q, random, Style::kNormal);
    for (float& x : q) x /= std::sqrt(static_cast<float>(dim));
    for (const Guarded<uint16_t>* half : {&k, &v})
      for (uint16_t& x : *half) x = any_bits && random.below(4) == 0 ? static_cast<uint16_t>(random.bits()) : f32_to_f16(random.normal());
    chunk = {q.data(), num_q, dim, padded, k.data(), v.data(), first, length, nullptr, nullptr, nullptr, nullptr};
  }
  static size_t size(int rows, int cols) { return static_cast<size_t>(rows * cols); }

  double score(int head, int p) const {
    double sum = 0.0;
    for (int d = 0; d < dim; ++d) sum += double{q[size(head, dim) + d]} * f16_to_f32(k[size(p / 16 * dim + d, 16) + p % 16]);
    return sum;
  }
  double value(int p, int d) const { return f16_to_f32(v[size(p, padded) + d]); }

  int num_q, dim, padded;
  Guarded<float> q;
  Guarded<uint16_t> k, v;
  AttentionChunk chunk;
};

struct Result {
  Result(const Case& c) : max(Case::size(c.num_q, 1)), sum(max.size()), acc(Case::size(c.num_q, c.padded)) {}
  void compute(const KernelTable& table, const Case& c) const {
    AttentionChunk chunk = c.chunk;
    chunk.max = max.data();
    chunk.sum = sum.data();
    chunk.acc = acc.data();
    table.attention(chunk);
  }
  Guarded<float> max, sum, acc;
};

void check_parity(const std::vector<const KernelTable*>& tables, int num_q, int dim, int length, bool any_bits, int first = 0) {
  const Case c(num_q, dim, length, static_cast<uint64_t>(dim * 1000 + length * 10 + num_q), any_bits, first);
  const Result want(c), got(c);
  want.compute(scalar(), c);
  for (const KernelTable* table : tables) {
    got.compute(*table, c);
    CHECK(same_bits(want.max.data(), got.max.data(), want.max.size()), table->name, num_q, dim, length, any_bits, first);
    CHECK(same_bits(want.sum.data(), got.sum.data(), want.sum.size()), table->name, num_q, dim, length, any_bits, first);
    CHECK(same_bits(want.acc.data(), got.acc.data(), want.acc.size()), table->name, num_q, dim, length, any_bits, first);
  }
}

}  // namespace

TEST(kernels, attention_is_the_same_on_every_isa) {
  const auto tables = vector_tables();
  for (int length = 1; length <= kKvBlock; ++length) {  // each head size with some lengths, each length with some sizes
    const int dim = kHeadDims[length % 7], num_q = 1 + length % 9;
    check_parity(tables, num_q, dim, length, false);
    check_parity(tables, num_q, kHeadDims[length / 16], length, true);
    for (const int first : {length / 3, length - 1}) check_parity(tables, num_q, dim, length, false, first);
  }
  for (const int dim : kHeadDims)
    for (const int num_q : {1, 3, 4, 9}) check_parity(tables, num_q, dim, 33, false);
}

TEST(kernels, attention_is_close_to_double_precision) {
  constexpr int kSpans[][2] = {{0, 1}, {0, 5}, {0, 16}, {0, 17}, {0, 63}, {0, 64}, {1, 64}, {15, 17}, {16, 40}, {31, 33}, {63, 64}};
  for (const int dim : kHeadDims)
    for (const auto& [first, length] : kSpans)
      for (int num_q = 1; num_q <= 9; num_q += dim > 64 ? 4 : 1) {
        const Case c(num_q, dim, length, static_cast<uint64_t>(dim + length + num_q), false, first);
        const Result result(c);
        result.compute(scalar(), c);
        for (int h = 0; h < num_q; ++h) {
          std::vector<double> weights;
          for (int p = first; p < length; ++p) weights.push_back(c.score(h, p));
          const double largest = *std::max_element(weights.begin(), weights.end());
          double sum = 0.0;
          for (double& w : weights) sum += w = std::exp(w - largest);
          const auto head = static_cast<size_t>(h);
          CHECK(std::fabs(result.max[head] - largest) < 1e-5, dim, length, h);
          CHECK(std::fabs(result.sum[head] / sum - 1.0) < 1e-5, dim, length, h);
          for (int d = 0; d < dim; ++d) {
            double want = 0.0;
            for (int p = first; p < length; ++p) want += weights[static_cast<size_t>(p - first)] / sum * c.value(p, d);
            const double got = result.acc[head * c.padded + d] / result.sum[head];
            CHECK(std::fabs(got - want) < 1e-5, dim, length, num_q, h, d, got, want);
          }
        }
      }
}

TEST(kernels, attention_of_a_head_does_not_depend_on_the_others) {
  const Case c(9, 20, 50, 1, false);
  const Result together(c);
  std::vector<const KernelTable*> tables = vector_tables();
  tables.push_back(&scalar());
  for (const KernelTable* table : tables) {
    together.compute(*table, c);
    for (size_t h = 0; h < 9; ++h) {
      float max, sum, acc[32];
      AttentionChunk one = c.chunk;
      one.q += h * 20;
      one.num_q = 1;
      one.max = &max;
      one.sum = &sum;
      one.acc = acc;
      table->attention(one);
      CHECK(same_bits(max, together.max[h]) && same_bits(sum, together.sum[h]), table->name, h);
      CHECK(same_bits(acc, together.acc.data() + h * 32, 32), table->name, h);
    }
  }
}

TEST(kernels, merged_chunks_are_attention_over_all_of_them) {
  constexpr int kChunks = 5, kDim = 20, kPadded = 32;
  std::vector<const KernelTable*> tables = vector_tables();
  tables.insert(tables.begin(), &scalar());
  const Case query(1, kDim, 1, 99, false);
  float first_max = 0.0f, first_acc[kPadded] = {};
  for (const KernelTable* table : tables) {
    float max = 0.0f, sum = 0.0f;
    const Guarded<float> acc(kPadded);
    std::vector<double> scores, values;  // values of dimension 7
    for (int i = 0; i < kChunks; ++i) {
      const Case c(1, kDim, i + 1 < kChunks ? 64 : 11, static_cast<uint64_t>(i), false);
      std::copy(query.q.begin(), query.q.end(), c.q.begin());
      const Result part(c);
      part.compute(*table, c);
      if (i == 0) {
        max = part.max[0];
        sum = part.sum[0];
        std::copy(part.acc.begin(), part.acc.end(), acc.begin());
      } else {
        table->attention_merge(&max, &sum, acc.data(), part.max[0], part.sum[0], part.acc.data(), kPadded);
      }
      for (int p = 0; p < c.chunk.length; ++p) {
        scores.push_back(c.score(0, p));
        values.push_back(c.value(p, 7));
      }
    }
    double weight = 0.0, weighted = 0.0;
    const double largest = *std::max_element(scores.begin(), scores.end());
    for (size_t p = 0; p < scores.size(); ++p) {
      weight += std::exp(scores[p] - largest);
      weighted += std::exp(scores[p] - largest) * values[p];
    }
    CHECK(std::fabs(acc[7] / sum - weighted / weight) < 1e-5, table->name, acc[7] / sum, weighted / weight);
    if (table == &scalar()) {
      first_max = max;
      std::copy(acc.begin(), acc.end(), first_acc);
    }
    CHECK(same_bits(max, first_max) && same_bits(acc.data(), first_acc, kPadded), table->name);
  }
}

TEST(kernels, merging_is_the_same_on_every_isa_for_any_values) {
  const auto tables = vector_tables();
  Random random(8);
  for (int trial = 0; trial < 500; ++trial) {
    const auto dim = static_cast<size_t>(16 * (1 + random.below(8)));
    const Guarded<float> chunk(dim, trial % 2), start(dim), want(dim, trial % 2), got(dim, trial % 2);
    const Style style = trial % 3 == 0 ? Style::kSpecial : Style::kNormal;
    fill(chunk, random, style);
    fill(start, random, style);
    const float max = number(random, style), sum = number(random, style), chunk_max = number(random, style), chunk_sum = number(random, style);
    float want_max = max, want_sum = sum;
    std::copy(start.begin(), start.end(), want.begin());
    scalar().attention_merge(&want_max, &want_sum, want.data(), chunk_max, chunk_sum, chunk.data(), static_cast<int>(dim));
    for (const KernelTable* table : tables) {
      float got_max = max, got_sum = sum;
      std::copy(start.begin(), start.end(), got.begin());
      table->attention_merge(&got_max, &got_sum, got.data(), chunk_max, chunk_sum, chunk.data(), static_cast<int>(dim));
      CHECK(same_bits(want_max, got_max) && same_bits(want_sum, got_sum) && same_bits(want.data(), got.data(), dim), table->name, trial);
    }
  }
}
