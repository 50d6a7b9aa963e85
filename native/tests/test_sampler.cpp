// Random numbers, adjustments of logits, and log-probabilities.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "decode/sampler.h"
#include "tests/tables.h"
#include "tests/random.h"

using namespace ultrafast;
using namespace ultrafast::test;

namespace {

// Philox4x32-10 as the paper writes it, for any counter and key.
struct Philox {
  uint32_t counter[4], key[2];
  void run() {
    for (int round = 0; round < 10; ++round, key[0] += 0x9E3779B9, key[1] += 0xBB67AE85) {
      const uint64_t product0 = 0xD2511F53ull * counter[0], product1 = 0xCD9E8D57ull * counter[2];
      const auto high0 = static_cast<uint32_t>(product0 >> 32), high1 = static_cast<uint32_t>(product1 >> 32);
      counter[0] = high1 ^ counter[1] ^ key[0];
      counter[2] = high0 ^ counter[3] ^ key[1];
      counter[1] = static_cast<uint32_t>(product1);
      counter[3] = static_cast<uint32_t>(product0);
    }
  }
};

int32_t pick(const Sampler& sampler, const std::vector<float>& logits, uint64_t position = 0) {
  std::vector<float> scratch;
  std::vector<int32_t> order;
  return sampler.pick(scalar(), logits.data(), static_cast<int>(logits.size()), position, nullptr, scratch, order);
}

std::vector<float> random_logits(int n, uint64_t seed) {
  Random random(seed);
  std::vector<float> logits(static_cast<size_t>(n));
  for (float& x : logits) x = 3.0f * random.normal();
  return logits;
}

}  // namespace

TEST(decode, random_numbers_are_philox) {
  // Known answers published with Random123 (kat_vectors).
  Philox zeros{{0, 0, 0, 0}, {0, 0}};
  zeros.run();
  CHECK(zeros.counter[0] == 0x6627e8d5 && zeros.counter[1] == 0xe169c58d && zeros.counter[2] == 0xbc57ac4c && zeros.counter[3] == 0x9b00dbd8);
  Philox ones{{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}};
  ones.run();
  CHECK(ones.counter[0] == 0x408f276d && ones.counter[1] == 0x41c83b0e && ones.counter[2] == 0xa20bc7c6 && ones.counter[3] == 0x6d5451fd);
  Philox pi{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}};
  pi.run();
  CHECK(pi.counter[0] == 0xd16cfe09 && pi.counter[1] == 0x94fdcceb && pi.counter[2] == 0x5001e420 && pi.counter[3] == 0x24126ea1);

  CHECK(uniform_at(0, 0) == static_cast<double>(0x6627e8d5e169c58dull >> 11) * 0x1p-53);
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t seed = random.bits(), position = i % 2 == 0 ? random.bits() : static_cast<uint64_t>(i);
    Philox philox{{static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0},
                  {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}};
    philox.run();
    const uint64_t bits = uint64_t{philox.counter[0]} << 32 | philox.counter[1];
    CHECK(uniform_at(seed, position) == static_cast<double>(bits >> 11) * 0x1p-53, seed, position);
  }
}

TEST(decode, random_numbers_are_uniform_over_positions_and_seeds) {
  for (const bool over_seeds : {false, true}) {
    constexpr int kBins = 20, kDraws = 20000;
    int bins[kBins] = {};
    for (uint64_t i = 0; i < kDraws; ++i) {
      const double u = over_seeds ? uniform_at(i, 5) : uniform_at(5, i);
      CHECK(u >= 0.0 && u < 1.0, u);
      ++bins[static_cast<int>(u * kBins)];
    }
    double chi_square = 0.0;
    for (const int count : bins) chi_square += std::pow(count - kDraws / kBins, 2) / (kDraws / kBins);
    CHECK(chi_square < 43.8, chi_square);  // 19 degrees of freedom: exceeded once in 1000
  }
}

TEST(decode, greedy_takes_the_largest) {
  const Sampler greedy({});
  const std::vector<float> logits = {1.0f, 5.0f, -2.0f, 5.0f};
  for (uint64_t position = 0; position < 50; ++position) CHECK(pick(greedy, logits, position) == 1);
  const auto many = random_logits(3000, 1);
  const auto best = static_cast<int32_t>(std::max_element(many.begin(), many.end()) - many.begin());
  for (const SamplingParams& params : {SamplingParams{}, SamplingParams{.temperature = 1.0f, .top_k = 1}, SamplingParams{.temperature = 1.0f, .top_p = 0.0f},
                                       SamplingParams{.temperature = 1e-6f}, SamplingParams{.temperature = 1e-40f},
                                       SamplingParams{.temperature = 1.0f, .min_p = 1.0f}})
    for (uint64_t position = 0; position < 50; ++position)
      CHECK(pick(Sampler(params), many, position) == best, params.temperature, params.top_k, params.top_p, params.min_p);
}

TEST(decode, a_draw_depends_on_seed_and_position_alone) {
  const auto logits = random_logits(500, 2);
  int differ = 0;
  for (uint64_t position = 0; position < 100; ++position) {
    const Sampler one({.temperature = 1.0f, .seed = 7}), other({.temperature = 1.0f, .seed = 8});
    CHECK(pick(one, logits, position) == pick(one, logits, position), position);
    differ += pick(one, logits, position) != pick(other, logits, position);
  }
  CHECK(differ > 50, differ);
}

TEST(decode, penalties_are_as_defined) {
  SamplingParams params{.repetition_penalty = 2.0f, .presence_penalty = 0.5f, .frequency_penalty = 0.25f};
  Sampler sampler(params);
  sampler.see_prompt({0, 1, 99});  // 99: not in this vocabulary
  sampler.see_output(2);
  sampler.see_output(2);
  sampler.see_output(1);
  // Adjusted: 8 / 2; -1 * 2 - 0.5 - 0.25; 10 / 2 - 0.5 - 0.5; the last is not seen.
  const std::vector<float> logits = {8.0f, -1.0f, 10.0f, 0.0f};
  const float adjusted[] = {4.0f, -2.75f, 4.0f, 0.0f};
  for (int32_t i = 0; i < 4; ++i)  // raising token 3 to just below and just above shows where each of the others stands
    for (const float margin : {-0.01f, 0.01f}) {
      std::vector<float> only(4, -100.0f);
      only[static_cast<size_t>(i)] = logits[static_cast<size_t>(i)];
      if (i == 3) continue;
      only[3] = adjusted[i] + margin;
      CHECK(pick(sampler, only) == (margin < 0 ? i : 3), i, margin);
    }
  CHECK(pick(sampler, logits) == 0);  // 4 and 4: the lower id
  Sampler presence({.presence_penalty = 1.0f});
  presence.see_prompt({0});
  CHECK(pick(presence, {1.0f, 0.5f}) == 0);  // the prompt counts for repetition alone
  presence.see_output(0);
  presence.see_output(0);
  CHECK(pick(presence, {1.0f, -0.1f}) == 0 && pick(presence, {1.0f, 0.1f}) == 1);  // once, however often it was seen
}

TEST(decode, logit_bias_is_added) {
  const std::vector<float> logits = {1.0f, 2.0f, 3.0f};
  const std::vector<float> before = logits;
  const Sampler biased({.logit_bias = {{0, 2.5f}, {2, -100.0f}, {-1, 9.0f}, {3, 9.0f}}});  // the last two are no tokens
  CHECK(pick(biased, logits) == 0);
  CHECK(logits == before);
  for (uint64_t position = 0; position < 200; ++position)
    CHECK(pick(Sampler({.temperature = 1.0f, .logit_bias = {{2, -INFINITY}}}), logits, position) != 2, position);
}

TEST(decode, logprobs_are_log_softmax_of_the_models_own_logits) {
  std::vector<float> logits = random_logits(1000, 3);
  logits[10] = logits[20] = logits[5] = 15.0f;
  double sum = 0.0;
  for (const float x : logits) sum += std::exp(double{x} - 15.0);
  const double normalizer = 15.0 + std::log(sum);
  std::vector<int32_t> ranking(1000);
  std::iota(ranking.begin(), ranking.end(), 0);
  std::stable_sort(ranking.begin(), ranking.end(), [&](int32_t a, int32_t b) { return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)]; });
  CHECK(ranking[0] == 5 && ranking[1] == 10 && ranking[2] == 20);
  for (const int count : {0, 1, 2, 20, 1000, 2000}) {
    std::vector<float> scratch;
    const Logprobs got = Sampler::logprobs(scalar(), logits.data(), 1000, 7, count, scratch);
    CHECK(std::fabs(got.chosen - (logits[7] - normalizer)) < 1e-5, got.chosen);
    CHECK(got.top.size() == static_cast<size_t>(std::min(count, 1000)), count);
    for (size_t i = 0; i < got.top.size(); ++i) {
      CHECK(got.top[i].first == ranking[i], count, i);
      CHECK(std::fabs(got.top[i].second - (logits[static_cast<size_t>(ranking[i])] - normalizer)) < 1e-5, count, i);
    }
  }
}

TEST(decode, logits_that_are_no_numbers_do_no_harm) {
  const std::vector<std::vector<float>> cases = {{NAN, NAN, NAN}, {-INFINITY, -INFINITY}, {NAN, 1.0f, NAN, 0.0f}, {INFINITY, 1.0f}, {NAN, INFINITY, -INFINITY},
                                                 {1.0f, -INFINITY, NAN}};
  const int32_t best[] = {0, 0, 1, 0, 1, 0};
  for (size_t c = 0; c < cases.size(); ++c) {
    const int n = static_cast<int>(cases[c].size());
    CHECK(pick(Sampler({}), cases[c]) == best[c], c);
    for (const SamplingParams& params : {SamplingParams{.temperature = 0.7f}, SamplingParams{.temperature = 0.7f, .top_k = 2, .top_p = 0.9f, .min_p = 0.1f},
                                         SamplingParams{.temperature = 1e30f, .top_p = 0.5f}}) {
      const int32_t token = pick(Sampler(params), cases[c], 3);
      CHECK(token >= 0 && token < n, c, token);
      if (params.temperature < 1.0f && c != 2) CHECK(token == best[c], c, token);
    }
    std::vector<float> scratch;
    CHECK(Sampler::logprobs(scalar(), cases[c].data(), n, 0, 5, scratch).top.size() == cases[c].size(), c);
  }
}
