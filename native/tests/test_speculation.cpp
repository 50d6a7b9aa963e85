// Verified drafts: the tokens and log-probabilities are those of plain decoding, whatever is drafted.
#include <chrono>

#include "tests/counting_model.h"
#include "tests/random.h"
#include "tests/tiny_model.h"

using namespace ultrafast;
using namespace ultrafast::test;

namespace {

using Tokens = std::vector<int32_t>;

// Another forward pass, each run of which takes a while longer whatever its rows are: so drafts are worth making.
class Unhurried final : public Forward {
 public:
  explicit Unhurried(std::unique_ptr<Forward> forward) : forward_(std::move(forward)) {}
  void select(Lane lane) override { forward_->select(lane); }
  void abandon() override { forward_->abandon(); }
  bool run(const Worker& worker, const Batch& batch, const Pause& pause) noexcept override {
    if (worker.index == 0) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(200);
      while (std::chrono::steady_clock::now() < end) {}
      num_rows = std::max(num_rows, batch.rows.size());
      for (const BatchRow& row : batch.rows) last_position = std::max(last_position, row.position);
    }
    return forward_->run(worker, batch, pause);
  }
  const float* logits(int row) const override { return forward_->logits(row); }
  void release_block(int block) override { forward_->release_block(block); }
  void copy_block(int source, int target) override { forward_->copy_block(source, target); }
  size_t bytes_per_token() const override { return size_t{1} << 30; }  // beside which a draft model seems to cost nothing

  size_t num_rows = 0;  // most of a pass
  int last_position = -1;

 private:
  std::unique_ptr<Forward> forward_;
};

const TinyModel& model() {
  static const TinyModel model({.types = {kFileQ4_1}});
  return model;
}

// A decoder of a tiny model for several sequences of up to 192 tokens.
struct Bench {
  explicit Bench(int num_sequences = 1, int num_workers = 1)
      : runner(model(), {.kernels = &table(), .num_workers = num_workers}, 192, num_sequences),
        forward(new Unhurried(runner.take_forward())),
        decoder(std::unique_ptr<Forward>(forward), table(), runner.workers(), 90, 64, 64) {}
  static const KernelTable& table() { return find_kernels("avx2") != nullptr ? *find_kernels("avx2") : scalar(); }

  Runner runner;
  Unhurried* forward;
  Decoder decoder;
};

// A draft model for a bench, over its workers and with as many blocks; `forward` remembers what it computes.
struct Guesses {
  Guesses(Bench& bench, const TinyModel& guesser, int max_context, int num_sequences = 1) {
    auto watched = std::make_unique<Watched>(guesser, bench, num_sequences);
    forward = watched.get();
    bench.decoder.set_draft_model(std::move(watched), max_context);
  }
  class Watched final : public Forward {
   public:
    Watched(const TinyModel& guesser, Bench& bench, int num_sequences)
        : forward_(guesser.config, guesser.tensors, Bench::table(), bench.runner.workers(), 3 * num_sequences, 64, 64, 192) {}
    void select(Lane lane) override { forward_.select(lane); }
    void abandon() override { forward_.abandon(); }
    bool run(const Worker& worker, const Batch& batch, const Pause& pause) noexcept override {
      if (worker.index == 0) {
        ++num_passes;
        num_rows = std::max(num_rows, batch.rows.size());
        for (const BatchRow& row : batch.rows) last_position = std::max(last_position, row.position);
      }
      return forward_.run(worker, batch, pause);
    }
    const float* logits(int row) const override { return forward_.logits(row); }
    void release_block(int block) override { forward_.release_block(block); }
    void copy_block(int source, int target) override { forward_.copy_block(source, target); }
    size_t bytes_per_token() const override { return forward_.bytes_per_token(); }

    int num_passes = 0, last_position = -1;
    size_t num_rows = 0;  // most of a pass

   private:
    TileForward forward_;
  };
  Watched* forward;
};

struct Said {
  Tokens tokens;
  std::vector<Logprobs> logprobs;
  Finish finish;
  int accepted = 0, rejected = 0;
  double guessing = 0.0;  // the chance that the draft model guesses right
};

bool same(const Said& a, const Said& b) {
  bool same = a.tokens == b.tokens && a.finish == b.finish && a.logprobs.size() == b.logprobs.size();
  for (size_t i = 0; same && i < a.logprobs.size(); ++i)
    same = same_bits(a.logprobs[i].chosen, b.logprobs[i].chosen) && a.logprobs[i].top == b.logprobs[i].top;
  return same;
}

Said said(const Sequence& s) {
  if (!s.drafter) return {output(s), s.logprobs, s.finish};
  const DraftRecord& record = s.drafter->record;
  return {output(s), s.logprobs, s.finish, record.accepted(), record.rejected(), record.chance(DraftSource::kModel, 0)};
}

Said say(Bench& bench, const Tokens& prompt, int max_tokens, const Tokens& stops, const SamplingParams& params, const Drafting& drafting) {
  Sequence s(prompt, max_tokens, stops, params, drafting);
  s.block_table = bench.runner.blocks(0);
  bench.forward->last_position = -1;
  finish(bench.decoder, {{&s, 16}}, kNoLimit);
  CHECK(bench.forward->last_position < s.num_prompt + max_tokens - 1 && s.num_computed == static_cast<int>(s.tokens.size()) - 1,
        bench.forward->last_position, s.num_computed);
  return said(s);
}

const std::vector<SamplingParams> kWays = {
    {.num_logprobs = 2},
    {.repetition_penalty = 1.3f, .presence_penalty = 0.5f, .frequency_penalty = 0.5f, .num_logprobs = 0},
    {.temperature = 0.8f, .top_k = 30, .top_p = 0.9f, .repetition_penalty = 1.1f, .seed = 7, .num_logprobs = 3},
    {.temperature = 1.2f, .min_p = 0.02f, .logit_bias = {{3, 2.0f}}, .seed = 8},
};

// Predictions of an output: right, wrong, changed here and there, and out of all bounds.
std::vector<Tokens> predictions(const Tokens& right) {
  Tokens half = right, shifted = right, late = random_tokens(5, 90, 3);
  for (size_t i = 0; i < half.size(); i += 3) half[i] = (half[i] + 1) % 90;
  shifted.erase(shifted.begin() + static_cast<ptrdiff_t>(shifted.size() / 3));
  shifted.insert(shifted.begin() + static_cast<ptrdiff_t>(shifted.size() / 2), {1, 2, 3});
  late.insert(late.end(), right.begin(), right.end());
  return {right, half, shifted, late, random_tokens(40, 90, 4), Tokens(30, right[0]), {1 << 30, -5, INT32_MIN, 90}};
}

}  // namespace

TEST(decode, a_right_prediction_makes_many_tokens_a_step) {
  Counting c;
  Sequence s = sequence({1, 2, 3}, 8, {}, {}, {.limit = 7, .prediction = range(4, 50)});
  CHECK(c.decoder.run(Lane::kUrgent, {{&s, 64}}, kNoLimit) == 1);  // the first tokens end the burst
  CHECK(output(s) == range(4, 11) && s.num_computed == 9 && s.num_pending() == 1, s.num_output());
  finish(c.decoder, {{&s, 64}}, kNoLimit);
  CHECK((c.pass_sizes() == std::vector<size_t>{9, 1}));  // the prompt and 6 drafts; then no draft: the last token is never computed
  CHECK(output(s) == range(4, 12) && s.finish == Finish::kLength);
  CHECK(s.drafter->record.accepted() == 6 && s.drafter->record.rejected() == 0);
}

TEST(decode, a_wrong_prediction_makes_a_token_a_step) {
  Counting c;
  Sequence s = sequence({1, 2, 3}, 20, {}, {}, {.limit = 3, .prediction = {4, 5, 9, 6, 7, 99, 99}});
  CHECK(c.decoder.run(Lane::kUrgent, {{&s, 64}}, kNoLimit) == 1);
  CHECK(output(s) == range(4, 7) && s.num_computed == 5, s.num_output());  // 4 and 5 held; 9 did not, and what it gave is not used
  CHECK(s.drafter->record.accepted() == 2 && s.drafter->record.rejected() == 1);
  finish(c.decoder, {{&s, 64}}, kNoLimit);
  CHECK(output(s) == range(4, 24));
}

TEST(decode, a_draft_stops_at_a_stop_token) {
  Counting c;
  Sequence s = sequence({1, 2, 3}, 20, {6}, {}, {.limit = 7, .prediction = range(4, 50)});
  CHECK(c.decoder.run(Lane::kUrgent, {{&s, 64}}, kNoLimit) == 1);
  CHECK(output(s) == range(4, 7) && s.finish == Finish::kStop && s.num_computed == 5);
  CHECK(s.drafter->record.accepted() == 3 && s.drafter->record.rejected() == 3);
}

TEST(decode, drafts_keep_to_the_limits_of_a_step) {
  Counting c(1, 12, 6);
  std::vector<Sequence> all;
  std::vector<BurstEntry> entries;
  for (int i = 0; i < 4; ++i) all.push_back(sequence({10 * i, 10 * i + 1}, 8, {}, {}, {.limit = 7, .prediction = range(10 * i + 2, 10 * i + 20)}));
  for (Sequence& s : all) entries.push_back({&s, 2});
  c.decoder.run(Lane::kUrgent, entries, kNoLimit);
  CHECK((c.pass_sizes() == std::vector<size_t>{10}));  // 8 of the prompts and 2 drafts: 6 rows of logits
  finish(c.decoder, entries, kNoLimit);
  for (int i = 0; i < 4; ++i) CHECK(output(all[static_cast<size_t>(i)]) == range(10 * i + 2, 10 * i + 10), i);
  for (const size_t size : c.pass_sizes()) CHECK(size <= 12, size);
}

TEST(decode, outputs_of_a_domain_are_drafted_in_it_alone) {
  Counting c;
  c.decoder.speculation().remember("a", range(0, 60));
  const auto run = [&](const std::string& domain, int32_t first) {
    Sequence s = sequence(range(first, first + 12), 20, {}, {}, {.limit = 7, .domain = domain});
    finish(c.decoder, {{&s, 64}}, kNoLimit);
    CHECK(output(s) == range(first + 12, first + 32));
    return s.drafter->record.accepted() + s.drafter->record.rejected();
  };
  CHECK(run("b", 5) == 0 && run("", 6) == 0);
  CHECK(run("a", 7) > 0);
}

TEST(decode, replayed_tokens_take_the_place_of_picks) {
  Bench bench;
  const Tokens prompt = random_tokens(20, 90, 1), replay = random_tokens(30, 90, 2);
  const auto run = [&](const Drafting& drafting, int max_tokens, const Tokens& stops) {
    Sequence s(prompt, max_tokens, stops, {.num_logprobs = 1}, drafting);
    s.block_table = bench.runner.blocks(0);
    s.replay = replay;
    finish(bench.decoder, {{&s, 64}}, kNoLimit);
    return said(s);
  };
  const Said plain = run({}, 30, {});
  CHECK(plain.tokens == replay && plain.finish == Finish::kLength);
  const Said drafted = run({.limit = 7, .prediction = replay}, 30, {});
  CHECK(same(plain, drafted) && drafted.accepted > 0, drafted.accepted);
  CHECK(run({.limit = 7, .prediction = replay}, 30, {replay[4]}).finish == Finish::kStop);
  const Said longer = run({}, 33, {});  // then it goes on by itself
  CHECK(longer.tokens.size() == 33 && std::equal(replay.begin(), replay.end(), longer.tokens.begin()));
}

TEST(decode, drafts_change_no_token) {
  const Tokens prompt = random_tokens(40, 90, 1);
  int accepted = 0, rejected = 0;
  for (size_t way = 0; way < kWays.size(); ++way) {
    Bench alone;
    const Said plain = say(alone, prompt, 60, {}, kWays[way], {});
    CHECK(plain.tokens.size() == 60 && plain.accepted + plain.rejected == 0);
    const auto all = predictions(plain.tokens);
    for (size_t p = 0; p < all.size(); ++p)
      for (const int limit : {1, 3, 7}) {
        Bench bench(1, 1 + limit % 2);  // a new one knows no costs: its first step drafts whatever there is
        const Said drafted = say(bench, prompt, 60, {}, kWays[way], {limit, all[p]});
        CHECK(same(plain, drafted), way, p, limit, drafted.accepted, drafted.rejected);
        CHECK(p != 0 || drafted.accepted >= std::min(limit, 3), way, limit, drafted.accepted);
        CHECK(bench.forward->num_rows <= 16 + kMaxDraft, bench.forward->num_rows);
        accepted += drafted.accepted;
        rejected += drafted.rejected;
      }
  }
  CHECK(accepted >= 40 && rejected >= 20, accepted, rejected);
}

TEST(decode, drafts_end_where_the_output_does) {
  Bench bench;
  const Tokens prompt = random_tokens(9, 90, 5);
  for (const SamplingParams& params : {kWays[0], kWays[2]}) {
    const Tokens right = say(bench, prompt, 40, {}, params, {}).tokens;
    for (int max_tokens = 1; max_tokens <= 20; ++max_tokens) {
      const Said plain = say(bench, prompt, max_tokens, {}, params, {});
      CHECK(same(plain, say(bench, prompt, max_tokens, {}, params, {7, right})), max_tokens);
      const Tokens stops = {right[static_cast<size_t>(max_tokens) - 1]};
      const Said stopped = say(bench, prompt, 30, stops, params, {});
      CHECK(stopped.finish == Finish::kStop);
      CHECK(same(stopped, say(bench, prompt, 30, stops, params, {7, right})), max_tokens);
      CHECK(same(stopped, say(bench, prompt, static_cast<int>(stopped.tokens.size()), stops, params, {7, right})), max_tokens);
    }
  }
}

TEST(decode, drafts_of_many_sequences_change_no_token) {
  constexpr int kSequences = 6;
  std::vector<Said> plain;
  const auto prompt = [](int i) { return random_tokens(3 + 11 * i, 90, static_cast<uint64_t>(10 + i)); };
  const auto params = [](int i) { return kWays[static_cast<size_t>(i) % kWays.size()]; };
  for (int i = 0; i < kSequences; ++i) {
    Bench alone;
    plain.push_back(say(alone, prompt(i), 30 + i, {}, params(i), {}));
  }
  for (int round = 0; round < 6; ++round) {
    Bench bench(kSequences, 1 + round % 3);
    std::vector<Sequence> all;
    std::vector<BurstEntry> entries;
    for (int i = 0; i < kSequences; ++i) {
      const auto drafts = predictions(plain[static_cast<size_t>(i)].tokens);
      all.emplace_back(prompt(i), 30 + i, Tokens{}, params(i), Drafting{(round + i) % 8, drafts[static_cast<size_t>(round + i) % drafts.size()]});
      all.back().block_table = bench.runner.blocks(i);
    }
    for (Sequence& s : all) entries.push_back({&s, 1 + round});
    finish(bench.decoder, entries, {1 + round, std::chrono::hours(1)});
    for (size_t i = 0; i < all.size(); ++i) CHECK(same(plain[i], said(all[i])), round, i);
  }
}

TEST(decode, suspended_and_abandoned_drafts_change_no_token) {
  const Tokens prompt = random_tokens(12, 90, 6);
  Bench alone;
  const Said plain = say(alone, prompt, 50, {}, kWays[2], {});
  Bench bench(2);
  Sequence shared(prompt, 50, {}, kWays[2], {7, plain.tokens}), urgent(prompt, 50, {}, kWays[2], {7, plain.tokens});
  shared.block_table = bench.runner.blocks(0);
  urgent.block_table = bench.runner.blocks(1);
  const BurstLimits one{1, std::chrono::hours(1)};
  int suspended = 0, abandoned = 0;
  for (int i = 0; shared.finish == Finish::kNone; ++i) {
    bench.decoder.preempt();
    bench.decoder.run(Lane::kShared, {{&shared, 5}}, one);
    suspended += bench.decoder.is_suspended(Lane::kShared);
    if (urgent.finish == Finish::kNone) bench.decoder.run(Lane::kUrgent, {{&urgent, 64}}, one);
    if (i % 3 == 2) {
      bench.decoder.abandon(Lane::kShared);
      ++abandoned;
    }
    bench.decoder.resume(Lane::kShared, one);
  }
  CHECK(suspended > abandoned && abandoned > 3, suspended, abandoned);
  CHECK(same(plain, said(shared)) && same(plain, said(urgent)));
}

TEST(decode, a_draft_model_changes_no_token) {
  const TinyModel another({.num_layers = 1, .types = {kFileQ8_0}}, 9);
  const Tokens prompt = random_tokens(90, 90, 11);  // more than the draft model computes in a pass
  int rejected = 0;
  for (size_t way = 0; way < kWays.size(); ++way) {
    Bench alone;
    const Said plain = say(alone, prompt, 60, {}, kWays[way], {});
    for (const TinyModel* guesser : {&model(), &another}) {
      Bench bench(1, 2);
      const Guesses guesses(bench, *guesser, 192);
      const Said drafted = say(bench, prompt, 60, {}, kWays[way], {7});
      CHECK(same(plain, drafted), way, guesser == &another, drafted.accepted, drafted.rejected);
      CHECK(guesses.forward->num_passes > 2 && guesses.forward->num_rows == 64, guesses.forward->num_passes, guesses.forward->num_rows);
      CHECK(guesses.forward->last_position < 149, guesses.forward->last_position);
      // Guessing greedily it is always right about itself, and another is not; a coin's throw is nobody's to guess.
      const double before = DraftRecord().chance(DraftSource::kModel, 0);
      if (way == 0) CHECK(guesser == &another ? drafted.guessing < before : drafted.guessing > before, drafted.guessing);
      if (guesser == &another) rejected += drafted.rejected;
    }
  }
  CHECK(rejected > 0);
}

TEST(decode, a_draft_model_keeps_to_its_context) {
  Bench alone;
  const Tokens prompt = random_tokens(60, 90, 12);
  const Said plain = say(alone, prompt, 80, {}, kWays[0], {});
  Bench bench;
  const Guesses guesses(bench, model(), 70);
  const Said drafted = say(bench, prompt, 80, {}, kWays[0], {7});
  CHECK(same(plain, drafted) && drafted.accepted > 0, drafted.accepted);
  CHECK(guesses.forward->last_position < 70, guesses.forward->last_position);
}

TEST(decode, what_a_draft_model_has_cached_changes_no_token) {
  Bench alone;
  const Tokens prompt = random_tokens(50, 90, 13);
  const Said plain = say(alone, prompt, 60, {}, kWays[2], {});
  Bench bench(2);
  const Guesses guesses(bench, model(), 192, 2);
  Sequence s(prompt, 60, {}, kWays[2], {5});
  s.block_table = bench.runner.blocks(0);
  s.num_guessed = 49;  // it has computed none of these
  for (int step = 0; s.finish == Finish::kNone; ++step) {
    if (step == 6) {  // preempted, and begun again on other blocks
      s.block_table = bench.runner.blocks(1);
      s.num_computed = 0;
      s.num_guessed = step * 1000;
    }
    bench.decoder.run(Lane::kUrgent, {{&s, 16}}, {1, std::chrono::hours(1)});
  }
  CHECK(same(plain, said(s)) && guesses.forward->num_passes > 0);
}

TEST(decode, a_draft_model_serves_many_sequences_and_gives_way) {
  constexpr int kSequences = 5;
  std::vector<Said> plain;
  const auto prompt = [](int i) { return random_tokens(3 + 17 * i, 90, static_cast<uint64_t>(20 + i)); };
  const auto params = [](int i) { return kWays[static_cast<size_t>(i) % kWays.size()]; };
  for (int i = 0; i < kSequences; ++i) {
    Bench alone;
    plain.push_back(say(alone, prompt(i), 40 + i, {}, params(i), {}));
  }
  Bench bench(kSequences, 2);
  const Guesses guesses(bench, model(), 192, kSequences);
  std::vector<Sequence> all;
  std::vector<BurstEntry> entries;
  for (int i = 0; i < kSequences; ++i) {
    all.emplace_back(prompt(i), 40 + i, Tokens{}, params(i), Drafting{i < 4 ? 7 : 0, i == 2 ? plain[2].tokens : Tokens{}});
    all.back().block_table = bench.runner.blocks(i);
  }
  for (Sequence& s : all) entries.push_back({&s, 10});
  const BurstLimits two{2, std::chrono::hours(1)};
  bool unfinished = true;
  for (int step = 0; unfinished; ++step) {
    if (step % 3 == 1) bench.decoder.preempt();
    bench.decoder.run(Lane::kShared, entries, two);
    if (step % 4 == 1) bench.decoder.abandon(Lane::kShared);
    while (bench.decoder.is_suspended(Lane::kShared)) bench.decoder.resume(Lane::kShared, two);
    unfinished = std::any_of(all.begin(), all.end(), [](const Sequence& s) { return s.finish == Finish::kNone; });
  }
  for (size_t i = 0; i < all.size(); ++i) CHECK(same(plain[i], said(all[i])), i);
  CHECK(guesses.forward->num_passes > 0);
}
