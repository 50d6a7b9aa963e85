// Attention of the tile engine: softmax over fixed chunks of 64 keys, merged in ascending order, so that the result does not
// depend on who computes which chunk.
#include <algorithm>

#include "model/forward.h"

namespace ultrafast {

// Attention of one KV head's queries over one chunk of 64 positions.
void TileForward::attend(const BatchRow& row, const float* q, int layer, int kv_head, int chunk, const uint16_t* next, float* max,
                         float* sum, float* acc) const {
  const int block = row.block_table[chunk];
  AttentionChunk c;
  c.num_q = config_.heads_per_kv();
  c.head_dim = config_.head_dim;
  c.padded_dim = config_.padded_dim();
  c.q = q + static_cast<ptrdiff_t>(kv_head) * c.num_q * c.head_dim;
  c.k = kv_.keys(block, layer, kv_head);
  c.v = kv_.values(block, layer, kv_head);
  c.first = std::max(0, config_.first_position(layer, row.position) - chunk * kKvBlock);
  c.length = std::min(kKvBlock, row.position + 1 - chunk * kKvBlock);
  c.next = next;
  c.max = max;
  c.sum = sum;
  c.acc = acc;
  kernels_.attention(c);
}

void TileForward::attention_stage(const Worker& worker, const Batch& batch, int layer) {
  int64_t total_chunks = 0;
  for (const BatchRow& row : batch.rows) total_chunks += Chunks(config_, row, layer).count();
  if (total_chunks * config_.num_heads * partial_size() <= static_cast<int64_t>(partials_.size()))
    attend_by_chunk(worker, batch, layer, total_chunks);
  else
    attend_by_head(worker, batch, layer);
}

void TileForward::finish_head(int t, int head, const float* acc, float sum) {
  float* out = attended(t) + static_cast<ptrdiff_t>(head) * config_.head_dim;
  for (int d = 0; d < config_.head_dim; ++d) out[d] = acc[d] / sum;
}

// Few tokens: chunks are spread over the workers and merged after a barrier.
void TileForward::attend_by_chunk(const Worker& worker, const Batch& batch, int layer, int64_t total_chunks) {
  const int heads = config_.num_heads, per_kv = config_.heads_per_kv(), padded = config_.padded_dim();
  // Chunk c, counted over all tokens: [heads] max, [heads] sum, [heads][padded] acc.
  const auto chunk_at = [&](int64_t c) { return partials_.data() + c * heads * partial_size(); };
  struct Task {
    const BatchRow* row;
    int kv_head, chunk;
    int64_t partial;
  };
  Task task{};  // waits until the next one is known
  const auto run = [&](const uint16_t* next) {
    if (task.row == nullptr) return;
    float* p = chunk_at(task.partial);
    const int first_head = task.kv_head * per_kv;
    attend(*task.row, query(static_cast<int>(task.row - batch.rows.data())), layer, task.kv_head, task.chunk, next, p + first_head,
           p + heads + first_head, p + 2 * heads + first_head * padded);
  };
  // Neighbours in a worker's share are neighbours in memory.
  const int64_t all = total_chunks * config_.num_kv_heads, mine = worker.first(all), end = worker.last(all);
  int64_t chunks_before = 0, number = 0;
  for (const BatchRow& row : batch.rows) {
    const Chunks chunks(config_, row, layer);
    for (int c = chunks.first; c < chunks.last; ++c)
      for (int kv = 0; kv < config_.num_kv_heads; ++kv, ++number) {
        if (number < mine || number >= end) continue;
        run(kv_.keys(row.block_table[c], layer, kv));
        task = {&row, kv, c, chunks_before + c - chunks.first};
      }
    chunks_before += chunks.count();
  }
  run(nullptr);
  worker.sync();
  int64_t first_chunk = 0, head_number = 0;
  for (int t = 0; t < static_cast<int>(batch.rows.size()); ++t) {
    const int chunks = Chunks(config_, batch.rows[static_cast<size_t>(t)], layer).count();
    for (int h = 0; h < heads; ++h, ++head_number) {
      if (head_number % worker.count != worker.index) continue;
      float* running = chunk_at(first_chunk);
      float* acc = running + 2 * heads + h * padded;
      for (int c = 1; c < chunks; ++c) {
        const float* p = chunk_at(first_chunk + c);
        kernels_.attention_merge(running + h, running + heads + h, acc, p[h], p[heads + h], p + 2 * heads + h * padded, padded);
      }
      finish_head(t, h, acc, running[heads + h]);
    }
    first_chunk += chunks;
  }
}

// Many tokens: a worker does all chunks of its (token, KV head) pairs.
void TileForward::attend_by_head(const Worker& worker, const Batch& batch, int layer) {
  const int per_kv = config_.heads_per_kv(), padded = config_.padded_dim();
  float* own = scratch(worker).products.data();  // two slots of per_kv heads: running and next
  float* next = own + per_kv * partial_size();
  for (int t = 0, task = 0; t < static_cast<int>(batch.rows.size()); ++t) {
    const BatchRow& row = batch.rows[static_cast<size_t>(t)];
    const Chunks chunks(config_, row, layer);
    for (int kv = 0; kv < config_.num_kv_heads; ++kv, ++task) {
      if (task % worker.count != worker.index) continue;
      const auto keys_of = [&](int c) { return c < chunks.last ? kv_.keys(row.block_table[c], layer, kv) : nullptr; };
      attend(row, query(t), layer, kv, chunks.first, keys_of(chunks.first + 1), own, own + per_kv, own + 2 * per_kv);
      for (int c = chunks.first + 1; c < chunks.last; ++c) {
        attend(row, query(t), layer, kv, c, keys_of(c + 1), next, next + per_kv, next + 2 * per_kv);
        for (int h = 0; h < per_kv; ++h)
          kernels_.attention_merge(own + h, own + per_kv + h, own + 2 * per_kv + h * padded, next[h], next[per_kv + h],
                                   next + 2 * per_kv + h * padded, padded);
      }
      for (int h = 0; h < per_kv; ++h) finish_head(t, kv * per_kv + h, own + 2 * per_kv + h * padded, own[per_kv + h]);
    }
  }
}

}  // namespace ultrafast
