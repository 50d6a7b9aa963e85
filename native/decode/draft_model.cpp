#include "decode/draft_model.h"

#include <algorithm>
#include <chrono>

namespace ultrafast {

DraftModel::DraftModel(std::unique_ptr<Forward> forward, const KernelTable& kernels, int vocab_size, int max_context, double relative_cost)
    : forward_(std::move(forward)),
      kernels_(kernels),
      vocab_size_(vocab_size),
      max_context_(max_context),
      relative_cost_(relative_cost) {}

void DraftModel::clear() {
  jobs_.clear();
  num_rows_ = 0;
}

void DraftModel::add(Sequence& s, int count) {
  const int pending = static_cast<int>(s.tokens.size()) - s.num_guessed, room = kMaxRows - num_rows_;
  if (room <= 0) return;
  jobs_.push_back({&s, std::min(pending, room), pending <= room ? count : 0});
  num_rows_ += jobs_.back().num_rows;
}

bool DraftModel::build(int pass) {
  batch_.clear();
  sampled_.clear();
  auto& [rows, logits_rows] = batch_;
  for (const Job& job : jobs_) {
    Sequence& s = *job.sequence;
    if (pass > 0 && job.count <= pass) continue;
    for (int i = 0; i < (pass == 0 ? job.num_rows : 1); ++i, ++s.num_guessed) {
      const int32_t token = pass == 0 ? s.tokens[static_cast<size_t>(s.num_guessed)] : s.draft.tokens[static_cast<size_t>(pass) - 1];
      rows.push_back({token, s.num_guessed, s.block_table.data()});
    }
    if (job.count == 0) continue;
    logits_rows.push_back(static_cast<int>(rows.size()) - 1);
    sampled_.push_back(&s);
  }
  return !rows.empty();
}

void DraftModel::run(const Worker& worker, const Pause& pause) noexcept {
  const auto start = std::chrono::steady_clock::now();
  int passes = 0;
  for (;; ++passes) {
    if (worker.index == 0) more_ = (passes == 0 || !pause()) && build(passes);
    worker.sync();
    if (!more_) break;
    forward_->run(worker, batch_, [] { return false; });
    for (int i = worker.index; i < batch_.num_logits(); i += worker.count) {
      Draft& draft = sampled_[static_cast<size_t>(i)]->draft;
      draft.tokens[static_cast<size_t>(passes)] = kernels_.argmax(forward_->logits(i), vocab_size_);
      ++draft.count;
    }
    worker.sync();
  }
  if (worker.index != 0) return;
  int drafted = 0;
  for (const Job& job : jobs_) drafted += job.sequence->draft.count;
  if (drafted == 0 || drafted < num_rows_ / 2) return;  // mostly catching up
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / drafted;
  seconds_ += (seconds_ > 0.0 ? 0.125 : 1.0) * (seconds - seconds_);
}

}  // namespace ultrafast
