// From logits to a token: penalties, bias, temperature, top-k, top-p, min-p, a counter-based draw, and log-probabilities.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/kernels.h"

namespace ultrafast {

struct SamplingParams {
  float temperature = 0.0f;  // 0: greedy
  int top_k = 0;             // 0: off
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;  // logits of seen tokens: divided if positive, multiplied if negative
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::vector<std::pair<int32_t, float>> logit_bias = {};
  uint64_t seed = 0;
  int num_logprobs = -1;  // -1: none; N: the chosen token and the N most likely
};

struct Logprobs {
  float chosen;
  std::vector<std::pair<int32_t, float>> top;  // most likely first, ties by lower id
};

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011), keyed by the seed, with
// the position as counter: a uniform number in [0, 1) that depends on nothing else.
double uniform_at(uint64_t seed, uint64_t position);

// What the sampler of one sequence remembers.
class Sampler {
 public:
  explicit Sampler(SamplingParams params) : params_(std::move(params)) {}

  // Tokens that penalties look at: of the prompt (repetition only), then each one generated.
  void see_prompt(const std::vector<int32_t>& tokens);
  void see_output(int32_t token);

  // Picks the token at `position`. `logits` [n] are the model's own and stay untouched. `allowed`, which may be null, has a bit
  // for each token, one set at least: no other is picked, whatever logits and biases say.
  // Needs at least one finite logit to be meaningful; with none it returns the first token allowed. Work memory is `scratch` [n]
  // and `order`, both grown here.
  int32_t pick(const KernelTable& kernels, const float* logits, int n, uint64_t position, const uint32_t* allowed,
               std::vector<float>& scratch, std::vector<int32_t>& order) const;

  // Natural-log probabilities of the model itself, before what is allowed, penalties, bias and temperature: of `chosen` and the
  // `count` most likely.
  static Logprobs logprobs(const KernelTable& kernels, const float* logits, int n, int32_t chosen, int count,
                           std::vector<float>& scratch);

  const SamplingParams& params() const { return params_; }

 private:
  struct Seen {
    int32_t in_output = 0;
  };
  bool adjusts() const;
  void adjust(float* logits, int n) const;

  SamplingParams params_;
  std::unordered_map<int32_t, Seen> seen_;
};

}  // namespace ultrafast
