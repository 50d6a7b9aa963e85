// The decoder's forward pass over tiles: a short list of fused stages per layer, with a barrier after each.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "kernels/kernels.h"
#include "model/batch.h"
#include "model/kv_cache.h"
#include "model/weights.h"

namespace ultrafast {

// Storage for the activations of `rows` tokens of up to `width` inputs.
class Activations {
 public:
  Activations(int rows, int width);
  const ActRow* rows() const { return rows_.data(); }

 private:
  Arena arena_;
  std::vector<ActRow> rows_;
};

class TileForward final : public Forward {
 public:
  // max_rows: tokens per pass; max_logits: rows of logits per pass; max_context bounds attention scratch.
  TileForward(const ModelConfig& config, const FileTensors& tensors, const KernelTable& kernels, Workers& workers, int num_blocks,
              int max_rows, int max_logits, int max_context);

  void select(Lane lane) override { pass_ = &passes_[static_cast<size_t>(lane)]; }
  void abandon() override { pass_->next_layer = 0; }
  bool run(const Worker& worker, const Batch& batch, const Pause& pause) noexcept override;
  const float* logits(int row) const override { return logits_.data() + static_cast<size_t>(row) * logits_stride_; }
  void release_block(int block) override { kv_.release(block); }
  void copy_block(int source, int target) override { kv_.copy(source, target); }
  size_t bytes_per_token() const override { return weights_.bytes_per_token(); }

 private:
  // All that outlives a layer, hence what a suspended pass keeps.
  struct Pass {
    std::vector<float> hidden;        // [max_rows][hidden_stride]   residual stream
    std::vector<float> angles;        // [max_rows][rope_dim]        cos, sin
    std::vector<float> local_angles;  // the same of local layers, where there are any
    int next_layer = 0;               // 0: none is suspended
  };
  // What one worker writes in private.
  struct Scratch {
    Activations inputs;          // up to kPrivateTokens tokens, prepared by every worker for itself
    std::vector<float> products; // outputs of this worker's rows
    std::vector<float> normed;   // [widest input]
  };

  void embed(const Worker& worker, const Batch& batch);
  void qkv_stage(const Worker& worker, const Batch& batch, int layer);
  void attention_stage(const Worker& worker, const Batch& batch, int layer);
  void output_stage(const Worker& worker, const Batch& batch, const LayerWeights& layer);
  void gate_up_stage(const Worker& worker, const Batch& batch, const LayerWeights& layer);
  void down_stage(const Worker& worker, const Batch& batch, const LayerWeights& layer);
  void logits_stage(const Worker& worker, const Batch& batch);

  // The inputs of a matrix for every token: source(t) normalised when norm is given, quantised when the matrix needs it.
  template <class Source>
  const ActRow* prepare(const Worker& worker, int tokens, int width, const float* norm, bool quantized, bool plain, Source source);
  // Calls use(first_row, num_rows, products, stride): product of row r and token t is products[t * stride + r - first_row].
  // Each call has a multiple of `unit` row groups, but for the matrix's last.
  template <class Use>
  void project(const Worker& worker, const Matrix& matrix, const ActRow* x, int tokens, int unit, Use use);
  // Writes rows [first, first + count) of k_proj or v_proj into the KV cache.
  // hidden += matrix times x, normalised first where the model has a norm there.
  void add_projection(const Worker& worker, const Matrix& matrix, const ActRow* x, int tokens, const std::vector<float>& norm);
  void store_heads(const BatchRow& row, int layer, int first, int count, const float* values, bool is_key);
  void attend(const BatchRow& row, const float* q, int layer, int kv_head, int chunk, const uint16_t* next, float* max, float* sum,
              float* acc) const;
  void attend_by_chunk(const Worker& worker, const Batch& batch, int layer, int64_t total_chunks);
  void attend_by_head(const Worker& worker, const Batch& batch, int layer);
  void finish_head(int t, int head, const float* acc, float sum);
  int64_t partial_size() const { return 2 + config_.padded_dim(); }  // floats per head and chunk: max, sum, then acc

  float* hidden(int t) { return pass_->hidden.data() + static_cast<size_t>(t) * hidden_stride_; }
  float* query(int t) { return query_.data() + static_cast<size_t>(t) * query_stride_; }
  const float* angles(int layer, int t) const {
    return (config_.is_local(layer) ? pass_->local_angles : pass_->angles).data() + static_cast<size_t>(t) * config_.rope_dim();
  }
  float* attended(int t) { return attended_.data() + static_cast<size_t>(t) * query_stride_; }
  Scratch& scratch(const Worker& worker) { return *scratch_[static_cast<size_t>(worker.index)]; }

  const ModelConfig config_;
  const KernelTable& kernels_;
  Weights weights_;
  KvCache kv_;
  const int qkv_unit_;            // row groups of Q and K that are worked on together: whole heads, where these have norms
  const size_t hidden_stride_, query_stride_, logits_stride_;
  std::array<Pass, kNumLanes> passes_;
  Pass* pass_ = &passes_[0];
  bool suspends_ = false;         // written by worker 0 before the barrier at a layer's end, read by all after it
  std::vector<float> query_;      // [max_rows][query_stride]    rotated and scaled
  std::vector<float> attended_;   // [max_rows][query_stride]
  std::vector<float> added_;      // [max_rows][hidden_stride]   of layers with norms on what they add
  std::vector<float> logits_;     // [max_logits][logits_stride]
  std::vector<float> partials_;   // attention of single chunks, see attention_stage
  Activations inputs_;            // [max_rows] shared inputs, when tokens are many
  Activations ffn_;               // [max_rows] inputs of down_proj
  std::vector<std::unique_ptr<Scratch>> scratch_;
};

}  // namespace ultrafast
