// A smaller model of the same vocabulary that guesses, greedily, what sequences say next.
#pragma once

#include <memory>
#include <vector>

#include "decode/sequence.h"
#include "model/batch.h"

namespace ultrafast {

// Its KV cache has the same blocks as that of the model it drafts for. What is in it decides which tokens are drafted, and so
// how many come true, but never what a sequence says.
class DraftModel {
 public:
  static constexpr int kMaxRows = 64;  // of a pass, as long as there are not more sequences

  // max_context: positions at most, past which it drafts nothing. relative_cost: of its step, in steps of the model.
  DraftModel(std::unique_ptr<Forward> forward, const KernelTable& kernels, int vocab_size, int max_context, double relative_cost);

  // Tokens that it can draft after those of the sequence.
  int reach(const Sequence& sequence) const { return max_context_ - static_cast<int>(sequence.tokens.size()); }
  // Of drafting a token, as measured; at first an estimate, by what a step of the model takes.
  double seconds_per_token(double step_seconds) const { return seconds_ > 0.0 ? seconds_ : relative_cost_ * step_seconds; }

  // Starts a list of drafts to make, and adds one of `count` tokens. A sequence of which too many tokens are yet to be computed
  // gets none of this list: it catches up.
  void clear();
  void add(Sequence& sequence, int count);
  bool is_empty() const { return jobs_.empty(); }

  // Makes the drafts of the list; ends early, with what there is, when `pause` says so. All workers together.
  void run(const Worker& worker, const Pause& pause) noexcept;

  Forward& forward() const { return *forward_; }

 private:
  struct Job {
    Sequence* sequence;
    int num_rows;  // tokens to compute before the first is drafted, which follows the last of them
    int count;     // tokens to draft
  };
  bool build(int pass);

  std::unique_ptr<Forward> forward_;
  const KernelTable& kernels_;
  const int vocab_size_, max_context_;
  const double relative_cost_;
  double seconds_ = 0.0;  // a token, a moving mean
  std::vector<Job> jobs_;
  int num_rows_ = 0;      // of the first pass
  Batch batch_;
  std::vector<Sequence*> sampled_;  // of each logits row
  bool more_ = false;
};

}  // namespace ultrafast
