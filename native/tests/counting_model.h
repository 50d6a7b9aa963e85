// A model that counts, and a decoder around it: what the native loop does is seen from what it asks of the model.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "decode/burst.h"
#include "tests/tables.h"

namespace ultrafast::test {

inline constexpr BurstLimits kNoLimit{1000, std::chrono::hours(1)};
inline constexpr int kVocab = 100;

// A model that says n + 1 after n, and remembers what it was asked.
class CountingForward final : public Forward {
 public:
  void select(Lane lane) override { lane_ = lane; }
  void abandon() override {}
  bool run(const Worker& worker, const Batch& batch, const Pause& pause) noexcept override {
    if (worker.index == 0) {
      if (in_layer) in_layer();
      suspends_ = pause();
      if (!suspends_) finish(batch);
    }
    worker.sync();
    return !suspends_;
  }
  const float* logits(int row) const override { return logits_.data() + static_cast<ptrdiff_t>(row) * kVocab; }
  void release_block(int) override {}
  void copy_block(int, int) override {}
  size_t bytes_per_token() const override { return 1; }
  size_t num_logits() const { return logits_.size() / kVocab; }  // of the last pass

  std::vector<std::vector<BatchRow>> passes;
  std::vector<Lane> lanes;
  std::function<void()> in_layer;
  std::function<void(int)> after_pass;

 private:
  void finish(const Batch& batch) {
    passes.push_back(batch.rows);
    lanes.push_back(lane_);
    logits_.assign(static_cast<size_t>(batch.num_logits()) * kVocab, 0.0f);
    for (int i = 0; i < batch.num_logits(); ++i) {
      const int32_t token = batch.rows[static_cast<size_t>(batch.logits_rows[static_cast<size_t>(i)])].token;
      logits_[static_cast<size_t>(i * kVocab + (token + 1) % kVocab)] = 1.0f;
    }
    if (after_pass) after_pass(static_cast<int>(passes.size()));
  }

  Lane lane_ = Lane::kUrgent;
  bool suspends_ = false;
  std::vector<float> logits_;
};

struct Counting {
  explicit Counting(int num_workers = 2, int max_rows = 64, int max_logits = 64)
      : workers(std::vector<int>(static_cast<size_t>(num_workers), -1)), forward(new CountingForward),
        decoder(std::unique_ptr<Forward>(forward), scalar(), workers, kVocab, max_rows, max_logits) {}
  std::vector<size_t> pass_sizes() const {
    std::vector<size_t> sizes;
    for (const auto& rows : forward->passes) sizes.push_back(rows.size());
    return sizes;
  }
  Workers workers;
  CountingForward* forward;
  Decoder decoder;
};

inline Sequence sequence(std::vector<int32_t> prompt, int max_tokens, std::vector<int32_t> stops = {}, SamplingParams params = {},
                         Drafting drafting = {}) {
  Sequence s(std::move(prompt), max_tokens, std::move(stops), std::move(params), std::move(drafting));
  for (int32_t block = 0; block < 4; ++block) s.block_table.push_back(block);
  return s;
}

inline std::vector<int32_t> output(const Sequence& s) { return {s.tokens.begin() + s.num_prompt, s.tokens.end()}; }

inline void finish(Decoder& decoder, const std::vector<BurstEntry>& entries, const BurstLimits& limits) {
  while (std::any_of(entries.begin(), entries.end(), [](const BurstEntry& e) { return e.sequence->finish == Finish::kNone; }))
    if (decoder.run(Lane::kUrgent, entries, limits) == 0) return;
}

}  // namespace ultrafast::test
