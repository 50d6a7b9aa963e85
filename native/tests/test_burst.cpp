// The native loop: when it stops, what it computes, and that neither changes the tokens.
#include <thread>

#include "tests/counting_model.h"
#include "tests/tiny_model.h"

using namespace ultrafast;
using namespace ultrafast::test;

TEST(decode, a_sequence_ends_at_its_limit_or_stop_token) {
  Counting c;
  Sequence length = sequence({1, 2, 3}, 5), stop = sequence({1, 2, 3}, 50, {90, 6});
  finish(c.decoder, {{&length, 64}}, kNoLimit);
  CHECK((output(length) == std::vector<int32_t>{4, 5, 6, 7, 8}) && length.finish == Finish::kLength);
  finish(c.decoder, {{&stop, 64}}, kNoLimit);
  CHECK((output(stop) == std::vector<int32_t>{4, 5, 6}) && stop.finish == Finish::kStop);
  CHECK(stop.num_computed == 5 && stop.num_pending() == 1);  // the last token was never needed as input
  CHECK(c.decoder.run(Lane::kUrgent, {{&stop, 64}}, kNoLimit) == 0);        // nothing left to do
}

TEST(decode, a_stop_token_at_the_limit_is_a_stop) {
  Counting c;
  Sequence s = sequence({8}, 2, {10});
  finish(c.decoder, {{&s, 64}}, kNoLimit);
  CHECK(s.finish == Finish::kStop && s.num_output() == 2);
}

TEST(decode, the_first_token_ends_the_burst_at_once) {
  Counting c;
  Sequence a = sequence({1, 2, 3, 4, 5}, 10), b = sequence({20}, 10);
  CHECK(c.decoder.run(Lane::kUrgent, {{&a, 2}, {&b, 64}}, kNoLimit) == 1);  // b's first token
  CHECK(a.num_output() == 0 && b.num_output() == 1);
  CHECK(c.decoder.run(Lane::kUrgent, {{&a, 2}, {&b, 64}}, kNoLimit) == 2);  // a's
  CHECK(a.num_output() == 1 && b.num_output() == 3);
  CHECK(c.decoder.run(Lane::kUrgent, {{&a, 2}, {&b, 64}}, kNoLimit) == 9);  // then until both have ended
  CHECK(a.num_output() == 10 && b.num_output() == 10 && a.finish == Finish::kLength && b.finish == Finish::kLength);
  CHECK((c.pass_sizes() == std::vector<size_t>{3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1}));
}

TEST(decode, prompts_are_computed_in_chunks) {
  Counting c;
  Sequence s = sequence({1, 2, 3, 4, 5, 6, 7}, 2);
  CHECK(c.decoder.run(Lane::kUrgent, {{&s, 3}}, kNoLimit) == 3);
  CHECK((c.pass_sizes() == std::vector<size_t>{3, 3, 1}));
  int32_t position = 0;
  for (const auto& rows : c.forward->passes)
    for (const BatchRow& row : rows) {
      CHECK(row.position == position && row.token == position + 1 && row.block_table == s.block_table.data(), position);
      ++position;
    }
}

TEST(decode, no_output_computes_the_prompt_alone) {
  Counting c;
  Sequence s = sequence({1, 2, 3}, 0);
  CHECK(c.decoder.run(Lane::kUrgent, {{&s, 2}}, kNoLimit) == 2);
  CHECK(s.num_output() == 0 && s.num_computed == 3);
}

TEST(decode, limits_and_interrupts_end_a_burst_after_a_step) {
  Counting c;
  Sequence s = sequence({1}, 99);
  CHECK(c.decoder.run(Lane::kUrgent, {{&s, 1}}, kNoLimit) == 1);
  CHECK(c.decoder.run(Lane::kUrgent, {{&s, 1}}, {7, std::chrono::hours(1)}) == 7);
  CHECK(c.decoder.run(Lane::kUrgent, {{&s, 1}}, {7, std::chrono::nanoseconds(0)}) == 1);  // one step is always made
  c.forward->after_pass = [&](int pass) {
    if (pass == 12) c.decoder.interrupt();
  };
  CHECK(c.decoder.run(Lane::kUrgent, {{&s, 1}}, kNoLimit) == 3);
  CHECK(s.num_output() == 12);
  CHECK(c.decoder.run(Lane::kUrgent, {{&s, 1}}, {4, std::chrono::hours(1)}) == 4);  // the interrupt is over
}

TEST(decode, another_thread_can_interrupt) {
  Counting c(3);
  Sequence s = sequence({1}, 1 << 30);
  std::atomic<bool> running{false};
  c.forward->after_pass = [&](int pass) {
    if (pass == 2) running = true;
  };
  c.decoder.run(Lane::kUrgent, {{&s, 1}}, kNoLimit);  // the first token
  std::thread other([&] {
    while (!running) std::this_thread::yield();
    c.decoder.interrupt();
  });
  CHECK(c.decoder.run(Lane::kUrgent, {{&s, 1}}, {1 << 30, std::chrono::hours(1)}) >= 1);
  other.join();
  CHECK(s.finish == Finish::kNone);
}

TEST(decode, a_preempted_shared_burst_is_suspended_and_resumed) {
  Counting c;
  Sequence shared = sequence({1, 2, 3}, 4), urgent = sequence({50}, 3);
  c.forward->in_layer = [&] { c.decoder.preempt(); };
  CHECK(c.decoder.run(Lane::kShared, {{&shared, 64}}, kNoLimit) == 0);
  CHECK(c.decoder.is_suspended(Lane::kShared) && shared.num_output() == 0);
  CHECK(c.decoder.run(Lane::kUrgent, {{&urgent, 64}}, kNoLimit) == 1);  // ends after a step, and is not suspended
  CHECK(!c.decoder.is_suspended(Lane::kUrgent) && urgent.num_output() == 1);
  CHECK(c.decoder.resume(Lane::kShared, kNoLimit) == 0 && c.decoder.is_suspended(Lane::kShared));  // preempted once more
  c.forward->in_layer = nullptr;
  CHECK(c.decoder.run(Lane::kUrgent, {{&urgent, 64}}, kNoLimit) == 2);
  CHECK(c.decoder.resume(Lane::kShared, kNoLimit) == 1 && !c.decoder.is_suspended(Lane::kShared));  // the first token
  CHECK(c.decoder.run(Lane::kShared, {{&shared, 64}}, kNoLimit) == 3);
  CHECK((output(shared) == std::vector<int32_t>{4, 5, 6, 7}) && (output(urgent) == std::vector<int32_t>{51, 52, 53}));
  CHECK((c.forward->lanes == std::vector<Lane>{Lane::kUrgent, Lane::kUrgent, Lane::kUrgent, Lane::kShared, Lane::kShared, Lane::kShared,
                                               Lane::kShared}));
  CHECK(c.decoder.resume(Lane::kShared, kNoLimit) == 0);  // nothing is suspended
}

TEST(decode, a_wish_between_bursts_holds_for_the_next) {
  Counting c;
  Sequence s = sequence({1}, 20);
  c.decoder.run(Lane::kShared, {{&s, 1}}, kNoLimit);
  c.decoder.interrupt();
  CHECK(c.decoder.run(Lane::kShared, {{&s, 1}}, kNoLimit) == 1);
  c.decoder.preempt();
  CHECK(c.decoder.run(Lane::kShared, {{&s, 1}}, kNoLimit) == 0 && c.decoder.is_suspended(Lane::kShared));
  CHECK(c.decoder.resume(Lane::kShared, kNoLimit) == 18 && s.finish == Finish::kLength);
}

// A step given up in the middle and made anew, with other sequences in it, gives the same tokens.
TEST(decode, an_abandoned_step_leaves_no_trace) {
  const TinyModel model({.types = {kFileQ4_1}});
  const auto prompt = random_tokens(40, 90, 1);
  const auto generate = [&](bool abandons) {
    Runner runner(model, {.kernels = &scalar(), .num_workers = 2}, 64, 2);
    Decoder decoder(runner.take_forward(), scalar(), runner.workers(), 90, 64, 64);
    Sequence s(prompt, 10, {}, {}), other(random_tokens(9, 90, 2), 10, {}, {});
    s.block_table = runner.blocks(0);
    other.block_table = runner.blocks(1);
    for (int step = 0; abandons && step < 2; ++step) {
      decoder.preempt();
      decoder.run(Lane::kShared, {{&other, 9}, {&s, 17}}, kNoLimit);
      CHECK(decoder.is_suspended(Lane::kShared) && s.num_computed == 17 * (step + 1), step);
      decoder.abandon(Lane::kShared);
      CHECK(!decoder.is_suspended(Lane::kShared) && s.num_computed == 17 * step && other.num_computed == 0, step);
      decoder.run(Lane::kShared, {{&s, 17}}, {1, std::chrono::hours(1)});
    }
    while (s.finish == Finish::kNone) decoder.run(Lane::kShared, {{&s, 17}}, kNoLimit);
    return output(s);
  };
  CHECK(generate(true) == generate(false));
}

TEST(decode, a_slice_ends_within_a_step) {
  Counting c;
  Sequence s = sequence({1, 2, 3}, 5);
  const BurstLimits slice{1000, std::chrono::nanoseconds(0), true};
  CHECK(c.decoder.run(Lane::kShared, {{&s, 64}}, slice) == 0 && c.decoder.is_suspended(Lane::kShared));
  CHECK(c.decoder.resume(Lane::kShared, slice) == 0 && c.decoder.is_suspended(Lane::kShared));
  CHECK(c.decoder.resume(Lane::kShared, {1000, std::chrono::hours(1), true}) == 1);
  CHECK(c.decoder.run(Lane::kUrgent, {{&s, 64}}, slice) == 1);  // what is urgent is never suspended
}

TEST(decode, logprobs_come_with_every_token_when_asked) {
  Counting c;
  Sequence with = sequence({1}, 4, {}, {.num_logprobs = 2}), without = sequence({1}, 4);
  finish(c.decoder, {{&with, 1}, {&without, 1}}, kNoLimit);
  CHECK(with.logprobs.size() == 4 && without.logprobs.empty(), with.logprobs.size());
  CHECK(with.logprobs[3].top.size() == 2 && with.logprobs[3].top[0].first == 5 && with.logprobs[3].top[0].second == with.logprobs[3].chosen);
}

TEST(decode, penalties_follow_the_output) {
  Counting c;
  Sequence s = sequence({1}, 4, {1}, {.presence_penalty = 2.0f, .logit_bias = {{50, 0.5f}}});
  finish(c.decoder, {{&s, 1}}, kNoLimit);
  CHECK((output(s) == std::vector<int32_t>{2, 3, 4, 5}));
  Sequence loop = sequence({98}, 4, {}, {.presence_penalty = 2.0f, .logit_bias = {{98, 5.0f}}});
  finish(c.decoder, {{&loop, 1}}, kNoLimit);
  CHECK((output(loop) == std::vector<int32_t>{98, 98, 98, 98}));  // 5 - 2 still wins
}

// A real model: greedy and sampled tokens are the same however the work is cut into bursts, chunks, workers and batches.
TEST(decode, tokens_do_not_depend_on_how_they_are_computed) {
  const TinyModel model({.types = {kFileQ4_1}});
  const auto prompt = random_tokens(70, 90, 1);
  const SamplingParams sampled{.temperature = 0.9f, .top_k = 20, .top_p = 0.95f, .repetition_penalty = 1.1f, .seed = 5, .num_logprobs = 3};
  const auto generate = [&](const KernelTable& table, int num_workers, int chunk, const BurstLimits& limits, int beside, const SamplingParams& params) {
    Runner runner(model, {.kernels = &table, .num_workers = num_workers}, 128, beside + 1);
    Decoder decoder(runner.take_forward(), table, runner.workers(), 90, 64, 64);
    std::vector<Sequence> all;
    all.reserve(static_cast<size_t>(beside) + 1);
    std::vector<BurstEntry> entries;
    for (int i = 0; i <= beside; ++i) {
      all.push_back(Sequence(i == 0 ? prompt : random_tokens(5 * i, 90, static_cast<uint64_t>(i)), 20, {}, params));
      all.back().block_table = runner.blocks(i);
      entries.push_back({&all.back(), chunk});
    }
    finish(decoder, entries, limits);
    return std::pair(output(all[0]), all[0].logprobs);
  };
  for (const SamplingParams& params : {SamplingParams{}, sampled}) {
    const auto [want, logprobs] = generate(scalar(), 1, 64, kNoLimit, 0, params);
    CHECK(want.size() == 20);
    const BurstLimits single{1, std::chrono::hours(1)}, three{3, std::chrono::hours(1)};
    const KernelTable* fast = find_kernels("avx2") != nullptr ? find_kernels("avx2") : &scalar();
    CHECK(generate(*fast, 2, 1, single, 0, params).first == want);
    CHECK(generate(*fast, 3, 7, three, 3, params).first == want);
    CHECK(generate(kernel_table_emulated, 1, 16, kNoLimit, 2, params).first == want);
    const auto again = generate(*fast, 2, 10, three, 1, params);
    CHECK(again.first == want && again.second.size() == logprobs.size());
    for (size_t i = 0; i < logprobs.size(); ++i) CHECK(again.second[i].chosen == logprobs[i].chosen && again.second[i].top == logprobs[i].top, i);
  }
}

TEST(decode, a_profile_covers_the_bursts_since_it_began) {
  const TinyModel model({.types = {kFileQ4_1}});
  Runner runner(model, {.kernels = &scalar(), .num_workers = 2}, 128);
  Decoder decoder(runner.take_forward(), scalar(), runner.workers(), 90, 64, 64);
  Sequence s(random_tokens(5, 90, 1), 20, {}, {});
  s.block_table = runner.blocks(0);
  const std::vector<BurstEntry> entries{{&s, 5}};
  decoder.run(Lane::kUrgent, entries, kNoLimit);
  CHECK(!decoder.profile());
  decoder.profile(true);
  const auto start = std::chrono::steady_clock::now();
  int steps = 0;
  while (s.finish == Finish::kNone) steps += decoder.run(Lane::kUrgent, entries, {3, std::chrono::hours(1)});
  const std::chrono::nanoseconds elapsed = std::chrono::steady_clock::now() - start;
  int64_t sum = 0;
  for (const Profile::Times& times : decoder.profile()->stages()) {
    CHECK(times.work_ns > 0 && times.wait_ns >= 0, times.work_ns, times.wait_ns);
    sum += times.work_ns + times.wait_ns;
  }
  CHECK(decoder.profile()->steps() == steps && steps == 19, steps);
  CHECK(sum > 0 && sum <= elapsed.count(), sum, elapsed.count());
  decoder.profile(true);
  CHECK(decoder.profile()->steps() == 0);  // a new one
  decoder.profile(false);
  CHECK(!decoder.profile());
}

TEST(decode, all_logits_are_those_of_every_step) {
  const TinyModel model({.types = {kFileQ8_0}});
  const auto tokens = random_tokens(70, 90, 2);
  const auto want = all_logits(model, tokens, {.kernels = &scalar()});
  for (const int chunk : {1, 9, 64}) {
    Runner runner(model, {.kernels = &scalar(), .num_workers = 2}, 128);
    Decoder decoder(runner.take_forward(), scalar(), runner.workers(), 90, 64, 64);
    Sequence s(tokens, 0, {}, {});
    s.block_table = runner.blocks(0);
    std::vector<float> got(want.size());
    decoder.all_logits(s, chunk, got.data());
    CHECK(same_bits(want.data(), got.data(), want.size()) && s.num_computed == 70, chunk);
  }
}
