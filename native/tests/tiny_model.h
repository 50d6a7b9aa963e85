// Small random models in memory, and their logits by any way of computing them.
#pragma once

#include <string>
#include <vector>

#include "model/config.h"
#include "model/forward.h"
#include "runtime/workers.h"
#include "tests/tensors.h"

namespace ultrafast::test {

struct TinyShape {
  int num_layers = 2;
  int hidden_size = 64;
  int intermediate_size = 96;
  int num_heads = 4;
  int num_kv_heads = 2;
  int head_dim = 16;
  int vocab_size = 90;
  int rope_dim = 16;
  std::vector<int> types = {kFileF32};  // of the matrices, in turn
  bool bias = false;
  bool tied = true;
  bool qk_norm = false;
  bool post_norms = false;
  bool rope_halves = false;
  bool gelu = false;
  std::vector<int> windows = {};  // of the layers in turn; none: all see everything
};

class TinyModel {
 public:
  explicit TinyModel(const TinyShape& shape, uint64_t seed = 1);

  ModelConfig config;
  FileTensors tensors;

 private:
  std::vector<std::vector<uint8_t>> storage_;
};

struct How {
  const KernelTable* kernels = nullptr;  // nullptr: the reference
  int num_workers = 1;
  int chunk = 16;              // tokens per pass
  bool scattered = false;      // KV blocks in no order
  int logits_every = 1;        // logits of every n-th token; the rest of the result is 0
};

// A model ready to run, with KV blocks for `num_sequences` of up to `max_context` tokens.
class Runner {
 public:
  Runner(const TinyModel& model, const How& how, int max_context, int num_sequences = 1);

  Workers& workers() { return workers_; }
  Forward& forward() { return *forward_; }
  std::unique_ptr<Forward> take_forward() { return std::move(forward_); }
  const std::vector<int32_t>& blocks(int sequence) const { return tables_[static_cast<size_t>(sequence)]; }
  // Starts the lane's pass over `batch`, or goes on with it; returns whether it was finished. Then the logits of row
  // batch.logits_rows[i] are logits(i).
  bool run(const Batch& batch, Lane lane = Lane::kUrgent, const Pause& pause = [] { return false; });
  const float* logits(int row) const { return forward_->logits(row); }

 private:
  Workers workers_;
  std::unique_ptr<Forward> forward_;
  std::vector<std::vector<int32_t>> tables_;
};

std::vector<int32_t> random_tokens(int count, int vocab_size, uint64_t seed);

// Logits after each token, computed from an empty cache: f32 [tokens][vocab].
std::vector<float> all_logits(const TinyModel& model, const std::vector<int32_t>& tokens, const How& how);

}  // namespace ultrafast::test
