// One pass through the model: which tokens, where they stand, whose logits are wanted.
#pragma once

#include <functional>
#include <vector>

#include "kernels/kernels.h"
#include "model/config.h"
#include "runtime/workers.h"

namespace ultrafast {

struct BatchRow {
  int32_t token;
  int32_t position;
  const int32_t* block_table;  // KV block of positions [64 i, 64 i + 64); keys and values are written at `position`
};

// Rows of one sequence are consecutive positions in ascending order.
struct Batch {
  std::vector<BatchRow> rows;
  std::vector<int> logits_rows;  // rows whose logits are wanted, in the order of the logits buffer

  int num_logits() const { return static_cast<int>(logits_rows.size()); }
  void clear() {
    rows.clear();
    logits_rows.clear();
  }
};

// KV blocks that a row attends to in a layer: [first, last).
struct Chunks {
  Chunks(const ModelConfig& config, const BatchRow& row, int layer)
      : first(config.first_position(layer, row.position) / kKvBlock), last(row.position / kKvBlock + 1) {}
  int count() const { return last - first; }
  int first, last;
};

// Who asks for a pass. Each lane may have one that is suspended.
enum class Lane : int { kUrgent, kShared };
inline constexpr int kNumLanes = 2;

// Asked by worker 0 after every layer: whether to suspend the pass there.
using Pause = std::function<bool()>;

// A way to compute logits; all workers of the pool call run() together.
class Forward {
 public:
  virtual ~Forward() = default;
  // Chooses the lane whose passes `run` makes from here on. Not during a run.
  virtual void select(Lane lane) = 0;
  // Forgets the chosen lane's suspended pass.
  virtual void abandon() = 0;
  // Starts a pass, or goes on with the lane's suspended one, whose batch must be the same. Returns whether it was finished; if
  // not, it is suspended: passes of the other lane may run, and must not touch the KV positions of its rows.
  virtual bool run(const Worker& worker, const Batch& batch, const Pause& pause) noexcept = 0;
  virtual const float* logits(int row) const = 0;  // f32 [vocab_size], valid until the next run
  virtual void release_block(int block) = 0;       // gives a KV block's memory back until it is written again
  virtual void copy_block(int source, int target) = 0;
  virtual size_t bytes_per_token() const = 0;      // weight bytes that one decode step reads
};

// cos and sin of every rotation at `position`: out[2 i] = cos, out[2 i + 1] = sin of position * inv_freq[i].
void rope_angles(const std::vector<double>& inv_freq, int position, float* out);

}  // namespace ultrafast
