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

bool Decoder::build_batch(const std::vector<BurstEntry>& entries) {
  batch_.rows.clear();
  sampled_.clear();
  for (const BurstEntry& entry : entries) {
    Sequence& s = *entry.sequence;
    if (s.finish != Finish::kNone) continue;
    const int count = std::min(s.num_pending(), entry.prefill_chunk);
    for (int i = 0; i < count; ++i) {
      const int position = s.num_computed + i;
      const bool is_last = position + 1 == static_cast<int>(s.tokens.size());
      int32_t logits_row = -1;
      if (is_last && s.max_tokens > 0) {
        logits_row = static_cast<int32_t>(sampled_.size());
        sampled_.push_back(&s);
      }
      batch_.rows.push_back({s.tokens[static_cast<size_t>(position)], position, s.block_table.data(), logits_row});
    }
    s.num_computed += count;
  }
  batch_.num_logits = static_cast<int>(sampled_.size());
  return !batch_.rows.empty();
}

void Decoder::sample(const Worker& worker) {
  Scratch& scratch = scratch_[static_cast<size_t>(worker.index)];
  for (size_t i = static_cast<size_t>(worker.index); i < sampled_.size(); i += static_cast<size_t>(worker.count)) {
    Sequence& s = *sampled_[i];
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

int Decoder::run(const std::vector<BurstEntry>& entries, const BurstLimits& limits) {
  interrupted_.store(false, std::memory_order_relaxed);
  const auto deadline = std::chrono::steady_clock::now() + limits.time_limit;
  int steps = 0;
  bool go_on = build_batch(entries);
  workers_.run([&](Worker worker) {
    if (profile_ && worker.index == 0) {
      worker.profile = &*profile_;
      worker.profile->start(Stage::kBetween);
    }
    while (go_on) {
      forward_->run(worker, batch_);
      worker.enter(Stage::kSampling);
      sample(worker);
      worker.sync();
      worker.enter(Stage::kBetween);
      if (worker.index == 0) {  // the others wait at the next barrier
        ++steps;
        const bool first_token = std::any_of(sampled_.begin(), sampled_.end(), [](const Sequence* s) { return s->num_output() == 1; });
        go_on = !first_token && steps < limits.max_steps && !interrupted_.load(std::memory_order_relaxed) &&
                std::chrono::steady_clock::now() < deadline && build_batch(entries);
      }
      worker.sync();
    }
    if (worker.profile != nullptr) worker.profile->stop(steps);
  });
  return steps;
}

void Decoder::all_logits(Sequence& s, int chunk, float* out) {
  const auto total = static_cast<int>(s.tokens.size());
  while (s.num_computed < total) {
    batch_.rows.clear();
    const int count = std::min(chunk, total - s.num_computed), first = s.num_computed;
    for (int i = 0; i < count; ++i)
      batch_.rows.push_back({s.tokens[static_cast<size_t>(first + i)], first + i, s.block_table.data(), i});
    batch_.num_logits = count;
    workers_.run([&](const Worker& worker) { forward_->run(worker, batch_); });
    for (int i = 0; i < count; ++i)
      std::memcpy(out + static_cast<size_t>(first + i) * vocab_size_, forward_->logits(i), sizeof(float) * vocab_size_);
    s.num_computed += count;
  }
}

}  // namespace ultrafast
