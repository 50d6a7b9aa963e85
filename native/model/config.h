// What a decoder of the Llama, Qwen and Gemma families looks like; filled from ultrafast.models.shape.ModelShape. Which
// biases and norms it has, its tensors say.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace ultrafast {

struct ModelConfig {
  int num_layers;
  int hidden_size;
  int intermediate_size;
  int num_heads;
  int num_kv_heads;
  int head_dim;
  int vocab_size;
  float rms_norm_eps;
  std::vector<double> rope_inv_freq;  // [rope_dim / 2] radians per position; dimensions past rope_dim do not rotate
  bool rope_halves = false;           // pair i of a head is rows i and i + rope_dim / 2 of the file, instead of 2i and 2i + 1
  float query_scale = 0.0f;           // attention scores are this times query . key
  float embedding_scale = 1.0f;
  bool gelu = false;                  // gates go through GELU (tanh) instead of SiLU
  // Of each layer: 0, or the number of last positions that it attends to. Such layers are called local.
  std::vector<int> windows;
  std::vector<double> local_rope_inv_freq;  // rope_inv_freq of local layers

  int rope_dim() const { return 2 * static_cast<int>(rope_inv_freq.size()); }
  int q_size() const { return num_heads * head_dim; }
  int kv_size() const { return num_kv_heads * head_dim; }
  int heads_per_kv() const { return num_heads / num_kv_heads; }
  bool is_local(int layer) const { return windows[static_cast<size_t>(layer)] > 0; }
  // The first position that `layer` attends to from `position`.
  int first_position(int layer, int position) const {
    return is_local(layer) ? std::max(0, position + 1 - windows[static_cast<size_t>(layer)]) : 0;
  }
  int padded_dim() const { return (head_dim + 15) / 16 * 16; }
};

// A tensor as it lies in the model file: rows x cols, row-major, in one of the file's types. Its bytes are in memory at
// `data`, or, where that is null, in the open file `fd` from `offset` on. Files are read rather than mapped, because a
// mapping of a file that somebody truncates meanwhile kills the process.
struct FileTensor {
  int type;  // ggml type id
  int rows;
  int cols;
  const uint8_t* data = nullptr;
  int fd = -1;
  int64_t offset = 0;
};
// The file is shorter than it was, or can no longer be read.
struct FileEnded : std::out_of_range {
  FileEnded() : std::out_of_range("the file ended early") {}
};

using FileTensors = std::map<std::string, FileTensor>;

}  // namespace ultrafast
