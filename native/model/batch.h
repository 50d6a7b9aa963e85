// One pass through the model: which tokens, where they stand, whose logits are wanted.
#pragma once

#include <vector>

#include "kernels/kernels.h"
#include "model/config.h"
#include "runtime/workers.h"

namespace ultrafast {

struct BatchRow {
  int32_t token;
  int32_t position;
  const int32_t* block_table;  // KV block of positions [64 i, 64 i + 64); keys and values are written at `position`
  int32_t logits_row;          // row of the logits buffer, or -1
};

// Rows of one sequence are consecutive positions in ascending order.
struct Batch {
  std::vector<BatchRow> rows;
  int num_logits = 0;
};

// KV blocks that a row attends to in a layer: [first, last).
struct Chunks {
  Chunks(const ModelConfig& config, const BatchRow& row, int layer)
      : first(config.first_position(layer, row.position) / kKvBlock), last(row.position / kKvBlock + 1) {}
  int count() const { return last - first; }
  int first, last;
};

// A way to compute logits; all workers of the pool call run() together.
class Forward {
 public:
  virtual ~Forward() = default;
  virtual void run(const Worker& worker, const Batch& batch) noexcept = 0;
  virtual const float* logits(int row) const = 0;  // f32 [vocab_size], valid until the next run
  virtual void release_block(int block) = 0;       // gives a KV block's memory back until it is written again
  virtual size_t bytes_per_token() const = 0;      // weight bytes that one decode step reads
};

// cos and sin of every rotation at `position`: out[2 i] = cos, out[2 i + 1] = sin of position * inv_freq[i].
void rope_angles(const std::vector<double>& inv_freq, int position, float* out);

}  // namespace ultrafast
