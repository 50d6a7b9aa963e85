// The native loop: several steps of forward pass, sampling and stop detection without returning to Python.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "decode/sequence.h"
#include "decode/speculation.h"
#include "model/batch.h"

namespace ultrafast {

// One sequence's place in a burst.
struct BurstEntry {
  Sequence* sequence;
  int prefill_chunk;  // most pending tokens to compute in one step
};

struct BurstLimits {
  int max_steps;
  std::chrono::nanoseconds time_limit;
  bool slice = false;  // at the time limit, suspend the pass after its current layer; else the limit is looked at between steps
};

class Decoder {
 public:
  // max_rows, max_logits: of one step, as the forward pass allows.
  Decoder(std::unique_ptr<Forward> forward, const KernelTable& kernels, Workers& workers, int vocab_size, int max_rows, int max_logits);

  // Runs steps until the limits, an interrupt, the end of every sequence, or the first news of any, be it an output token or the
  // end of a prompt without output: that should reach its client at once. Each step computes up to prefill_chunk pending tokens
  // of every entry and samples where the last token was computed; where it drafts, it may sample several tokens. The chunks
  // together must not exceed max_rows, nor the entries max_logits. Returns the number of steps finished.
  // The lane must not be suspended; if it is afterwards, its entries must stay as they are until `resume` has finished the step.
  int run(Lane lane, const std::vector<BurstEntry>& entries, const BurstLimits& limits);
  // Goes on where a suspended lane stopped, like `run` from there.
  int resume(Lane lane, const BurstLimits& limits);
  // Gives a suspended step up: its sequences are as they were before it.
  void abandon(Lane lane);
  bool is_suspended(Lane lane) const { return steps_[static_cast<size_t>(lane)].suspended; }

  // Logits after every token of a fresh sequence: f32 [tokens][vocab], the tokens computed in chunks. No lane is suspended.
  void all_logits(Sequence& sequence, int chunk, float* out);

  // Ends the running burst after its current step, or the next one if none is running. Callable from any thread.
  void interrupt() { interrupted_.store(true, std::memory_order_relaxed); }
  // The same, but a burst of the shared lane is suspended after its current layer.
  void preempt() {
    preempted_.store(true, std::memory_order_relaxed);
    interrupt();
  }

  // Starts a new profile of the bursts to come, or, with `on` false, profiling no more. Not during a burst.
  void profile(bool on) { profile_ = on ? std::optional<Profile>(std::in_place) : std::nullopt; }
  const std::optional<Profile>& profile() const { return profile_; }

  // A model of the same vocabulary over the same workers, with as many KV blocks: sequences that may draft have it draft for them.
  void set_draft_model(std::unique_ptr<Forward> forward, int max_context);
  const Forward& forward() const { return *forward_; }
  Speculation& speculation() { return speculation_; }

  // Of the model and its draft model.
  void release_block(int block);
  void copy_block(int source, int target);

  int max_rows() const { return max_rows_; }

 private:
  struct Scratch {
    std::vector<float> weights;
    std::vector<int32_t> order;
    std::vector<uint32_t> allowed;
  };
  // Its next token is sampled from `logits_row`, those after its drafted tokens from the rows that follow.
  struct Sampled {
    Sequence* sequence;
    int logits_row;
    bool is_first;  // it has no output yet
  };
  // The log-probability of `token`, of its prompt, is told by `logits_row`.
  struct Scored {
    Sequence* sequence;
    int32_t token;
    int logits_row;
    Logprobs logprobs = {};  // the answer
  };
  // What a lane computes at the moment.
  struct Step {
    std::vector<BurstEntry> entries;
    Batch batch;
    std::vector<Sampled> sampled;
    std::vector<Scored> scored;
    std::vector<std::pair<Sequence*, int>> advanced;  // tokens of each sequence that the step computes
    bool suspended = false;
  };

  bool build(Step& step);
  void assemble(Step& step);
  bool conclude(Step& step);
  int go_on(Lane lane, const BurstLimits& limits);
  void sample(const Worker& worker, Step& step);
  void sample(const Sampled& sampled, Scratch& scratch);

  std::unique_ptr<Forward> forward_;
  const KernelTable& kernels_;
  Workers& workers_;
  const int vocab_size_;
  const int max_rows_, max_logits_;
  Speculation speculation_;
  std::atomic<bool> interrupted_{false}, preempted_{false};
  std::array<Step, kNumLanes> steps_;
  std::vector<Scratch> scratch_;    // one per worker
  std::optional<Profile> profile_;
};

}  // namespace ultrafast
