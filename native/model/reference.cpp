#include "model/reference.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>

#include "model/tiles.h"

namespace ultrafast {

namespace {

float dot(const float* a, const float* b, int n) {
  float sums[8] = {};
  int i = 0;
  for (; i + 8 <= n; i += 8)
    for (int j = 0; j < 8; ++j) sums[j] += a[i + j] * b[i + j];
  float total = 0.0f;
  for (; i < n; ++i) total += a[i] * b[i];
  for (const float sum : sums) total += sum;
  return total;
}

void add_bias(std::vector<float>& x, const std::vector<float>& bias, int first, int last) {
  const int width = static_cast<int>(bias.size());
  for (int t = first; t < last; ++t)
    for (int i = 0; i < width; ++i) x[static_cast<size_t>(t) * width + i] += bias[static_cast<size_t>(i)];
}

void rotate(float* heads, int width, int head_dim, const std::vector<float>& angles) {
  for (int head = 0; head < width; head += head_dim)
    for (size_t i = 0; i < angles.size(); i += 2) {
      float* pair = heads + head + i;
      const float a = pair[0], b = pair[1];
      pair[0] = a * angles[i] - b * angles[i + 1];
      pair[1] = a * angles[i + 1] + b * angles[i];
    }
}

}  // namespace

ReferenceForward::ReferenceForward(const ModelConfig& config, const FileTensors& tensors, Workers& workers, int num_blocks, int max_rows,
                                   int max_logits)
    : config_(config), tied_(tensors.count("output.weight") == 0), layers_(static_cast<size_t>(config.num_layers)) {
  struct Item {
    std::vector<float>* values;
    const FileTensor* source;
  };
  std::vector<Item> plan;
  const auto load_vector = [&](std::vector<float>& out, const std::string& name) {
    const FileTensor& tensor = tensors.at(name);
    out.resize(static_cast<size_t>(tensor.rows) * tensor.cols);
    plan.push_back({&out, &tensor});
  };
  const auto load = [&](Dense& out, const std::string& name) {
    out.rows = tensors.at(name).rows;
    out.cols = tensors.at(name).cols;
    load_vector(out.values, name);
    bytes_per_token_ += out.values.size() * sizeof(float);
  };
  for (int i = 0; i < config.num_layers; ++i) {
    Layer& layer = layers_[static_cast<size_t>(i)];
    const std::string prefix = "blk." + std::to_string(i) + ".";
    load(layer.q, prefix + "attn_q.weight");
    load(layer.k, prefix + "attn_k.weight");
    load(layer.v, prefix + "attn_v.weight");
    load(layer.o, prefix + "attn_output.weight");
    load(layer.gate, prefix + "ffn_gate.weight");
    load(layer.up, prefix + "ffn_up.weight");
    load(layer.down, prefix + "ffn_down.weight");
    load_vector(layer.attn_norm, prefix + "attn_norm.weight");
    load_vector(layer.ffn_norm, prefix + "ffn_norm.weight");
    if (tensors.count(prefix + "attn_q.bias") != 0) {
      load_vector(layer.q_bias, prefix + "attn_q.bias");
      load_vector(layer.k_bias, prefix + "attn_k.bias");
      load_vector(layer.v_bias, prefix + "attn_v.bias");
    }
  }
  load_vector(output_norm_, "output_norm.weight");
  load(tied_ ? output_ : embedding_, "token_embd.weight");
  if (!tied_) {
    bytes_per_token_ -= embedding_.values.size() * sizeof(float);  // a step reads one row of it
    load(output_, "output.weight");
  }
  kv_ = Arena(static_cast<size_t>(num_blocks) * config.num_layers * kKvBlock * 2 * config.kv_size() * sizeof(float), false);
  const auto size = [&](std::vector<float>& buffer, int width) { buffer.resize(static_cast<size_t>(max_rows) * width); };
  size(hidden_, config.hidden_size);
  size(normed_, config.hidden_size);
  size(q_, config.q_size());
  size(attended_, config.q_size());
  size(k_, config.kv_size());
  size(v_, config.kv_size());
  size(product_, config.hidden_size);
  size(gate_, config.intermediate_size);
  size(up_, config.intermediate_size);
  logits_.resize(static_cast<size_t>(max_logits) * config.vocab_size);
  std::atomic<bool> complete{true};
  workers.run([&](const Worker& worker) {
    std::vector<uint8_t> scratch;
    for (const Item& item : plan) {
      const FileTensor& source = *item.source;
      for (auto r = static_cast<int>(worker.first(source.rows)); r < worker.last(source.rows); ++r) {
        const uint8_t* row = read_rows(source, r, 1, scratch);
        if (row == nullptr) {
          complete = false;
          return;
        }
        dequantize_row(source.type, row, source.cols, item.values->data() + static_cast<size_t>(r) * source.cols);
      }
    }
  });
  if (!complete) throw FileEnded();
}

void ReferenceForward::matmul(const Worker& worker, const Dense& m, const std::vector<float>& x, int tokens, std::vector<float>& out,
                              int out_width) {
  for (int64_t r = worker.first(m.rows); r < worker.last(m.rows); ++r)
    for (int t = 0; t < tokens; ++t)
      out[static_cast<size_t>(t) * out_width + r] =
          dot(m.values.data() + r * m.cols, x.data() + static_cast<size_t>(t) * m.cols, m.cols);
  worker.sync();
}

void ReferenceForward::normalize(const Worker& worker, const std::vector<float>& norm, int tokens) {
  const int n = config_.hidden_size;
  for (int64_t t = worker.first(tokens); t < worker.last(tokens); ++t) {
    const float* x = hidden_.data() + t * n;
    const float scale = 1.0f / std::sqrt(dot(x, x, n) / static_cast<float>(n) + config_.rms_norm_eps);
    for (int i = 0; i < n; ++i) normed_[static_cast<size_t>(t * n + i)] = x[i] * scale * norm[static_cast<size_t>(i)];
  }
  worker.sync();
}

void ReferenceForward::attend(const Batch& batch, int t, int head, int layer) {
  const BatchRow& row = batch.rows[static_cast<size_t>(t)];
  const int dim = config_.head_dim, at = head / config_.heads_per_kv() * dim;
  const float* q = q_.data() + static_cast<size_t>(t) * config_.q_size() + head * dim;
  std::vector<float> weights(static_cast<size_t>(row.position) + 1);
  float largest = -INFINITY;
  for (int p = 0; p <= row.position; ++p) {
    weights[static_cast<size_t>(p)] =
        dot(q, key(row.block_table[p / kKvBlock], layer, p % kKvBlock) + at, dim) / std::sqrt(static_cast<float>(dim));
    largest = std::max(largest, weights[static_cast<size_t>(p)]);
  }
  float sum = 0.0f;
  for (float& w : weights) sum += w = std::exp(w - largest);
  float* out = attended_.data() + static_cast<size_t>(t) * config_.q_size() + head * dim;
  std::fill(out, out + dim, 0.0f);
  for (int p = 0; p <= row.position; ++p) {
    const float* v = value(row.block_table[p / kKvBlock], layer, p % kKvBlock) + at;
    for (int d = 0; d < dim; ++d) out[d] += weights[static_cast<size_t>(p)] / sum * v[d];
  }
}

void ReferenceForward::run(const Worker& worker, const Batch& batch) noexcept {
  const int tokens = static_cast<int>(batch.rows.size()), n = config_.hidden_size, kv = config_.kv_size(), inner = config_.intermediate_size;
  const auto first = static_cast<int>(worker.first(tokens)), last = static_cast<int>(worker.last(tokens));  // this worker's tokens
  const Dense& table = tied_ ? output_ : embedding_;
  for (int t = first; t < last; ++t) {
    const float* row = table.values.data() + static_cast<size_t>(batch.rows[static_cast<size_t>(t)].token) * n;
    std::copy(row, row + n, hidden_.data() + static_cast<size_t>(t) * n);
  }
  worker.sync();
  const auto add_product = [&] {
    for (size_t i = static_cast<size_t>(first) * n; i < static_cast<size_t>(last) * n; ++i) hidden_[i] += product_[i];
    worker.sync();
  };
  std::vector<float> angles(static_cast<size_t>(config_.rope_dim()));
  for (int i = 0; i < config_.num_layers; ++i) {
    const Layer& layer = layers_[static_cast<size_t>(i)];
    normalize(worker, layer.attn_norm, tokens);
    matmul(worker, layer.q, normed_, tokens, q_, config_.q_size());
    matmul(worker, layer.k, normed_, tokens, k_, kv);
    matmul(worker, layer.v, normed_, tokens, v_, kv);
    if (!layer.q_bias.empty()) {
      add_bias(q_, layer.q_bias, first, last);
      add_bias(k_, layer.k_bias, first, last);
      add_bias(v_, layer.v_bias, first, last);
    }
    for (int t = first; t < last; ++t) {
      const BatchRow& row = batch.rows[static_cast<size_t>(t)];
      const int block = row.block_table[row.position / kKvBlock], offset = row.position % kKvBlock;
      float* k = k_.data() + static_cast<size_t>(t) * kv;
      const float* v = v_.data() + static_cast<size_t>(t) * kv;
      rope_angles(config_, row.position, angles.data());
      rotate(q_.data() + static_cast<size_t>(t) * config_.q_size(), config_.q_size(), config_.head_dim, angles);
      rotate(k, kv, config_.head_dim, angles);
      std::copy(k, k + kv, key(block, i, offset));
      std::copy(v, v + kv, value(block, i, offset));
    }
    worker.sync();
    for (int64_t task = worker.index; task < int64_t{tokens} * config_.num_heads; task += worker.count)
      attend(batch, static_cast<int>(task / config_.num_heads), static_cast<int>(task % config_.num_heads), i);
    worker.sync();
    matmul(worker, layer.o, attended_, tokens, product_, n);
    add_product();
    normalize(worker, layer.ffn_norm, tokens);
    matmul(worker, layer.gate, normed_, tokens, gate_, inner);
    matmul(worker, layer.up, normed_, tokens, up_, inner);
    for (size_t j = static_cast<size_t>(first) * inner; j < static_cast<size_t>(last) * inner; ++j)
      gate_[j] = gate_[j] / (1.0f + std::exp(-gate_[j])) * up_[j];
    worker.sync();
    matmul(worker, layer.down, gate_, tokens, product_, n);
    add_product();
  }
  normalize(worker, output_norm_, tokens);
  for (int t = 0; t < tokens; ++t) {
    const int out = batch.rows[static_cast<size_t>(t)].logits_row;
    if (out < 0) continue;
    const float* x = normed_.data() + static_cast<size_t>(t) * n;
    for (int64_t r = worker.first(output_.rows); r < worker.last(output_.rows); ++r)
      logits_[static_cast<size_t>(out) * config_.vocab_size + r] = dot(output_.values.data() + r * n, x, n);
  }
  worker.sync();
}

}  // namespace ultrafast
