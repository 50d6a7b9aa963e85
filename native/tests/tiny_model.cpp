#include "tests/tiny_model.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "model/reference.h"
#include "tests/check.h"

namespace ultrafast::test {

TinyModel::TinyModel(const TinyShape& shape, uint64_t seed) {
  config.num_layers = shape.num_layers;
  config.hidden_size = shape.hidden_size;
  config.intermediate_size = shape.intermediate_size;
  config.num_heads = shape.num_heads;
  config.num_kv_heads = shape.num_kv_heads;
  config.head_dim = shape.head_dim;
  config.vocab_size = shape.vocab_size;
  config.rms_norm_eps = 1e-5f;
  config.rope_halves = shape.rope_halves;
  config.gelu = shape.gelu;
  config.query_scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  config.embedding_scale = shape.post_norms ? 1.5f : 1.0f;
  for (size_t i = 0; i < static_cast<size_t>(shape.num_layers); ++i)
    config.windows.push_back(shape.windows.empty() ? 0 : shape.windows[i % shape.windows.size()]);
  for (int i = 0; !shape.windows.empty() && i < shape.rope_dim / 2; ++i)
    config.local_rope_inv_freq.push_back(std::pow(50.0, -2.0 * i / shape.rope_dim));
  Random random(seed);
  for (int i = 0; i < shape.rope_dim / 2; ++i) config.rope_inv_freq.push_back(std::pow(10000.0, -2.0 * i / shape.rope_dim));
  size_t next_type = 0;
  const auto add = [&](const std::string& name, int type, int rows, int cols, float size) {
    storage_.push_back(random_tensor(type, rows, cols, size, random));
    tensors[name] = {type, rows, cols, storage_.back().data(), -1, 0};
  };
  const auto matrix = [&](const std::string& name, int rows, int cols) {
    add(name, shape.types[next_type++ % shape.types.size()], rows, cols, 1.5f / std::sqrt(static_cast<float>(cols)));
  };
  const auto vector = [&](const std::string& name, int cols) { add(name, kFileF32, 1, cols, 1.0f); };
  matrix("token_embd.weight", config.vocab_size, config.hidden_size);
  if (!shape.tied) matrix("output.weight", config.vocab_size, config.hidden_size);
  vector("output_norm.weight", config.hidden_size);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = "blk." + std::to_string(i) + ".";
    vector(prefix + "attn_norm.weight", config.hidden_size);
    vector(prefix + "ffn_norm.weight", config.hidden_size);
    matrix(prefix + "attn_q.weight", config.q_size(), config.hidden_size);
    matrix(prefix + "attn_k.weight", config.kv_size(), config.hidden_size);
    matrix(prefix + "attn_v.weight", config.kv_size(), config.hidden_size);
    matrix(prefix + "attn_output.weight", config.hidden_size, config.q_size());
    matrix(prefix + "ffn_gate.weight", config.intermediate_size, config.hidden_size);
    matrix(prefix + "ffn_up.weight", config.intermediate_size, config.hidden_size);
    matrix(prefix + "ffn_down.weight", config.hidden_size, config.intermediate_size);
    if (shape.qk_norm) {
      vector(prefix + "attn_q_norm.weight", config.head_dim);
      vector(prefix + "attn_k_norm.weight", config.head_dim);
    }
    if (shape.post_norms) {
      vector(prefix + "post_attention_norm.weight", config.hidden_size);
      vector(prefix + "post_ffw_norm.weight", config.hidden_size);
    }
    if (!shape.bias) continue;
    vector(prefix + "attn_q.bias", config.q_size());
    vector(prefix + "attn_k.bias", config.kv_size());
    vector(prefix + "attn_v.bias", config.kv_size());
  }
}

Runner::Runner(const TinyModel& model, const How& how, int max_context, int num_sequences)
    : workers_(std::vector<int>(static_cast<size_t>(how.num_workers), -1)), tables_(static_cast<size_t>(num_sequences)) {
  const int per_sequence = (max_context + kKvBlock - 1) / kKvBlock, num_blocks = per_sequence * num_sequences;
  constexpr int kRows = 64;
  if (how.kernels == nullptr)
    forward_ = std::make_unique<ReferenceForward>(model.config, model.tensors, workers_, num_blocks, kRows, kRows);
  else
    forward_ = std::make_unique<TileForward>(model.config, model.tensors, *how.kernels, workers_, num_blocks, kRows, kRows, max_context);
  for (int block = 0; block < num_blocks; ++block) tables_[static_cast<size_t>(block % num_sequences)].push_back(block);
  if (how.scattered)
    for (auto& table : tables_) std::reverse(table.begin(), table.end());
}

bool Runner::run(const Batch& batch, Lane lane, const Pause& pause) {
  std::atomic<int> finished{0};
  forward_->select(lane);
  workers_.run([&](const Worker& worker) { finished += forward_->run(worker, batch, pause) ? 1 : 0; });
  CHECK(finished == 0 || finished == workers_.count(), finished.load());  // all workers agree
  return finished > 0;
}

std::vector<int32_t> random_tokens(int count, int vocab_size, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) token = random.below(vocab_size);
  return tokens;
}

std::vector<float> all_logits(const TinyModel& model, const std::vector<int32_t>& tokens, const How& how) {
  const auto total = static_cast<int>(tokens.size()), vocab = model.config.vocab_size;
  Runner runner(model, how, total);
  std::vector<float> result(tokens.size() * static_cast<size_t>(vocab));
  for (int first = 0; first < total; first += how.chunk) {
    Batch batch;
    for (int i = first; i < std::min(total, first + how.chunk); ++i) {
      if (i % how.logits_every == 0) batch.logits_rows.push_back(i - first);
      batch.rows.push_back({tokens[static_cast<size_t>(i)], i, runner.blocks(0).data()});
    }
    runner.run(batch);
    for (int r = 0; r < batch.num_logits(); ++r)
      std::copy_n(runner.logits(r), vocab, result.data() + static_cast<ptrdiff_t>(first + batch.logits_rows[static_cast<size_t>(r)]) * vocab);
  }
  return result;
}

}  // namespace ultrafast::test
