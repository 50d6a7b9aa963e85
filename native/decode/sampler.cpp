#include "decode/sampler.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

namespace ultrafast {

namespace {

bool is_allowed(const uint32_t* allowed, int32_t token) { return (allowed[token / 32] >> (token % 32) & 1) != 0; }

// Writes `value` in the place of tokens that are not allowed.
void confine(float* x, int n, const uint32_t* allowed, float value) {
  for (int first = 0; first < n; first += 32) {
    const uint32_t word = allowed[first / 32];
    if (word == ~uint32_t{0}) continue;
    const int count = std::min(32, n - first);
    for (int i = 0; i < count; ++i)
      if ((word >> i & 1) == 0) x[first + i] = value;
  }
}

}  // namespace

double uniform_at(uint64_t seed, uint64_t position) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57, kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  uint32_t counter[4] = {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0};
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{kMultiplier0} * counter[0], b = uint64_t{kMultiplier1} * counter[2];
    const uint32_t next[4] = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
                              static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    std::memcpy(counter, next, sizeof counter);
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  const uint64_t bits = (uint64_t{counter[0]} << 32 | counter[1]) >> 11;  // 53 bits fill a double's mantissa
  return static_cast<double>(bits) * 0x1p-53;
}

void Sampler::see_prompt(const std::vector<int32_t>& tokens) {
  if (params_.repetition_penalty == 1.0f) return;
  for (const int32_t token : tokens) seen_.try_emplace(token);
}

void Sampler::see_output(int32_t token) {
  if (params_.repetition_penalty == 1.0f && params_.presence_penalty == 0.0f && params_.frequency_penalty == 0.0f) return;
  ++seen_[token].in_output;
}

bool Sampler::adjusts() const { return !seen_.empty() || !params_.logit_bias.empty(); }

void Sampler::adjust(float* logits, int n) const {
  for (const auto& [token, seen] : seen_) {
    if (token < 0 || token >= n) continue;
    float& logit = logits[token];
    logit = logit > 0.0f ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
    if (seen.in_output > 0)
      logit -= params_.presence_penalty + params_.frequency_penalty * static_cast<float>(seen.in_output);
  }
  for (const auto& [token, bias] : params_.logit_bias)
    if (token >= 0 && token < n) logits[token] += bias;
}

int32_t Sampler::pick(const KernelTable& kernels, const float* logits, int n, uint64_t position, const uint32_t* allowed,
                      std::vector<float>& scratch, std::vector<int32_t>& order) const {
  scratch.resize(static_cast<size_t>(n));
  if (adjusts() || allowed != nullptr) {
    std::copy(logits, logits + n, scratch.data());
    if (allowed != nullptr) confine(scratch.data(), n, allowed, -HUGE_VALF);
    adjust(scratch.data(), n);
    logits = scratch.data();
  }
  int32_t best = kernels.argmax(logits, n);
  if (allowed != nullptr && !is_allowed(allowed, best))  // no logit is a number
    for (best = 0; !is_allowed(allowed, best);) ++best;
  if (params_.temperature <= 0.0f) return best;
  const float largest = logits[best];
  if (!(largest > -HUGE_VALF) || largest == HUGE_VALF) return best;  // no distribution to draw from

  float* weights = scratch.data();  // exp((logit - largest) / temperature): 1 for the best
  // Bounded: 1 / T of a subnormal T is infinite, and infinity times the best logit's difference of 0 is no number.
  const float sharpness = std::min(1.0f / params_.temperature, FLT_MAX);
  kernels.softmax_numerators(logits, n, largest, sharpness, weights);
  if (allowed != nullptr) confine(weights, n, allowed, 0.0f);  // exp is never quite 0
  const double draw = uniform_at(params_.seed, position);

  const bool by_rank = (params_.top_k > 0 && params_.top_k < n) || params_.top_p < 1.0f;
  if (!by_rank) {
    double mass = 0.0;
    const auto kept = [&](int i) { return weights[i] >= params_.min_p ? static_cast<double>(weights[i]) : 0.0; };
    for (int i = 0; i < n; ++i) mass += kept(i);
    double left = draw * mass;
    for (int i = 0; i < n; ++i)
      if ((left -= kept(i)) < 0.0) return i;
    return best;  // rounding only
  }
  // Most likely first, ties by lower id. Sorting stops as soon as the kept set is known: it is nearly always small.
  order.resize(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) order[static_cast<size_t>(i)] = i;
  const auto before = [&](int32_t a, int32_t b) { return weights[a] != weights[b] ? weights[a] > weights[b] : a < b; };
  const size_t limit = params_.top_k > 0 ? std::min<size_t>(static_cast<size_t>(params_.top_k), order.size()) : order.size();
  double in_top_k = 0.0;  // top-p is a share of what top-k left
  if (limit < order.size()) {
    std::nth_element(order.begin(), order.begin() + static_cast<ptrdiff_t>(limit), order.end(), before);
    order.resize(limit);
    std::sort(order.begin(), order.end(), before);  // before summing: the sum must not depend on nth_element's order
  }
  for (const int32_t i : order) in_top_k += weights[i];
  const double wanted = params_.top_p * in_top_k;
  double mass = 0.0;
  size_t kept = 0, sorted = limit < static_cast<size_t>(n) ? order.size() : 0;
  while (kept < order.size() && (kept == 0 || mass < wanted)) {
    if (kept == sorted) {
      sorted = std::min(order.size(), std::max<size_t>(128, sorted * 4));
      std::partial_sort(order.begin() + static_cast<ptrdiff_t>(kept), order.begin() + static_cast<ptrdiff_t>(sorted), order.end(), before);
    }
    if (kept > 0 && weights[order[kept]] < params_.min_p) break;
    mass += weights[order[kept++]];
  }
  double left = draw * mass;
  for (size_t i = 0; i < kept; ++i)
    if ((left -= weights[order[i]]) < 0.0) return order[i];
  return best;
}

Logprobs Sampler::logprobs(const KernelTable& kernels, const float* logits, int n, int32_t chosen, int count,
                           std::vector<float>& scratch) {
  scratch.resize(static_cast<size_t>(n));
  const float largest = logits[kernels.argmax(logits, n)];
  const float normalizer = largest + std::log(kernels.softmax_numerators(logits, n, largest, 1.0f, scratch.data()));
  Logprobs result{logits[chosen] - normalizer, {}};
  const auto most = static_cast<size_t>(std::min(count, n));
  std::vector<int32_t> order;  // a bounded selection: count is small
  const auto before = [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; };
  for (int32_t i = 0; i < n && most > 0; ++i) {
    if (order.size() == most && !before(i, order.back())) continue;
    if (order.size() == most) order.pop_back();
    order.insert(std::upper_bound(order.begin(), order.end(), i, before), i);
  }
  for (const int32_t i : order) result.top.emplace_back(i, logits[i] - normalizer);
  return result;
}

}  // namespace ultrafast
