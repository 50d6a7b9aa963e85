#include "model/forward.h"

#include <algorithm>
#include <cmath>

namespace ultrafast {

namespace {

// Up to this many tokens every worker prepares the inputs of a stage for itself: that is quicker than a barrier.
constexpr int kPrivateTokens = 4;

constexpr size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

int widest_input(const ModelConfig& c) { return std::max({c.hidden_size, c.q_size(), c.intermediate_size}); }

}  // namespace

void rope_angles(const std::vector<double>& inv_freq, int position, float* out) {
  for (const double frequency : inv_freq) {
    const double angle = position * frequency;
    *out++ = static_cast<float>(std::cos(angle));
    *out++ = static_cast<float>(std::sin(angle));
  }
}

Activations::Activations(int rows, int width) {
  const size_t n = round_up(static_cast<size_t>(width), 64), blocks = n / kBlock;
  const size_t row_bytes = round_up(n * 2 + n * 2 + blocks * 12 + n * 4, 64);
  arena_ = Arena(row_bytes * static_cast<size_t>(rows), false);
  for (int r = 0; r < rows; ++r) {
    uint8_t* p = arena_.data() + row_bytes * static_cast<size_t>(r);
    ActRow row;
    row.f32 = reinterpret_cast<float*>(p);
    row.pairs = reinterpret_cast<int16_t*>(p + n * 4);
    row.hi = reinterpret_cast<int8_t*>(p + n * 6);
    row.lo = reinterpret_cast<int8_t*>(p + n * 7);
    row.scale = reinterpret_cast<float*>(p + n * 8);
    row.scaled_sum = row.scale + blocks;
    row.sum = reinterpret_cast<int32_t*>(row.scaled_sum + blocks);
    rows_.push_back(row);
  }
}

TileForward::TileForward(const ModelConfig& config, const FileTensors& tensors, const KernelTable& kernels, Workers& workers,
                         int num_blocks, int max_rows, int max_logits, int max_context)
    : config_(config),
      kernels_(kernels),
      weights_(config, tensors, workers),
      kv_(config, num_blocks),
      qkv_unit_(weights_.layers()[0].q_norm.empty() ? 1 : whole_heads_unit(config)),
      hidden_stride_(round_up(static_cast<size_t>(config.hidden_size), 16)),
      query_stride_(round_up(static_cast<size_t>(config.q_size()), 16)),
      logits_stride_(round_up(static_cast<size_t>(config.vocab_size), 16)),
      query_(max_rows * query_stride_),
      attended_(max_rows * query_stride_),
      added_(weights_.layers()[0].post_attn_norm.empty() ? 0 : max_rows * hidden_stride_),
      logits_(max_logits * logits_stride_),
      inputs_(max_rows, widest_input(config)),
      ffn_(max_rows, config.intermediate_size) {
  for (Pass& pass : passes_) {
    pass.hidden.resize(max_rows * hidden_stride_);
    pass.angles.resize(static_cast<size_t>(max_rows) * config.rope_dim());
    if (!config.local_rope_inv_freq.empty()) pass.local_angles.resize(pass.angles.size());
  }
  const auto partial = static_cast<size_t>(partial_size());
  const size_t one_row = static_cast<size_t>(max_context / kKvBlock + 1) * config.num_heads * partial;
  partials_.resize(std::max(one_row, size_t{1} << 18));
  for (int w = 0; w < workers.count(); ++w) {
    size_t widest_part = 2 * kBlock;
    const auto consider = [&](const Matrix& m) {
      const Matrix::Part& part = m.parts[static_cast<size_t>(w)];
      widest_part = std::max(widest_part, static_cast<size_t>(part.last_group - part.first_group) * kLanes);
    };
    for (const LayerWeights& layer : weights_.layers())
      for (const Matrix* m : {&layer.q_proj, &layer.k_proj, &layer.v_proj, &layer.o_proj, &layer.down_proj}) consider(*m);
    const size_t widest_step = std::max(2 * kBlock, qkv_unit_ * kLanes);
    const size_t products = std::max({widest_part * kPrivateTokens, static_cast<size_t>(max_rows) * widest_step,
                                      2 * static_cast<size_t>(config.heads_per_kv()) * partial});
    scratch_.push_back(std::make_unique<Scratch>(Scratch{Activations(kPrivateTokens, widest_input(config)),
                                                         std::vector<float>(products),
                                                         std::vector<float>(round_up(static_cast<size_t>(widest_input(config)), 16))}));
  }
}

bool TileForward::run(const Worker& worker, const Batch& batch, const Pause& pause) noexcept {
  // Each stage ends at a barrier; who waits there brings near what it reads next.
  const auto first_of = [&](const Matrix& matrix) { return matrix.parts[static_cast<size_t>(worker.index)].tiles; };
  const auto& layers = weights_.layers();
  const int first_layer = pass_->next_layer;
  if (first_layer == 0) {
    worker.enter(Stage::kEmbed);
    embed(worker, batch);
    worker.sync(first_of(layers.front().q_proj));
  }
  for (int i = first_layer; i < config_.num_layers; ++i) {
    const LayerWeights& layer = layers[static_cast<size_t>(i)];
    worker.enter(Stage::kQkv);
    qkv_stage(worker, batch, i);
    worker.sync();
    worker.enter(Stage::kAttention);
    attention_stage(worker, batch, i);
    worker.sync(first_of(layer.o_proj));
    worker.enter(Stage::kOutput);
    output_stage(worker, batch, layer);
    worker.sync(first_of(layer.gate_proj));
    worker.enter(Stage::kGateUp);
    gate_up_stage(worker, batch, layer);
    worker.sync(first_of(layer.down_proj));
    worker.enter(Stage::kDown);
    down_stage(worker, batch, layer);
    const bool is_last = i + 1 == config_.num_layers;
    if (worker.index == 0) {
      suspends_ = !is_last && pause();
      pass_->next_layer = suspends_ ? i + 1 : 0;  // nobody reads it before the next run
    }
    worker.sync(first_of(is_last ? weights_.output() : layers[static_cast<size_t>(i) + 1].q_proj));
    if (suspends_) return false;
  }
  worker.enter(Stage::kLogits);
  if (batch.num_logits() > 0) logits_stage(worker, batch);
  worker.sync(first_of(layers.front().q_proj));
  return true;
}

template <class Source>
const ActRow* TileForward::prepare(const Worker& worker, int tokens, int width, const float* norm, bool quantized, bool plain,
                                   Source source) {
  const bool is_private = tokens <= kPrivateTokens;
  Scratch& mine = scratch(worker);
  const ActRow* rows = is_private ? mine.inputs.rows() : inputs_.rows();
  const auto first = is_private ? 0 : static_cast<int>(worker.first(tokens));
  const auto last = is_private ? tokens : static_cast<int>(worker.last(tokens));
  for (int t = first; t < last; ++t) {
    const float* x = source(t);
    if (norm != nullptr) {
      float* normed = plain ? rows[t].f32 : mine.normed.data();
      kernels_.rms_norm(x, norm, width, config_.rms_norm_eps, normed);
      x = normed;
    } else if (plain) {
      std::copy(x, x + width, rows[t].f32);
    }
    if (quantized) kernels_.quantize(x, width, rows[t]);
  }
  if (!is_private) worker.sync();
  return rows;
}

template <class Use>
void TileForward::project(const Worker& worker, const Matrix& matrix, const ActRow* x, int tokens, int unit, Use use) {
  const Matrix::Part& part = matrix.parts[static_cast<size_t>(worker.index)];
  const int groups = part.last_group - part.first_group;
  if (groups == 0) return;
  const auto matmul = kernels_.matmul[static_cast<int>(matrix.kind)];
  float* products = scratch(worker).products.data();
  // Few tokens: one sweep over all rows. Many: finish a row group before the next, so that it stays in cache.
  const int step = tokens <= kPrivateTokens ? groups : unit;
  for (int g = 0; g < groups; g += step) {
    const int first_row = (part.first_group + g) * kLanes;
    matmul(matrix.group(part, g), std::min(step, groups - g), matrix.cols, x, tokens, products, step * kLanes);
    use(first_row, std::min(step * kLanes, matrix.rows - first_row), products, step * kLanes);
  }
}

void TileForward::embed(const Worker& worker, const Batch& batch) {
  const auto tokens = static_cast<int64_t>(batch.rows.size());
  for (int64_t t = worker.first(tokens); t < worker.last(tokens); ++t) {
    const BatchRow& row = batch.rows[static_cast<size_t>(t)];
    weights_.embedding().dequantize_row(row.token, hidden(static_cast<int>(t)));
    if (config_.embedding_scale != 1.0f) kernels_.scale(hidden(static_cast<int>(t)), config_.embedding_scale, config_.hidden_size);
    rope_angles(config_.rope_inv_freq, row.position, pass_->angles.data() + t * config_.rope_dim());
    if (!pass_->local_angles.empty())
      rope_angles(config_.local_rope_inv_freq, row.position, pass_->local_angles.data() + t * config_.rope_dim());
  }
}

void TileForward::qkv_stage(const Worker& worker, const Batch& batch, int layer_index) {
  const LayerWeights& layer = weights_.layers()[static_cast<size_t>(layer_index)];
  const int tokens = static_cast<int>(batch.rows.size());
  const bool quantized = is_quantized(layer.q_proj.kind) || is_quantized(layer.k_proj.kind) || is_quantized(layer.v_proj.kind);
  const bool plain = !is_quantized(layer.q_proj.kind) || !is_quantized(layer.k_proj.kind) || !is_quantized(layer.v_proj.kind);
  const ActRow* x = prepare(worker, tokens, config_.hidden_size, layer.attn_norm.data(), quantized, plain,
                            [&](int t) { return hidden(t); });
  const auto add_bias = [&](const std::vector<float>& bias, int first, int count, float* values) {
    if (!bias.empty()) kernels_.add(values, bias.data() + first, count);
  };
  const auto normalize_heads = [&](const std::vector<float>& norm, int count, float* values) {
    for (int r = 0; !norm.empty() && r < count; r += config_.head_dim)
      kernels_.rms_norm(values + r, norm.data(), config_.head_dim, config_.rms_norm_eps, values + r);
  };
  // Rotates the part of each head that lies in rows [first, first + count); pairs never straddle a row group.
  const auto rotate = [&](int t, int first, int count, float* values) {
    for (int r = 0; r < count;) {
      const int d = (first + r) % config_.head_dim;
      const int n = std::min(config_.head_dim - d, count - r);
      if (d < config_.rope_dim())
        kernels_.rope(values + r, angles(layer_index, t) + d, std::min(n, config_.rope_dim() - d));
      r += n;
    }
  };
  project(worker, layer.q_proj, x, tokens, qkv_unit_, [&](int first, int count, float* products, int stride) {
    for (int t = 0; t < tokens; ++t) {
      float* values = products + static_cast<ptrdiff_t>(t) * stride;
      add_bias(layer.q_bias, first, count, values);
      normalize_heads(layer.q_norm, count, values);
      rotate(t, first, count, values);
      kernels_.scale(values, config_.query_scale, count);
      std::copy(values, values + count, query(t) + first);
    }
  });
  project(worker, layer.k_proj, x, tokens, qkv_unit_, [&](int first, int count, float* products, int stride) {
    for (int t = 0; t < tokens; ++t) {
      float* values = products + static_cast<ptrdiff_t>(t) * stride;
      add_bias(layer.k_bias, first, count, values);
      normalize_heads(layer.k_norm, count, values);
      rotate(t, first, count, values);
      store_heads(batch.rows[static_cast<size_t>(t)], layer_index, first, count, values, true);
    }
  });
  project(worker, layer.v_proj, x, tokens, 1, [&](int first, int count, float* products, int stride) {
    for (int t = 0; t < tokens; ++t) {
      float* values = products + static_cast<ptrdiff_t>(t) * stride;
      add_bias(layer.v_bias, first, count, values);
      store_heads(batch.rows[static_cast<size_t>(t)], layer_index, first, count, values, false);
    }
  });
}

void TileForward::store_heads(const BatchRow& row, int layer, int first, int count, const float* values, bool is_key) {
  const int block = row.block_table[row.position / kKvBlock], offset = row.position % kKvBlock;
  const int dim = config_.head_dim;
  for (int r = 0; r < count;) {
    const int head = (first + r) / dim, d = (first + r) % dim;
    const int n = std::min({dim - d, count - r, kLanes});
    uint16_t half[kLanes];
    kernels_.to_f16(values + r, half, n);
    if (is_key) {
      uint16_t* column = kv_.keys(block, layer, head) + static_cast<ptrdiff_t>(offset / kLanes) * dim * kLanes + offset % kLanes;
      for (int i = 0; i < n; ++i) column[(d + i) * kLanes] = half[i];
    } else {
      std::copy(half, half + n, kv_.values(block, layer, head) + static_cast<ptrdiff_t>(offset) * config_.padded_dim() + d);
    }
    r += n;
  }
}

void TileForward::output_stage(const Worker& worker, const Batch& batch, const LayerWeights& layer) {
  const int tokens = static_cast<int>(batch.rows.size());
  const bool quantized = is_quantized(layer.o_proj.kind);
  const ActRow* x = prepare(worker, tokens, config_.q_size(), nullptr, quantized, !quantized, [&](int t) { return attended(t); });
  add_projection(worker, layer.o_proj, x, tokens, layer.post_attn_norm);
}

void TileForward::add_projection(const Worker& worker, const Matrix& matrix, const ActRow* x, int tokens, const std::vector<float>& norm) {
  const auto added = [&](int t) { return added_.data() + static_cast<size_t>(t) * hidden_stride_; };
  project(worker, matrix, x, tokens, 1, [&](int first, int count, const float* products, int stride) {
    for (int t = 0; t < tokens; ++t, products += stride) {
      if (norm.empty())
        kernels_.add(hidden(t) + first, products, count);
      else
        std::copy(products, products + count, added(t) + first);
    }
  });
  if (norm.empty()) return;
  worker.sync();
  for (auto t = static_cast<int>(worker.first(tokens)); t < worker.last(tokens); ++t) {
    kernels_.rms_norm(added(t), norm.data(), config_.hidden_size, config_.rms_norm_eps, added(t));
    kernels_.add(hidden(t), added(t), config_.hidden_size);
  }
}

void TileForward::gate_up_stage(const Worker& worker, const Batch& batch, const LayerWeights& layer) {
  const int tokens = static_cast<int>(batch.rows.size());
  const Matrix& gate = layer.gate_proj;
  const Matrix& up = layer.up_proj;
  const bool quantized = is_quantized(gate.kind) || is_quantized(up.kind), plain = !is_quantized(gate.kind) || !is_quantized(up.kind);
  const ActRow* x =
      prepare(worker, tokens, config_.hidden_size, layer.ffn_norm.data(), quantized, plain, [&](int t) { return hidden(t); });
  const Matrix::Part& part = gate.parts[static_cast<size_t>(worker.index)];  // up's is the same
  const bool quantize_down = is_quantized(layer.down_proj.kind);
  const auto gate_mul = config_.gelu ? kernels_.gelu_mul : kernels_.silu_mul;
  float* gates = scratch(worker).products.data();  // [tokens][32]
  float* ups = gates + static_cast<ptrdiff_t>(tokens) * kBlock;
  // A block of 32 products at a time: they are quantised for down_proj while they are in registers' reach.
  for (int g = part.first_group; g < part.last_group; g += kBlock / kLanes) {
    const int groups = std::min(kBlock / kLanes, part.last_group - g);
    const int from = g - part.first_group;
    kernels_.matmul[static_cast<int>(gate.kind)](gate.group(part, from), groups, gate.cols, x, tokens, gates, kBlock);
    kernels_.matmul[static_cast<int>(up.kind)](up.group(up.parts[static_cast<size_t>(worker.index)], from), groups, up.cols, x, tokens, ups, kBlock);
    const int first = g * kLanes, count = std::min(groups * kLanes, gate.rows - first);
    for (int t = 0; t < tokens; ++t) {
      const ActRow& row = ffn_.rows()[t];
      float* out = row.f32 + first;
      gate_mul(gates + static_cast<ptrdiff_t>(t) * kBlock, ups + static_cast<ptrdiff_t>(t) * kBlock, count, out);
      if (quantize_down) {
        const int b = first / kBlock;
        kernels_.quantize(out, kBlock, {row.hi + first, row.lo + first, row.pairs + first, row.scale + b, row.scaled_sum + b, row.sum + b, nullptr});
      }
    }
  }
}

void TileForward::down_stage(const Worker& worker, const Batch& batch, const LayerWeights& layer) {
  add_projection(worker, layer.down_proj, ffn_.rows(), static_cast<int>(batch.rows.size()), layer.post_ffn_norm);
}

void TileForward::logits_stage(const Worker& worker, const Batch& batch) {
  const Matrix& output = weights_.output();
  const bool quantized = is_quantized(output.kind);
  const ActRow* x = prepare(worker, batch.num_logits(), config_.hidden_size, weights_.output_norm().data(), quantized, !quantized,
                            [&](int i) { return hidden(batch.logits_rows[static_cast<size_t>(i)]); });
  const Matrix::Part& part = output.parts[static_cast<size_t>(worker.index)];
  if (part.last_group > part.first_group)
    kernels_.matmul[static_cast<int>(output.kind)](part.tiles, part.last_group - part.first_group, output.cols, x, batch.num_logits(),
                                                   logits_.data() + part.first_group * kLanes, static_cast<ptrdiff_t>(logits_stride_));
}

}  // namespace ultrafast
