#include "model/weights.h"

#include <algorithm>
#include <atomic>
#include <string>

#include "model/tiles.h"

namespace ultrafast {

namespace {

// Gate and up rows are paired, and 32 products make one activation block: a worker gets whole blocks.
constexpr int kGateUpUnit = kBlock / kLanes;

struct Repack {
  Matrix* matrix;
  const FileTensor* source;
  bool rotated;  // rows of heads whose pairs RoPE rotates
};

// Matrices that are read in turns, `unit` row groups of each.
struct Stream {
  std::vector<Repack> items;
  int unit;

  size_t stride() const {
    size_t bytes = 0;
    for (const Repack& item : items) bytes += static_cast<size_t>(unit) * group_bytes(item.matrix->kind, item.matrix->cols);
    return bytes;
  }
  size_t bytes(int worker) const {
    const Matrix::Part& part = items.front().matrix->parts[static_cast<size_t>(worker)];
    return static_cast<size_t>((part.last_group - part.first_group + unit - 1) / unit) * stride();
  }
};

// Splits matrices that read the same input as if their row groups followed each other, so that workers share evenly. Each
// matrix starts with a whole unit.
void split(const std::vector<Matrix*>& fused, int unit, int num_workers) {
  const auto units_of = [unit](const Matrix& m) { return (m.num_groups() + unit - 1) / unit; };
  int units = 0;
  for (const Matrix* m : fused) units += units_of(*m);
  int offset = 0;
  for (Matrix* m : fused) {
    const int groups = m->num_groups();
    for (int w = 0; w < num_workers; ++w) {
      const int64_t first = int64_t{units} * w / num_workers * unit, last = int64_t{units} * (w + 1) / num_workers * unit;
      m->parts.push_back({static_cast<int>(std::clamp<int64_t>(first - offset, 0, groups)),
                          static_cast<int>(std::clamp<int64_t>(last - offset, 0, groups)), nullptr});
    }
    offset += units_of(*m) * unit;
  }
}

std::vector<float> vector_of(const FileTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.cols));
  std::vector<uint8_t> scratch;
  const uint8_t* row = read_rows(tensor, 0, 1, scratch);
  if (row == nullptr) throw FileEnded();
  dequantize_row(tensor.type, row, tensor.cols, values.data());
  return values;
}

// The file's row of a rotated matrix that becomes `row`.
int source_row(const ModelConfig& config, int row) {
  const int d = row % config.head_dim;
  if (!config.rope_halves || d >= config.rope_dim()) return row;
  return row - d + d / 2 + d % 2 * (config.rope_dim() / 2);
}

std::vector<float> rotated_vector_of(const ModelConfig& config, const FileTensor& tensor) {
  const std::vector<float> source = vector_of(tensor);
  std::vector<float> values(source.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = source[static_cast<size_t>(source_row(config, static_cast<int>(i)))];
  return values;
}

// Like read_rows, in the order of source_row; the rows are gathered in `gathered`.
const uint8_t* read_rotated_rows(const ModelConfig& config, const FileTensor& tensor, int first, int count, std::vector<uint8_t>& scratch,
                                 std::vector<uint8_t>& gathered) {
  const size_t row_bytes = file_row_bytes(tensor.type, tensor.cols);
  gathered.resize(row_bytes * static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    const uint8_t* row = read_rows(tensor, source_row(config, first + i), 1, scratch);
    if (row == nullptr) return nullptr;
    std::copy(row, row + row_bytes, gathered.begin() + static_cast<ptrdiff_t>(row_bytes * static_cast<size_t>(i)));
  }
  return gathered.data();
}

// An arena for each worker, and in it the place of everything that the worker will read.
std::vector<Arena> reserve(const std::vector<Stream>& plan, int num_workers) {
  std::vector<Arena> arenas;
  for (const Stream& stream : plan)
    for (const Repack& item : stream.items) {
      item.matrix->unit = stream.unit;
      item.matrix->unit_stride = stream.stride();
    }
  for (int w = 0; w < num_workers; ++w) {
    size_t bytes = 0;
    for (const Stream& stream : plan) bytes += stream.bytes(w);
    arenas.emplace_back(bytes, true);
    if (bytes == 0) continue;  // more workers than row groups
    const uint8_t* next = arenas.back().data();
    for (const Stream& stream : plan) {
      const uint8_t* first = next;
      for (const Repack& item : stream.items) {
        item.matrix->parts[static_cast<size_t>(w)].tiles = first;
        first += static_cast<size_t>(stream.unit) * group_bytes(item.matrix->kind, item.matrix->cols);
      }
      next += stream.bytes(w);
    }
  }
  return arenas;
}

// Every worker repacks what it will read, so that it is the first to touch its memory. Throws FileEnded.
void repack(const ModelConfig& config, const std::vector<Stream>& plan, const std::vector<Arena>& arenas, Workers& workers) {
  std::atomic<bool> complete{true};
  workers.run([&](const Worker& worker) {
    uint8_t* arena = arenas[static_cast<size_t>(worker.index)].data();
    std::vector<uint8_t> scratch, gathered;
    for (const Stream& stream : plan)
      for (const Repack& item : stream.items) {
        const Matrix& matrix = *item.matrix;
        const Matrix::Part& part = matrix.parts[static_cast<size_t>(worker.index)];
        for (int g = part.first_group; g < part.last_group; ++g) {
          const int first = g * kLanes, count = std::min(kLanes, matrix.rows - first);
          const uint8_t* rows = item.rotated ? read_rotated_rows(config, *item.source, first, count, scratch, gathered)
                                             : read_rows(*item.source, first, count, scratch);
          if (rows == nullptr) {
            complete = false;
            return;
          }
          repack_rows(item.source->type, rows, count, matrix.cols, arena + (matrix.group(part, g - part.first_group) - arena));
        }
      }
  });
  if (!complete) throw FileEnded();
}

}  // namespace

void Matrix::dequantize_row(int row, float* out) const {
  const int group = row / kLanes;
  for (const Part& part : parts)
    if (group >= part.first_group && group < part.last_group) {
      dequantize_tile_row(kind, this->group(part, group - part.first_group), cols, row % kLanes, out);
      return;
    }
}

Weights::Weights(const ModelConfig& config, const FileTensors& tensors, Workers& workers)
    : tied_(tensors.count("output.weight") == 0), layers_(static_cast<size_t>(config.num_layers)) {
  std::vector<Stream> plan;  // in the order in which a decode step reads them, so that the hardware can run ahead
  const auto load = [&](Matrix& matrix, const std::string& name) -> Repack {
    const FileTensor& source = tensors.at(name);
    matrix.kind = tile_kind(source.type);
    matrix.rows = source.rows;
    matrix.cols = source.cols;
    return {&matrix, &source, false};
  };
  const auto place = [&](Matrix& matrix, const std::string& name) { plan.push_back({{load(matrix, name)}, 1}); };
  const auto place_rotated = [&](Matrix& matrix, const std::string& name) {
    place(matrix, name);
    plan.back().items.front().rotated = config.rope_halves;
  };
  const auto optional = [&](const std::string& name) { return tensors.count(name) != 0 ? vector_of(tensors.at(name)) : std::vector<float>(); };
  const auto optional_rotated = [&](const std::string& name) {
    return tensors.count(name) != 0 ? rotated_vector_of(config, tensors.at(name)) : std::vector<float>();
  };
  // The norm of a head needs all its rows: whole heads to each worker.
  const int qkv_unit = tensors.count("blk.0.attn_q_norm.weight") != 0 ? whole_heads_unit(config) : 1;
  for (int i = 0; i < config.num_layers; ++i) {
    LayerWeights& layer = layers_[static_cast<size_t>(i)];
    const std::string prefix = "blk." + std::to_string(i) + ".";
    place_rotated(layer.q_proj, prefix + "attn_q.weight");
    place_rotated(layer.k_proj, prefix + "attn_k.weight");
    place(layer.v_proj, prefix + "attn_v.weight");
    place(layer.o_proj, prefix + "attn_output.weight");
    plan.push_back({{load(layer.gate_proj, prefix + "ffn_gate.weight"), load(layer.up_proj, prefix + "ffn_up.weight")}, kGateUpUnit});
    place(layer.down_proj, prefix + "ffn_down.weight");
    split({&layer.q_proj, &layer.k_proj, &layer.v_proj}, qkv_unit, workers.count());
    split({&layer.o_proj}, 1, workers.count());
    split({&layer.gate_proj}, kGateUpUnit, workers.count());
    split({&layer.up_proj}, kGateUpUnit, workers.count());
    split({&layer.down_proj}, 1, workers.count());
    layer.attn_norm = vector_of(tensors.at(prefix + "attn_norm.weight"));
    layer.ffn_norm = vector_of(tensors.at(prefix + "ffn_norm.weight"));
    layer.post_attn_norm = optional(prefix + "post_attention_norm.weight");
    layer.post_ffn_norm = optional(prefix + "post_ffw_norm.weight");
    layer.q_bias = optional_rotated(prefix + "attn_q.bias");
    layer.k_bias = optional_rotated(prefix + "attn_k.bias");
    layer.v_bias = optional(prefix + "attn_v.bias");
    layer.q_norm = optional_rotated(prefix + "attn_q_norm.weight");
    layer.k_norm = optional_rotated(prefix + "attn_k_norm.weight");
  }
  output_norm_ = vector_of(tensors.at("output_norm.weight"));
  if (!tied_) {
    place(output_, "output.weight");
    split({&output_}, 1, workers.count());
  }
  place(embedding_, "token_embd.weight");
  split({&embedding_}, 1, workers.count());

  for (const Stream& stream : plan)
    for (const Repack& item : stream.items)
      if (tied_ || item.matrix != &embedding_)
        bytes_per_token_ += static_cast<size_t>(item.matrix->num_groups()) * group_bytes(item.matrix->kind, item.matrix->cols);

  arenas_ = reserve(plan, workers.count());
  repack(config, plan, arenas_, workers);
}

}  // namespace ultrafast
