// Constraints: nothing that they forbid is said, whatever else is asked for, and what they allow does not depend on drafts.
#include <cmath>
#include <set>
#include <stdexcept>

#include "tests/counting_model.h"
#include "tests/random.h"
#include "tests/tiny_model.h"

using namespace ultrafast;
using namespace ultrafast::test;

namespace {

using Tokens = std::vector<int32_t>;

// Allows what a rule says of the tokens so far, and remembers what it was told.
class Rule final : public Constraint {
 public:
  Rule(std::function<Tokens(const Tokens&)> next, Tokens* told) : next_(std::move(next)), told_(told) {}
  void advance(std::optional<int32_t> token, uint32_t* allowed) override {
    if (token) told_->push_back(*token);
    for (const int32_t t : next_(*told_)) allowed[t / 32] |= uint32_t{1} << (t % 32);
  }

 private:
  std::function<Tokens(const Tokens&)> next_;
  Tokens* told_;
};

// Three in a row of the same remainder by 3, then of the next.
Tokens by_threes(const Tokens& told) {
  Tokens allowed;
  for (int32_t t = static_cast<int32_t>(told.size() / 3 % 3); t < 90; t += 3) allowed.push_back(t);
  return allowed;
}

std::vector<uint32_t> bits(const Tokens& tokens, int n) {
  std::vector<uint32_t> words((static_cast<size_t>(n) + 31) / 32);
  for (const int32_t t : tokens) words[static_cast<size_t>(t) / 32] |= uint32_t{1} << (t % 32);
  return words;
}

struct Said {
  Tokens tokens, told;
  std::vector<Logprobs> logprobs;
  int accepted;
};

// Of a tiny model, under by_threes.
Said say(const SamplingParams& params, const Drafting& drafting, int num_workers, int chunk) {
  static const TinyModel model({.types = {kFileQ4_1}});
  Runner runner(model, {.kernels = &scalar(), .num_workers = num_workers}, 192, 2);
  Decoder decoder(runner.take_forward(), scalar(), runner.workers(), 90, 64, 64);
  Said said;
  Sequence s(random_tokens(40, 90, 1), 60, {}, params, drafting), beside(random_tokens(30, 90, 2), 60, {}, params);
  s.constraint = std::make_unique<Rule>(by_threes, &said.told);
  s.block_table = runner.blocks(0);
  beside.block_table = runner.blocks(1);
  finish(decoder, {{&s, chunk}, {&beside, chunk}}, {3, std::chrono::hours(1)});
  said.tokens = output(s);
  said.logprobs = s.logprobs;
  said.accepted = s.drafter ? s.drafter->record.accepted() : 0;
  return said;
}

const std::vector<SamplingParams> kWays = {
    {.num_logprobs = 2},
    {.logit_bias = {{1, 100.0f}, {2, -100.0f}}},
    {.temperature = 1.0f, .top_k = 10, .top_p = 0.9f, .repetition_penalty = 1.2f, .seed = 3, .num_logprobs = 0},
    {.temperature = 2.0f, .min_p = 0.01f, .presence_penalty = -1.0f, .seed = 4},
};

}  // namespace

TEST(decode, nothing_but_what_is_allowed_is_picked) {
  Random random(1);
  std::vector<float> scratch;
  Tokens order;
  for (int trial = 0; trial < 3000; ++trial) {
    const int n = 1 + random.below(200);
    std::vector<float> logits(static_cast<size_t>(n));
    for (float& x : logits) {
      const int kind = random.below(40);
      x = kind == 0 ? NAN : kind == 1 ? INFINITY : kind == 2 ? -INFINITY : kind == 3 ? -1e38f : 5.0f * random.normal();
    }
    Tokens allowed;
    for (int32_t t = 0; t < n; ++t)
      if (random.below(n) < 3) allowed.push_back(t);
    if (allowed.empty()) allowed.push_back(random.below(n));
    const std::set<int32_t> set(allowed.begin(), allowed.end());
    if (random.below(3) == 0)
      for (const int32_t t : allowed) logits[static_cast<size_t>(t)] = random.below(2) == 0 ? -3e38f : NAN;
    SamplingParams params{.seed = static_cast<uint64_t>(trial)};
    if (random.below(4) != 0) params.temperature = random.below(5) == 0 ? 1e-40f : static_cast<float>(0.1 + 99 * random.uniform());
    if (random.below(2) == 0) params.top_k = 1 + random.below(n + 5);
    if (random.below(2) == 0) params.top_p = static_cast<float>(0.01 + 0.99 * random.uniform());
    if (random.below(2) == 0) params.min_p = static_cast<float>(random.uniform());
    if (random.below(2) == 0) params.repetition_penalty = static_cast<float>(0.01 + 3 * random.uniform());
    if (random.below(2) == 0) params.frequency_penalty = -50.0f;
    for (int32_t t = 0; t < n; ++t)
      if (random.below(3) == 0) params.logit_bias.emplace_back(t, set.count(t) != 0 ? -100.0f : 100.0f);
    Sampler sampler(params);
    sampler.see_prompt(random_tokens(5, n, static_cast<uint64_t>(trial)));
    for (int i = 0; i < 5; ++i) sampler.see_output(random.below(n));
    for (uint64_t position = 0; position < 5; ++position) {
      const int32_t token = sampler.pick(scalar(), logits.data(), n, position, bits(allowed, n).data(), scratch, order);
      CHECK(set.count(token) != 0, trial, token);
    }
  }
}

TEST(decode, what_is_allowed_keeps_its_shares) {
  std::vector<float> scratch, logits(70), few;
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 7);
  const Tokens allowed = {3, 33, 35, 64, 69};
  for (const int32_t t : allowed) few.push_back(logits[static_cast<size_t>(t)]);
  Tokens order;
  for (const SamplingParams& params : {SamplingParams{}, SamplingParams{.temperature = 1.5f, .seed = 9}, SamplingParams{.temperature = 2.0f, .top_k = 3, .seed = 1},
                                       SamplingParams{.temperature = 2.0f, .top_p = 0.8f, .min_p = 0.05f}})
    for (uint64_t position = 0; position < 200; ++position) {
      const Sampler sampler(params);
      const int32_t token = sampler.pick(scalar(), logits.data(), 70, position, bits(allowed, 70).data(), scratch, order);
      const int32_t alone = sampler.pick(scalar(), few.data(), 5, position, nullptr, scratch, order);
      CHECK(token == allowed[static_cast<size_t>(alone)], position, token);
    }
}

TEST(decode, a_constraint_is_asked_along_the_output_alone) {
  for (const SamplingParams& params : kWays) {
    const Said plain = say(params, {}, 1, 30);
    CHECK(plain.tokens.size() == 60);
    for (size_t i = 0; i < plain.tokens.size(); ++i) CHECK(plain.tokens[i] % 3 == static_cast<int32_t>(i / 3 % 3), i, plain.tokens[i]);
    CHECK((plain.told == Tokens(plain.tokens.begin(), plain.tokens.end() - 1)));  // of what came last nobody needs to know
    Tokens wrong = plain.tokens;
    for (size_t i = 2; i < wrong.size(); i += 5) wrong[i] = (wrong[i] + 1) % 90;
    for (const Tokens& prediction : {plain.tokens, wrong}) {
      const Said drafted = say(params, {.limit = 7, .prediction = prediction}, 2, 9);
      CHECK(drafted.tokens == plain.tokens && drafted.told == plain.told && drafted.accepted > 0, drafted.accepted);
      CHECK(drafted.logprobs.size() == plain.logprobs.size());
      for (size_t i = 0; i < plain.logprobs.size(); ++i)
        CHECK(drafted.logprobs[i].chosen == plain.logprobs[i].chosen && drafted.logprobs[i].top == plain.logprobs[i].top, i);
    }
  }
}

TEST(decode, a_preempted_sequence_goes_on_with_its_constraint) {
  Counting c;
  Tokens told;
  Sequence s = sequence({1, 2, 3}, 9);
  s.constraint = std::make_unique<Rule>(by_threes, &told);
  c.decoder.run(Lane::kUrgent, {{&s, 64}}, kNoLimit);
  c.decoder.run(Lane::kUrgent, {{&s, 64}}, {3, std::chrono::hours(1)});
  s.num_computed = 0;  // on other blocks
  finish(c.decoder, {{&s, 2}}, kNoLimit);
  CHECK((told == Tokens(s.tokens.begin() + 3, s.tokens.end() - 1)) && s.num_output() == 9, told.size());
}

TEST(decode, a_failing_constraint_ends_its_sequence_alone) {
  for (const bool throws : {true, false})
    for (const size_t after : {0, 1, 4}) {
      Counting c;
      Tokens told;
      Sequence s = sequence({1, 2, 3}, 20, {}, {}, {.limit = 7, .prediction = {4, 5, 6, 7, 8, 9}}), beside = sequence({40}, 20);
      s.constraint = std::make_unique<Rule>(
          [&](const Tokens& sofar) {
            if (sofar.size() < after) return Tokens{static_cast<int32_t>(4 + sofar.size())};
            if (throws) throw std::runtime_error("out of words");
            return Tokens{kVocab + 3};  // beyond the vocabulary, in its last word
          },
          &told);
      finish(c.decoder, {{&s, 64}, {&beside, 64}}, kNoLimit);
      CHECK(s.finish == Finish::kFailed && s.num_output() == static_cast<int>(after), throws, after, s.num_output());
      CHECK(s.error == (throws ? "out of words" : "no token is allowed to come next"));
      CHECK(s.num_computed == static_cast<int>(s.tokens.size()) - 1 && s.num_computed == 2 + static_cast<int>(after));
      CHECK(beside.finish == Finish::kLength && output(beside) == range(41, 61));
    }
}
