// Keys and values of all sequences, in blocks of 64 positions that sequences hold through their block tables.
#pragma once

#include <cstring>

#include "kernels/kernels.h"
#include "model/config.h"
#include "runtime/arena.h"

namespace ultrafast {

class KvCache {
 public:
  // Pages are taken from the system when a block is first written. Throws std::bad_alloc.
  KvCache(const ModelConfig& config, int num_blocks)
      : kv_heads_(config.num_kv_heads),
        k_size_(static_cast<size_t>(kKvBlock) * config.head_dim),
        v_size_(static_cast<size_t>(kKvBlock) * config.padded_dim()),
        layer_size_((k_size_ + v_size_) * kv_heads_),
        block_size_(layer_size_ * config.num_layers),
        arena_(block_size_ * num_blocks * sizeof(uint16_t), true) {}

  // f16 [kKvBlock / 16][head_dim][16] and f16 [kKvBlock][padded_dim].
  uint16_t* keys(int block, int layer, int kv_head) const {
    return reinterpret_cast<uint16_t*>(arena_.data()) + block_size_ * block + layer_size_ * layer + (k_size_ + v_size_) * kv_head;
  }
  uint16_t* values(int block, int layer, int kv_head) const { return keys(block, layer, kv_head) + k_size_; }

  void copy(int source, int target) const {
    std::memcpy(keys(target, 0, 0), keys(source, 0, 0), block_size_ * sizeof(uint16_t));
  }
  // Gives the block's memory back to the system; it reads as zeros until it is written again.
  void release(int block) const { arena_.release(block_size_ * block * sizeof(uint16_t), block_size_ * sizeof(uint16_t)); }

 private:
  size_t kv_heads_, k_size_, v_size_, layer_size_, block_size_;  // sizes in elements
  Arena arena_;
};

}  // namespace ultrafast
