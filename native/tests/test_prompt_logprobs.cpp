// Log-probabilities of a prompt's own tokens: those of its logits, however it is computed.
#include "tests/counting_model.h"
#include "tests/tiny_model.h"

using namespace ultrafast;
using namespace ultrafast::test;

namespace {

bool same(const std::vector<Logprobs>& a, const std::vector<Logprobs>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Logprobs& x, const Logprobs& y) { return same_bits(x.chosen, y.chosen) && x.top == y.top; });
}

}  // namespace

TEST(decode, prompts_are_scored_however_they_are_computed) {
  const TinyModel model({.types = {kFileQ4_1}});
  const auto prompt = random_tokens(70, 90, 1);
  const auto logits = all_logits(model, prompt, {.kernels = &scalar()});
  std::vector<Logprobs> want;
  std::vector<float> scratch;
  for (size_t i = 0; i + 1 < prompt.size(); ++i)
    want.push_back(Sampler::logprobs(scalar(), logits.data() + 90 * i, 90, prompt[i + 1], 2, scratch));
  for (const int max_logits : {5, 8, 64})
    for (const int chunk : {1, 12})
      for (const int max_tokens : {0, 12}) {
        Runner runner(model, {.kernels = &scalar(), .num_workers = 1 + chunk % 2}, 128, 5);
        Decoder decoder(runner.take_forward(), scalar(), runner.workers(), 90, 64, max_logits);
        std::vector<Sequence> all;
        for (int i = 0; i < 5; ++i) {
          all.emplace_back(i < 2 ? prompt : random_tokens(5 * i, 90, 2), i < 2 ? max_tokens : 30, std::vector<int32_t>{}, SamplingParams{}, Drafting{i < 3 ? 0 : 7});
          all.back().block_table = runner.blocks(i);
        }
        all[0].num_prompt_logprobs = all[1].num_prompt_logprobs = 2;
        std::vector<BurstEntry> entries;
        for (Sequence& s : all) entries.push_back({&s, chunk});
        for (int step = 0; all[0].finish == Finish::kNone || all[1].finish == Finish::kNone; ++step) {
          if (step % 3 == 1) decoder.preempt();
          decoder.run(Lane::kShared, entries, {2, std::chrono::hours(1)});
          if (step % 4 == 1) decoder.abandon(Lane::kShared);
          while (decoder.is_suspended(Lane::kShared)) decoder.resume(Lane::kShared, kNoLimit);
          if (step == 5 && all[1].num_output() == 0) all[1].num_computed = 0;  // preempted; what is scored stays
        }
        CHECK(same(all[0].prompt_logprobs, want) && same(all[1].prompt_logprobs, want), max_logits, chunk, max_tokens);
        CHECK(all[0].num_output() == max_tokens && all[0].finish == Finish::kLength && all[0].num_computed >= 70 + std::max(max_tokens - 1, 0));
      }
}

TEST(decode, scores_take_no_more_rows_of_logits_than_there_are) {
  for (const int max_logits : {3, 4, 9}) {
    Counting c(2, 64, max_logits);
    Sequence scored = sequence(range(0, 30), 3), other = sequence(range(0, 20), 3),
             drafting = sequence({50, 51}, 40, {}, {}, {.limit = 7, .prediction = range(52, 92)});
    scored.num_prompt_logprobs = other.num_prompt_logprobs = 0;
    size_t most = 0;
    std::vector<int32_t> positions;  // computed of the first
    c.forward->after_pass = [&](int) {
      most = std::max(most, c.forward->num_logits());
      for (const BatchRow& row : c.forward->passes.back())
        if (row.block_table == scored.block_table.data()) positions.push_back(row.position);
    };
    finish(c.decoder, {{&scored, 30}, {&other, 20}, {&drafting, 2}}, kNoLimit);
    CHECK(static_cast<int>(most) <= max_logits && positions == range(0, 32), most, max_logits);
    CHECK(scored.prompt_logprobs.size() == 29 && other.prompt_logprobs.size() == 19 && output(scored) == range(30, 33));
    CHECK(output(drafting) == range(52, 92));
  }
}

TEST(decode, a_prompt_without_output_ends_when_it_is_computed) {
  for (const int length : {1, 2, 9}) {
    Counting c;
    Sequence s = sequence(range(0, length), 0), beside = sequence({40}, 30);
    s.num_prompt_logprobs = 1;
    while (s.finish == Finish::kNone) c.decoder.run(Lane::kUrgent, {{&beside, 4}, {&s, 4}}, kNoLimit);
    CHECK(s.finish == Finish::kLength && s.num_output() == 0 && s.prompt_logprobs.size() == static_cast<size_t>(length) - 1, length);
    CHECK(beside.num_output() <= 3, beside.num_output());  // the burst ended with the news
  }
}
