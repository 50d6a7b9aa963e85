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

// x / sqrt(mean(x^2) + eps) * norm for each `n` of the `width` values.
void rms_norm(float* x, int width, const std::vector<float>& norm, float eps) {
  const int n = static_cast<int>(norm.size());
  for (const float* end = x + width; x < end; x += n) {
    const float scale = 1.0f / std::sqrt(dot(x, x, n) / static_cast<float>(n) + eps);
    for (int i = 0; i < n; ++i) x[i] = x[i] * scale * norm[static_cast<size_t>(i)];
  }
}

void rotate(float* heads, int width, const ModelConfig& config, const std::vector<float>& angles) {
  const size_t pairs = angles.size() / 2;
  for (int head = 0; head < width; head += config.head_dim)
    for (size_t i = 0; i < pairs; ++i) {
      float& x = heads[head + (config.rope_halves ? i : 2 * i)];
      float& y = heads[head + (config.rope_halves ? i + pairs : 2 * i + 1)];
      const float a = x, b = y;
      x = a * angles[2 * i] - b * angles[2 * i + 1];
      y = a * angles[2 * i + 1] + b * angles[2 * i];
    }
}

float silu(float x) { return x / (1.0f + std::exp(-x)); }
float gelu(float x) { return 0.5f * x * (1.0f + std::tanh(0.79788456f * (x + 0.044715f * x * x * x))); }

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
  const auto load_optional = [&](std::vector<float>& out, const std::string& name) {
    if (tensors.count(name) != 0) load_vector(out, name);
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
    load_optional(layer.post_attn_norm, prefix + "post_attention_norm.weight");
    load_optional(layer.post_ffn_norm, prefix + "post_ffw_norm.weight");
    load_optional(layer.q_bias, prefix + "attn_q.bias");
    load_optional(layer.k_bias, prefix + "attn_k.bias");
    load_optional(layer.v_bias, prefix + "attn_v.bias");
    load_optional(layer.q_norm, prefix + "attn_q_norm.weight");
    load_optional(layer.k_norm, prefix + "attn_k_norm.weight");
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
    std::copy_n(hidden_.data() + t * n, n, normed_.data() + t * n);
    rms_norm(normed_.data() + t * n, n, norm, config_.rms_norm_eps);
  }
  worker.sync();
}

void ReferenceForward::add_product(const Worker& worker, const std::vector<float>& norm, int tokens) {
  const int n = config_.hidden_size;
  for (int64_t t = worker.first(tokens); t < worker.last(tokens); ++t) {
    float* product = product_.data() + t * n;
    if (!norm.empty()) rms_norm(product, n, norm, config_.rms_norm_eps);
    for (int i = 0; i < n; ++i) hidden_[static_cast<size_t>(t * n + i)] += product[i];
  }
  worker.sync();
}

void ReferenceForward::store_key_value(const BatchRow& row, int layer, const float* k, const float* v) {
  const int block = row.block_table[row.position / kKvBlock], offset = row.position % kKvBlock;
  std::copy_n(k, config_.kv_size(), key(block, layer, offset));
  std::copy_n(v, config_.kv_size(), value(block, layer, offset));
}

void ReferenceForward::attend(const Batch& batch, int t, int head, int layer) {
  const BatchRow& row = batch.rows[static_cast<size_t>(t)];
  const int dim = config_.head_dim, at = head / config_.heads_per_kv() * dim;
  const float* q = q_.data() + static_cast<size_t>(t) * config_.q_size() + head * dim;
  const int first = config_.first_position(layer, row.position);
  std::vector<float> weights;
  float largest = -INFINITY;
  for (int p = first; p <= row.position; ++p) {
    weights.push_back(dot(q, key(row.block_table[p / kKvBlock], layer, p % kKvBlock) + at, dim) * config_.query_scale);
    largest = std::max(largest, weights.back());
  }
  float sum = 0.0f;
  for (float& w : weights) sum += w = std::exp(w - largest);
  float* out = attended_.data() + static_cast<size_t>(t) * config_.q_size() + head * dim;
  std::fill(out, out + dim, 0.0f);
  for (int p = first; p <= row.position; ++p) {
    const float* v = value(row.block_table[p / kKvBlock], layer, p % kKvBlock) + at;
    for (int d = 0; d < dim; ++d) out[d] += weights[static_cast<size_t>(p - first)] / sum * v[d];
  }
}

bool ReferenceForward::run(const Worker& worker, const Batch& batch, const Pause&) noexcept {
  const int tokens = static_cast<int>(batch.rows.size()), n = config_.hidden_size, kv = config_.kv_size(), inner = config_.intermediate_size;
  const auto first = static_cast<int>(worker.first(tokens)), last = static_cast<int>(worker.last(tokens));  // this worker's tokens
  const Dense& table = tied_ ? output_ : embedding_;
  for (int t = first; t < last; ++t) {
    const float* row = table.values.data() + static_cast<size_t>(batch.rows[static_cast<size_t>(t)].token) * n;
    for (int i = 0; i < n; ++i) hidden_[static_cast<size_t>(t) * n + i] = row[i] * config_.embedding_scale;
  }
  worker.sync();
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
      float* q = q_.data() + static_cast<size_t>(t) * config_.q_size();
      float* k = k_.data() + static_cast<size_t>(t) * kv;
      if (!layer.q_norm.empty()) {
        rms_norm(q, config_.q_size(), layer.q_norm, config_.rms_norm_eps);
        rms_norm(k, kv, layer.k_norm, config_.rms_norm_eps);
      }
      rope_angles(config_.is_local(i) ? config_.local_rope_inv_freq : config_.rope_inv_freq, row.position, angles.data());
      rotate(q, config_.q_size(), config_, angles);
      rotate(k, kv, config_, angles);
      store_key_value(row, i, k, v_.data() + static_cast<size_t>(t) * kv);
    }
    worker.sync();
    for (int64_t task = worker.index; task < int64_t{tokens} * config_.num_heads; task += worker.count)
      attend(batch, static_cast<int>(task / config_.num_heads), static_cast<int>(task % config_.num_heads), i);
    worker.sync();
    matmul(worker, layer.o, attended_, tokens, product_, n);
    add_product(worker, layer.post_attn_norm, tokens);
    normalize(worker, layer.ffn_norm, tokens);
    matmul(worker, layer.gate, normed_, tokens, gate_, inner);
    matmul(worker, layer.up, normed_, tokens, up_, inner);
    for (size_t j = static_cast<size_t>(first) * inner; j < static_cast<size_t>(last) * inner; ++j)
      gate_[j] = (config_.gelu ? gelu(gate_[j]) : silu(gate_[j])) * up_[j];
    worker.sync();
    matmul(worker, layer.down, gate_, tokens, product_, n);
    add_product(worker, layer.post_ffn_norm, tokens);
  }
  normalize(worker, output_norm_, tokens);
  for (int i = 0; i < batch.num_logits(); ++i) {
    const float* x = normed_.data() + static_cast<size_t>(batch.logits_rows[static_cast<size_t>(i)]) * n;
    for (int64_t r = worker.first(output_.rows); r < worker.last(output_.rows); ++r)
      logits_[static_cast<size_t>(i) * config_.vocab_size + r] = dot(output_.values.data() + r * n, x, n);
  }
  worker.sync();
  return true;
}

}  // namespace ultrafast
