// Which tokens top-k, top-p and min-p keep, and how often each is drawn.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "decode/sampler.h"
#include "tests/tables.h"
#include "tests/random.h"

using namespace ultrafast;
using namespace ultrafast::test;

namespace {

// The definition, step by step: rank, keep the k best, then the fewest whose share of those reaches p, then those at
// least min_p times as likely as the best. Returns the probabilities of the kept tokens, most likely first.
std::vector<std::pair<int32_t, double>> kept_tokens(const std::vector<float>& logits, const SamplingParams& params) {
  std::vector<std::pair<int32_t, double>> ranked;
  const float largest = *std::max_element(logits.begin(), logits.end());
  for (size_t i = 0; i < logits.size(); ++i)
    ranked.emplace_back(static_cast<int32_t>(i), std::exp((double{logits[i]} - largest) / params.temperature));
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < ranked.size()) ranked.resize(static_cast<size_t>(params.top_k));
  double total = 0.0, mass = 0.0;
  for (const auto& [token, weight] : ranked) total += weight;
  size_t keep = 0;
  while (keep < ranked.size() && (keep == 0 || mass < params.top_p * total)) mass += ranked[keep++].second;
  ranked.resize(keep);
  std::erase_if(ranked, [&](const auto& entry) { return entry.second < params.min_p; });
  double sum = 0.0;
  for (const auto& [token, weight] : ranked) sum += weight;
  for (auto& [token, weight] : ranked) weight /= sum;
  return ranked;
}

// True if rounding could decide who is kept: then the definition in double and the sampler may rightly differ.
bool is_close_call(const std::vector<float>& logits, const SamplingParams& params) {
  for (const float change : {0.999f, 1.001f}) {
    SamplingParams near = params;
    near.top_p = params.top_p < 1.0f ? std::min(params.top_p * change, 1.0f) : 1.0f;
    near.min_p = params.min_p * change;
    if (kept_tokens(logits, near).size() != kept_tokens(logits, params).size()) return true;
  }
  return false;
}

class Draws {
 public:
  Draws(const std::vector<float>& logits, const SamplingParams& params) : logits_(logits), sampler_(params) {}
  int32_t operator()(uint64_t position) {
    return sampler_.pick(scalar(), logits_.data(), static_cast<int>(logits_.size()), position, nullptr, scratch_, order_);
  }

 private:
  const std::vector<float>& logits_;
  Sampler sampler_;
  std::vector<float> scratch_;
  std::vector<int32_t> order_;
};

}  // namespace

// The draw u falls on the token where the running sum of the kept probabilities, in the sampler's order, passes u.
TEST(decode, kept_sets_are_as_defined) {
  Random random(1);
  int compared = 0;
  for (int trial = 0; trial < 1500; ++trial) {
    const int n = trial % 10 == 0 ? 2000 : 1 + random.below(60);
    std::vector<float> logits(static_cast<size_t>(n));
    for (float& x : logits) x = random.below(4) == 0 ? static_cast<float>(random.below(3)) : 2.0f * random.normal();  // some are equal
    SamplingParams params{.temperature = static_cast<float>(0.3 + random.uniform()), .seed = static_cast<uint64_t>(trial)};
    if (random.below(2) == 0) params.top_k = 1 + random.below(n + 5);
    if (random.below(2) == 0) params.top_p = static_cast<float>(random.uniform());
    if (random.below(2) == 0) params.min_p = static_cast<float>(0.5 * random.uniform());
    if (is_close_call(logits, params)) continue;
    auto kept = kept_tokens(logits, params);
    const bool by_id = (params.top_k == 0 || params.top_k >= n) && params.top_p == 1.0f;
    if (by_id) std::sort(kept.begin(), kept.end());
    Draws draw(logits, params);
    for (uint64_t position = 0; position < 5; ++position) {
      const double u = uniform_at(params.seed, position);
      double below = 0.0;
      size_t i = 0;
      while (i + 1 < kept.size() && below + kept[i].second <= u) below += kept[i++].second;
      if (u - below < 1e-5 || below + kept[i].second - u < 1e-5) continue;  // too near a border for f32 weights
      CHECK(draw(position) == kept[i].first, trial, n, params.top_k, params.top_p, params.min_p, position);
      ++compared;
    }
  }
  CHECK(compared > 5000, compared);
}

TEST(decode, only_kept_tokens_are_drawn_and_all_of_them) {
  std::vector<float> logits(30);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = -0.1f * static_cast<float>(i * 7 % 30);
  for (const SamplingParams& params : {SamplingParams{.temperature = 1.0f, .top_k = 5}, SamplingParams{.temperature = 1.0f, .top_p = 0.5f},
                                       SamplingParams{.temperature = 1.0f, .min_p = 0.6f}, SamplingParams{.temperature = 1.0f}}) {
    std::set<int32_t> want, got;
    for (const auto& [token, probability] : kept_tokens(logits, params)) want.insert(token);
    Draws draw(logits, params);
    for (uint64_t position = 0; position < 4000; ++position) got.insert(draw(position));
    CHECK(want == got, params.top_k, params.top_p, params.min_p, want.size(), got.size());
  }
}

TEST(decode, draws_follow_the_distribution) {
  constexpr int kDraws = 20000;
  const std::vector<float> logits = {0.0f, 1.0f, 0.5f, -1.0f, 2.0f, 1.0f};
  for (const SamplingParams& params :
       {SamplingParams{.temperature = 1.0f, .seed = 11}, SamplingParams{.temperature = 0.6f, .seed = 12}, SamplingParams{.temperature = 1.5f, .top_k = 4, .seed = 13},
        SamplingParams{.temperature = 1.0f, .top_p = 0.9f, .seed = 14}, SamplingParams{.temperature = 1.0f, .min_p = 0.2f, .seed = 15}}) {
    std::map<int32_t, int> counts;
    Draws draw(logits, params);
    for (uint64_t position = 0; position < kDraws; ++position) ++counts[draw(position)];
    double chi_square = 0.0;
    for (const auto& [token, probability] : kept_tokens(logits, params))
      chi_square += std::pow(counts[token] - probability * kDraws, 2) / (probability * kDraws);
    CHECK(chi_square < 20.5, params.seed, chi_square);  // at most 5 degrees of freedom: exceeded once in 1000
  }
}
