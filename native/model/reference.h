// The yardstick: the same model in plain fp32 over dequantised weights, with fp32 keys and values and no tiles, no
// quantised activations, no fused stages. Slow on purpose; everything fast is compared with it.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/kernels.h"
#include "model/batch.h"
#include "runtime/arena.h"

namespace ultrafast {

class ReferenceForward final : public Forward {
 public:
  ReferenceForward(const ModelConfig& config, const FileTensors& tensors, Workers& workers, int num_blocks, int max_rows, int max_logits);

  void select(Lane) override {}
  void abandon() override {}
  bool run(const Worker& worker, const Batch& batch, const Pause& pause) noexcept override;  // never suspends
  const float* logits(int row) const override { return logits_.data() + static_cast<size_t>(row) * config_.vocab_size; }
  void release_block(int block) override {
    const size_t bytes = static_cast<size_t>(config_.num_layers) * kKvBlock * 2 * config_.kv_size() * sizeof(float);
    kv_.release(bytes * block, bytes);
  }
  void copy_block(int source, int target) override {
    const size_t floats = static_cast<size_t>(config_.num_layers) * kKvBlock * 2 * config_.kv_size();
    std::copy_n(key(source, 0, 0), floats, key(target, 0, 0));
  }
  size_t bytes_per_token() const override { return bytes_per_token_; }

 private:
  struct Dense {
    int rows = 0, cols = 0;
    std::vector<float> values;  // [rows][cols]
  };
  struct Layer {
    Dense q, k, v, o, gate, up, down;
    std::vector<float> attn_norm, ffn_norm, post_attn_norm, post_ffn_norm, q_bias, k_bias, v_bias, q_norm, k_norm;
  };

  float* key(int block, int layer, int offset) {
    const size_t position = (static_cast<size_t>(block) * config_.num_layers + layer) * kKvBlock + offset;
    return reinterpret_cast<float*>(kv_.data()) + position * 2 * config_.kv_size();
  }
  float* value(int block, int layer, int offset) { return key(block, layer, offset) + config_.kv_size(); }

  void matmul(const Worker& worker, const Dense& m, const std::vector<float>& x, int tokens, std::vector<float>& out, int out_width);
  void normalize(const Worker& worker, const std::vector<float>& norm, int tokens);
  void add_product(const Worker& worker, const std::vector<float>& norm, int tokens);
  void store_key_value(const BatchRow& row, int layer, const float* k, const float* v);
  void attend(const Batch& batch, int t, int head, int layer);

  const ModelConfig config_;
  Dense embedding_, output_;
  bool tied_;
  std::vector<Layer> layers_;
  std::vector<float> output_norm_;
  Arena kv_;  // f32 [blocks][layers][kKvBlock][keys, values][kv_size]
  std::vector<float> hidden_, normed_, q_, k_, v_, attended_, product_, gate_, up_, logits_;  // [max_rows][width]
  size_t bytes_per_token_ = 0;
};

}  // namespace ultrafast
