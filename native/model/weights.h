// A model's weights as tiles in the workers' arenas: repacked once at load, never moved. RoPE's pairs are neighbouring
// rows here, whatever the file's order: Q and K rows, their biases and norms are reordered alike within each head, which
// changes no score.
#pragma once

#include <numeric>
#include <vector>

#include "kernels/kernels.h"
#include "model/config.h"
#include "runtime/arena.h"
#include "runtime/workers.h"

namespace ultrafast {

// A matrix [rows][cols] whose row groups are split over the workers; each worker's part lies in its own arena.
struct Matrix {
  struct Part {
    int first_group;
    int last_group;  // exclusive
    const uint8_t* tiles;
  };
  // Matrices that a stage reads in turns lie interleaved, so that a worker reads one stream: after `unit` row groups
  // of this matrix come those of the others.
  int unit = 1;
  size_t unit_stride = 0;  // bytes from one unit to the next

  TileKind kind = TileKind::kF32;
  int rows = 0;
  int cols = 0;
  std::vector<Part> parts;  // one per worker

  int num_groups() const { return (rows + kLanes - 1) / kLanes; }
  // Tiles of a part's row group number g, counted from its first; the groups up to the end of its unit follow.
  const uint8_t* group(const Part& part, int g) const {
    return part.tiles + unit_stride * static_cast<size_t>(g / unit) + group_bytes(kind, cols) * static_cast<size_t>(g % unit);
  }
  void dequantize_row(int row, float* out) const;  // out f32 [cols]
};

struct LayerWeights {
  Matrix q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj;
  std::vector<float> attn_norm, ffn_norm;            // [hidden_size]
  std::vector<float> post_attn_norm, post_ffn_norm;  // [hidden_size], or empty: of what attention and FFN add
  std::vector<float> q_bias, k_bias, v_bias;         // empty, or one per row
  std::vector<float> q_norm, k_norm;                 // [head_dim] of every head, or empty
};

// Row groups that hold whole heads, as few as can be.
inline int whole_heads_unit(const ModelConfig& config) { return std::lcm(config.head_dim, kLanes) / kLanes; }

class Weights {
 public:
  // Repacks on the workers, each its own share. `tensors` is only read during the call. Throws FileEnded, std::bad_alloc.
  Weights(const ModelConfig& config, const FileTensors& tensors, Workers& workers);

  const Matrix& embedding() const { return embedding_; }
  const Matrix& output() const { return tied_ ? embedding_ : output_; }
  const std::vector<LayerWeights>& layers() const { return layers_; }
  const std::vector<float>& output_norm() const { return output_norm_; }
  size_t bytes_per_token() const { return bytes_per_token_; }  // weight bytes that one decode step reads

 private:
  bool tied_;
  Matrix embedding_, output_;
  std::vector<LayerWeights> layers_;
  std::vector<float> output_norm_;
  std::vector<Arena> arenas_;  // one per worker
  size_t bytes_per_token_ = 0;
};

}  // namespace ultrafast
