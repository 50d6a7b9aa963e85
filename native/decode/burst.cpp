#include "decode/burst.h"

#include <algorithm>
#include <cstring>

namespace ultrafast {

Sequence::Sequence(std::vector<int32_t> prompt, int max_output, std::vector<int32_t> stops, SamplingParams params)
    : tokens(std::move(prompt)),
      num_prompt(static_cast<int>(tokens.size())),
      max_tokens(max_output),
      stop_tokens(std::move(stops)),
      sampler(std::move(params)) {
  sampler.see_prompt(tokens);
}

Decoder::Decoder(std::unique_ptr<Forward> forward, const KernelTable& kernels, Workers& workers, int vocab_size, int max_rows)
    : forward_(std::move(forward)),
      kernels_(kernels),
      workers_(workers),
      vocab_size_(vocab_size),
      max_rows_(max_rows),
      scratch_(static_cast<size_t>(workers.count())) {}

bool Decoder::build(Step& step) {
  step.batch.clear();
  step.sampled.clear();
  step.advanced.clear();
  for (const BurstEntry& entry : step.entries) {
    Sequence& s = *entry.sequence;
    if (s.finish != Finish::kNone) continue;
    const int count = std::min(s.num_pending(), entry.prefill_chunk);
    for (int i = 0; i < count; ++i) {
      const int position = s.num_computed + i;
      const bool is_last = position + 1 == static_cast<int>(s.tokens.size());
      if (is_last && s.max_tokens > 0) {
        step.batch.logits_rows.push_back(static_cast<int>(step.batch.rows.size()));
        step.sampled.push_back(&s);
      }
      step.batch.rows.push_back({s.tokens[static_cast<size_t>(position)], position, s.block_table.data()});
    }
    s.num_computed += count;
    step.advanced.emplace_back(&s, count);
  }
  return !step.batch.rows.empty();
}

void Decoder::sample(const Worker& worker, const Step& step) {
  Scratch& scratch = scratch_[static_cast<size_t>(worker.index)];
  for (size_t i = static_cast<size_t>(worker.index); i < step.sampled.size(); i += static_cast<size_t>(worker.count)) {
    Sequence& s = *step.sampled[i];
    const float* logits = forward_->logits(static_cast<int>(i));
    const int32_t token = s.sampler.pick(kernels_, logits, vocab_size_, s.tokens.size(), scratch.weights, scratch.order);
    if (s.sampler.params().num_logprobs >= 0)
      s.logprobs.push_back(s.sampler.logprobs(kernels_, logits, vocab_size_, token, scratch.weights));
    s.sampler.see_output(token);
    s.tokens.push_back(token);
    if (std::find(s.stop_tokens.begin(), s.stop_tokens.end(), token) != s.stop_tokens.end())
      s.finish = Finish::kStop;
    else if (s.num_output() >= s.max_tokens)
      s.finish = Finish::kLength;
  }
}

int Decoder::run(Lane lane, const std::vector<BurstEntry>& entries, const BurstLimits& limits) {
  Step& step = steps_[static_cast<size_t>(lane)];
  step.entries = entries;
  return build(step) ? go_on(lane, limits) : 0;
}

int Decoder::resume(Lane lane, const BurstLimits& limits) { return is_suspended(lane) ? go_on(lane, limits) : 0; }

void Decoder::abandon(Lane lane) {
  Step& step = steps_[static_cast<size_t>(lane)];
  if (!step.suspended) return;
  for (const auto& [sequence, count] : step.advanced) sequence->num_computed -= count;
  step.suspended = false;
  forward_->select(lane);
  forward_->abandon();
}

int Decoder::go_on(Lane lane, const BurstLimits& limits) {
  Step& step = steps_[static_cast<size_t>(lane)];
  const auto deadline = std::chrono::steady_clock::now() + limits.time_limit;
  const auto is_late = [&] { return std::chrono::steady_clock::now() >= deadline; };
  const Pause pause = [&, may = lane == Lane::kShared] {
    return may && (preempted_.load(std::memory_order_relaxed) || (limits.slice && is_late()));
  };
  forward_->select(lane);
  int steps = 0;
  bool more = true;
  workers_.run([&](Worker worker) {
    if (profile_ && worker.index == 0) {
      worker.profile = &*profile_;
      worker.profile->start(Stage::kBetween);
    }
    while (more) {
      const bool finished = forward_->run(worker, step.batch, pause);
      if (finished) {
        worker.enter(Stage::kSampling);
        sample(worker, step);
        worker.sync();
        worker.enter(Stage::kBetween);
      }
      if (worker.index == 0) {  // the others wait at the next barrier
        step.suspended = !finished;
        if (finished) ++steps;
        const auto is_first = [](const Sequence* s) { return s->num_output() == 1; };
        more = finished && std::none_of(step.sampled.begin(), step.sampled.end(), is_first) && steps < limits.max_steps &&
                !interrupted_.load(std::memory_order_relaxed) && !is_late() && build(step);
      }
      worker.sync();
    }
    if (worker.profile != nullptr) worker.profile->stop(steps);
  });
  // Only now: a wish that came since the last look is granted by what follows, too.
  interrupted_.store(false, std::memory_order_relaxed);
  preempted_.store(false, std::memory_order_relaxed);
  return steps;
}

void Decoder::all_logits(Sequence& s, int chunk, float* out) {
  const auto total = static_cast<int>(s.tokens.size());
  Batch batch;
  forward_->select(Lane::kUrgent);
  while (s.num_computed < total) {
    batch.clear();
    const int count = std::min(chunk, total - s.num_computed), first = s.num_computed;
    for (int i = 0; i < count; ++i) {
      batch.rows.push_back({s.tokens[static_cast<size_t>(first + i)], first + i, s.block_table.data()});
      batch.logits_rows.push_back(i);
    }
    workers_.run([&](const Worker& worker) { forward_->run(worker, batch, [] { return false; }); });
    for (int i = 0; i < count; ++i)
      std::memcpy(out + static_cast<size_t>(first + i) * vocab_size_, forward_->logits(i), sizeof(float) * vocab_size_);
    s.num_computed += count;
  }
}

}  // namespace ultrafast
