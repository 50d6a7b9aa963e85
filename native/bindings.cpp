// The Python extension ultrafast._native: checks what it is given once, releases the GIL, calls decode/.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>

#include "decode/burst.h"
#include "kernels/dispatch.h"
#include "model/arithmetic.h"
#include "model/forward.h"
#include "model/reference.h"
#include "model/tiles.h"
#include "runtime/bandwidth.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ultrafast {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using FloatMatrix = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

FloatMatrix new_matrix(size_t rows, size_t cols) {
  auto* data = new float[rows * cols];
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return FloatMatrix(data, {rows, cols}, owner);
}

void require(bool condition, const std::string& what) {
  if (!condition) throw std::invalid_argument(what);
}

const KernelTable& checked_kernels(const std::string& isa) {
  const KernelTable* kernels = find_kernels(isa);
  require(kernels != nullptr, "instruction set not supported: " + isa);
  return *kernels;
}

FileTensor checked_tensor(const std::string& name, int type, int64_t rows, int64_t cols) {
  require(is_supported_type(type), name + ": unsupported tensor type");
  require(rows > 0 && cols > 0 && rows <= INT32_MAX && cols <= INT32_MAX, name + ": bad shape");
  const int block = file_block(type).cols;
  require(cols % block == 0, name + ": columns are not a multiple of " + std::to_string(block));
  FileTensor tensor;
  tensor.type = type;
  tensor.rows = static_cast<int>(rows);
  tensor.cols = static_cast<int>(cols);
  return tensor;
}

void check_shapes(const ModelConfig& c, const FileTensors& tensors) {
  require(c.num_layers > 0 && c.hidden_size > 0 && c.intermediate_size > 0 && c.num_heads > 0 && c.num_kv_heads > 0 && c.head_dim > 0 &&
              c.vocab_size > 0,
          "model sizes must be positive");
  require(c.query_scale > 0.0f && c.embedding_scale > 0.0f, "scales must be positive");
  require(static_cast<int>(c.windows.size()) == c.num_layers, "one window a layer");
  for (int i = 0; i < c.num_layers; ++i)
    require(!c.is_local(i) || c.local_rope_inv_freq.size() == c.rope_inv_freq.size(), "local layers need as many rotations");
  require(c.num_heads % c.num_kv_heads == 0 && c.head_dim % 2 == 0 && c.rope_dim() <= c.head_dim, "bad attention shape");
  const auto has = [&](const std::string& name) { return tensors.count(name) != 0; };
  const auto expect = [&](const std::string& name, int rows, int cols) {
    const auto it = tensors.find(name);
    require(it != tensors.end(), name + ": missing");
    require(it->second.rows == rows && it->second.cols == cols, name + ": wrong shape");
    require(rows > 1 || !is_quantized(tile_kind(it->second.type)), name + ": vectors must not be quantised");
  };
  expect("token_embd.weight", c.vocab_size, c.hidden_size);
  expect("output_norm.weight", 1, c.hidden_size);
  if (tensors.count("output.weight") != 0) expect("output.weight", c.vocab_size, c.hidden_size);
  for (int i = 0; i < c.num_layers; ++i) {
    const std::string prefix = "blk." + std::to_string(i) + ".";
    expect(prefix + "attn_norm.weight", 1, c.hidden_size);
    expect(prefix + "ffn_norm.weight", 1, c.hidden_size);
    expect(prefix + "attn_q.weight", c.q_size(), c.hidden_size);
    expect(prefix + "attn_k.weight", c.kv_size(), c.hidden_size);
    expect(prefix + "attn_v.weight", c.kv_size(), c.hidden_size);
    expect(prefix + "attn_output.weight", c.hidden_size, c.q_size());
    expect(prefix + "ffn_gate.weight", c.intermediate_size, c.hidden_size);
    expect(prefix + "ffn_up.weight", c.intermediate_size, c.hidden_size);
    expect(prefix + "ffn_down.weight", c.hidden_size, c.intermediate_size);
    // What is in one layer is in all.
    if (has("blk.0.attn_q_norm.weight")) {
      expect(prefix + "attn_q_norm.weight", 1, c.head_dim);
      expect(prefix + "attn_k_norm.weight", 1, c.head_dim);
    }
    if (has("blk.0.post_attention_norm.weight")) {
      expect(prefix + "post_attention_norm.weight", 1, c.hidden_size);
      expect(prefix + "post_ffw_norm.weight", 1, c.hidden_size);
    }
    if (has(prefix + "attn_q.bias")) {
      expect(prefix + "attn_q.bias", 1, c.q_size());
      expect(prefix + "attn_k.bias", 1, c.kv_size());
      expect(prefix + "attn_v.bias", 1, c.kv_size());
    }
  }
}

// A constraint written in Python: an object with mask_into(address) and accept(token). Whoever samples takes the GIL for it.
class PythonConstraint final : public Constraint {
 public:
  explicit PythonConstraint(const nb::object& object) : mask_into_(object.attr("mask_into")), accept_(object.attr("accept")) {}
  ~PythonConstraint() override {
    nb::gil_scoped_acquire acquire;
    mask_into_.reset();
    accept_.reset();
    raised_.reset();
  }
  void advance(std::optional<int32_t> token, uint32_t* allowed) override {
    nb::gil_scoped_acquire acquire;
    try {
      if (token) accept_(*token);
      mask_into_(reinterpret_cast<uintptr_t>(allowed));
    } catch (nb::python_error& error) {
      raised_ = nb::borrow(error.value());
    }
    if (raised_) throw std::runtime_error("the constraint raised an exception");  // what Python has stays behind: it needs the GIL
  }
  const nb::object& raised() const { return raised_; }

 private:
  nb::object mask_into_, accept_, raised_;
};

// A loaded model with its KV blocks and decoder.
class Model {
 public:
  using TensorArgs = std::vector<std::tuple<std::string, int, int64_t, int64_t, int64_t>>;  // name, type, rows, cols, offset

  Model(ModelConfig config, int fd, const TensorArgs& tensor_args, const std::string& isa, std::vector<int> cpus, int num_blocks,
        int max_rows, int max_logits, int max_context)
      : vocab_size_(config.vocab_size),
        num_blocks_(num_blocks),
        max_logits_(max_logits),
        max_context_(max_context),
        is_reference_(isa == "reference"),
        kernels_(is_reference_ ? kernel_table_scalar : checked_kernels(isa)) {
    require(!cpus.empty() && num_blocks > 0 && max_rows > 0 && max_logits > 0 && max_context > 0, "bad limits");
    const FileTensors tensors = checked_tensors(config, fd, tensor_args);
    nb::gil_scoped_release release;
    workers_ = std::make_unique<Workers>(cpus);
    decoder_ = std::make_unique<Decoder>(load(config, tensors, max_rows), kernels_, *workers_, vocab_size_, max_rows, max_logits);
  }

  // A smaller model that drafts; max_context: positions that it may compute.
  void load_draft(const ModelConfig& config, int fd, const TensorArgs& tensor_args, int max_context) {
    require(config.vocab_size == vocab_size_, "a draft model needs the same vocabulary");
    require(max_context > 0 && decoder_->speculation().model() == nullptr, "bad draft model");
    const FileTensors tensors = checked_tensors(config, fd, tensor_args);
    nb::gil_scoped_release release;
    const int max_rows = std::max(DraftModel::kMaxRows, max_logits_);
    decoder_->set_draft_model(load(config, tensors, max_rows), std::min(max_context, max_context_));
  }

  // Returns the steps finished and whether the lane is suspended now. The caller keeps the sequences of a suspended lane alive.
  std::pair<int, bool> run(int lane_number, const std::vector<std::pair<Sequence*, int>>& burst, int max_steps, double time_limit_s,
                           bool slice) {
    const Lane lane = checked_lane(lane_number);
    require(!decoder_->is_suspended(lane), "the lane is suspended; resume it first");
    const BurstLimits limits = checked_limits(max_steps, time_limit_s, slice);
    std::vector<BurstEntry> entries;
    int64_t rows = 0;
    for (const auto& [sequence, chunk] : burst) {
      require(sequence != nullptr && chunk > 0, "bad burst entry");
      const int64_t most = int64_t{max_steps} * (1 + sequence->draft_limit);  // tokens
      check(*sequence, std::min(static_cast<int64_t>(sequence->tokens.size()) - 1 + most,
                                static_cast<int64_t>(sequence->num_prompt) + std::max(sequence->max_tokens - 1, 0)));
      rows += std::min(chunk, std::max(sequence->num_pending(), 1));
      entries.push_back({sequence, chunk});
    }
    require(rows <= decoder_->max_rows(), "too many tokens in a burst");
    require(static_cast<int>(entries.size()) <= max_logits_, "too many sequences in a burst");
    nb::gil_scoped_release release;
    const int steps = decoder_->run(lane, entries, limits);
    return {steps, decoder_->is_suspended(lane)};
  }

  std::pair<int, bool> resume(int lane_number, int max_steps, double time_limit_s, bool slice) {
    const Lane lane = checked_lane(lane_number);
    require(decoder_->is_suspended(lane), "the lane is not suspended");
    const BurstLimits limits = checked_limits(max_steps, time_limit_s, slice);
    nb::gil_scoped_release release;
    const int steps = decoder_->resume(lane, limits);
    return {steps, decoder_->is_suspended(lane)};
  }

  void abandon(int lane_number) { decoder_->abandon(checked_lane(lane_number)); }

  FloatMatrix all_logits(Sequence& sequence, int chunk) {
    check(sequence, static_cast<int64_t>(sequence.tokens.size()));
    require(sequence.num_computed == 0 && !sequence.tokens.empty(), "all_logits needs a fresh sequence");
    require(chunk > 0 && chunk <= std::min(decoder_->max_rows(), max_logits_), "bad chunk");
    FloatMatrix out = new_matrix(sequence.tokens.size(), static_cast<size_t>(vocab_size_));
    nb::gil_scoped_release release;
    decoder_->all_logits(sequence, chunk, out.data());
    return out;
  }

  void release_blocks(const std::vector<int>& blocks) {
    for (const int block : blocks) {
      require(block >= 0 && block < num_blocks_, "KV block out of range");
      decoder_->release_block(block);
    }
  }

  void copy_block(int source, int target) {
    for (const int block : {source, target}) require(block >= 0 && block < num_blocks_, "KV block out of range");
    require(source != target, "a KV block cannot be copied to itself");
    nb::gil_scoped_release release;
    decoder_->copy_block(source, target);
  }

  // Not while a burst runs.
  void remember(const std::string& domain, const std::vector<int32_t>& tokens) {
    for (const int32_t token : tokens) require(token >= 0 && token < vocab_size_, "token id out of range");
    decoder_->speculation().remember(domain, tokens);
  }

  void interrupt() { decoder_->interrupt(); }
  void preempt() { decoder_->preempt(); }

  // What the profile has gathered since it was switched on: [(stage, work ns, wait ns)], steps. Then a new one, or none.
  std::pair<std::vector<std::tuple<std::string, int64_t, int64_t>>, int64_t> profile(bool on) {
    std::vector<std::tuple<std::string, int64_t, int64_t>> stages;
    int64_t steps = 0;
    if (const auto& profile = decoder_->profile()) {
      steps = profile->steps();
      for (size_t i = 0; i < kStageNames.size(); ++i)
        stages.emplace_back(kStageNames[i], profile->stages()[i].work_ns, profile->stages()[i].wait_ns);
    }
    decoder_->profile(on);
    return {std::move(stages), steps};
  }

  size_t bytes_per_token() const { return decoder_->forward().bytes_per_token(); }
  int num_pinned() const { return workers_->pinned(); }

 private:
  static FileTensors checked_tensors(const ModelConfig& config, int fd, const TensorArgs& args) {
    FileTensors tensors;
    for (const auto& [name, type, rows, cols, offset] : args) {
      FileTensor& tensor = tensors[name] = checked_tensor(name, type, rows, cols);
      require(offset >= 0, name + ": bad offset");
      tensor.fd = fd;
      tensor.offset = offset;
    }
    check_shapes(config, tensors);
    return tensors;
  }
  std::unique_ptr<Forward> load(const ModelConfig& config, const FileTensors& tensors, int max_rows) {
    if (is_reference_)
      return std::make_unique<ReferenceForward>(config, tensors, *workers_, num_blocks_, max_rows, max_logits_);
    return std::make_unique<TileForward>(config, tensors, kernels_, *workers_, num_blocks_, max_rows, max_logits_, max_context_);
  }

  static Lane checked_lane(int lane) {
    require(lane >= 0 && lane < kNumLanes, "no such lane");
    return static_cast<Lane>(lane);
  }
  static BurstLimits checked_limits(int max_steps, double time_limit_s, bool slice) {
    require(max_steps > 0 && time_limit_s >= 0.0 && time_limit_s < 1e6, "bad burst limits");
    return {max_steps, std::chrono::nanoseconds(static_cast<int64_t>(time_limit_s * 1e9)), slice};
  }

  // Everything that native code will index with: token ids, and blocks for `positions` positions.
  void check(const Sequence& s, int64_t positions) const {
    require(positions <= max_context_, "sequence is longer than the context");
    require(static_cast<int64_t>(s.block_table.size()) * kKvBlock >= std::max<int64_t>(positions, 1), "too few KV blocks");
    for (const int32_t block : s.block_table) require(block >= 0 && block < num_blocks_, "KV block out of range");
    const auto is_token = [this](int32_t token) { return token >= 0 && token < vocab_size_; };
    require(std::all_of(s.tokens.begin() + s.num_computed, s.tokens.end(), is_token), "token id out of range");
    require(std::all_of(s.replay.begin(), s.replay.end(), is_token), "token id out of range");
  }

  const int vocab_size_, num_blocks_, max_logits_, max_context_;
  const bool is_reference_;
  const KernelTable& kernels_;
  std::unique_ptr<Workers> workers_;
  std::unique_ptr<Decoder> decoder_;
};

// As Python has them; what is most likely moves there.
std::vector<std::pair<float, std::vector<std::pair<int32_t, float>>>> moved_out(std::vector<Logprobs>& logprobs, size_t first) {
  std::vector<std::pair<float, std::vector<std::pair<int32_t, float>>>> out;
  for (size_t i = first; i < logprobs.size(); ++i) out.emplace_back(logprobs[i].chosen, std::move(logprobs[i].top));
  return out;
}

FloatMatrix dequantize(int type, int64_t rows, int64_t cols, const Bytes& data, bool through_tiles) {
  FileTensor tensor = checked_tensor("tensor", type, rows, cols);
  require(data.size() == static_cast<size_t>(rows) * file_row_bytes(type, tensor.cols), "tensor: wrong number of bytes");
  tensor.data = data.data();
  FloatMatrix out = new_matrix(static_cast<size_t>(rows), static_cast<size_t>(cols));
  std::vector<uint8_t> tiles(group_bytes(tile_kind(type), tensor.cols));
  for (int r = 0; r < tensor.rows; ++r) {
    float* row = out.data() + static_cast<size_t>(r) * static_cast<size_t>(cols);
    if (through_tiles) {
      if (r % kLanes == 0)
        repack_rows(type, tensor.data + static_cast<size_t>(r) * file_row_bytes(type, tensor.cols), std::min(kLanes, tensor.rows - r),
                    tensor.cols, tiles.data());
      dequantize_tile_row(tile_kind(type), tiles.data(), tensor.cols, r % kLanes, row);
    } else {
      dequantize_row(type, tensor.data + static_cast<size_t>(r) * file_row_bytes(type, tensor.cols), tensor.cols, row);
    }
  }
  return out;
}

}  // namespace

NB_MODULE(_native, m) {
  m.attr("KV_BLOCK") = kKvBlock;
  m.attr("MAX_DRAFT") = kMaxDraft;
  m.def("available_isas", [] {
    std::vector<std::string> names;
    for (const KernelTable* table : available_kernels()) names.emplace_back(table->name);
    return names;
  });
  m.def("supported_isas", [] {
    std::vector<std::string> names;
    for (const KernelTable* table : available_kernels())
      if (is_supported(*table)) names.emplace_back(table->name);
    return names;
  });
  m.def(
      "read_speed",
      [](size_t bytes, const std::vector<int>& cpus, int repeats) {
        require(bytes > 0 && repeats > 0 && !cpus.empty(), "bad sizes");
        nb::gil_scoped_release release;
        Workers workers(cpus);
        const ReadSpeed speed = read_speed(workers, bytes, repeats);
        return std::pair(speed.bytes_per_second, std::string(speed.method));
      },
      "bytes"_a, "cpus"_a, "repeats"_a);
  m.def(
      "matmul_speed",
      [](const std::string& isa, int type, int cols, int tokens, const std::vector<int>& cpus) {
        const KernelTable& kernels = checked_kernels(isa);
        require(tokens > 0 && !cpus.empty(), "bad sizes");
        checked_tensor("matrix", type, kLanes, cols);
        require(cols % kBlock == 0, "matrix: columns are not a multiple of " + std::to_string(kBlock));
        nb::gil_scoped_release release;
        Workers workers(cpus);
        return matmul_speed(workers, kernels, tile_kind(type), cols, tokens);
      },
      "isa"_a, "type"_a, "cols"_a, "tokens"_a, "cpus"_a);
  m.def(
      "attention_speed",
      [](const std::string& isa, int num_q, int head_dim, const std::vector<int>& cpus) {
        const KernelTable& kernels = checked_kernels(isa);
        require(num_q > 0 && head_dim > 0 && head_dim % 2 == 0 && !cpus.empty(), "bad sizes");
        nb::gil_scoped_release release;
        Workers workers(cpus);
        return attention_speed(workers, kernels, num_q, head_dim);
      },
      "isa"_a, "num_q"_a, "head_dim"_a, "cpus"_a);
  m.def("uniform_at", &uniform_at, "seed"_a, "position"_a);
  m.def("dequantize", &dequantize, "type"_a, "rows"_a, "cols"_a, "data"_a, "through_tiles"_a);

  nb::class_<ModelConfig>(m, "ModelConfig")
      .def(
          "__init__",
          [](ModelConfig* self, int num_layers, int hidden_size, int intermediate_size, int num_heads, int num_kv_heads, int head_dim,
             int vocab_size, float rms_norm_eps, std::vector<double> rope_inv_freq, bool rope_halves, float query_scale,
             float embedding_scale, bool gelu, std::vector<int> windows, std::vector<double> local_rope_inv_freq) {
            new (self) ModelConfig{num_layers,   hidden_size,     intermediate_size, num_heads,          num_kv_heads,
                                   head_dim,     vocab_size,      rms_norm_eps,      std::move(rope_inv_freq), rope_halves,
                                   query_scale,  embedding_scale, gelu,              std::move(windows),
                                   std::move(local_rope_inv_freq)};
          },
          nb::kw_only(), "num_layers"_a, "hidden_size"_a, "intermediate_size"_a, "num_heads"_a, "num_kv_heads"_a, "head_dim"_a,
          "vocab_size"_a, "rms_norm_eps"_a, "rope_inv_freq"_a, "rope_halves"_a, "query_scale"_a, "embedding_scale"_a, "gelu"_a, "windows"_a,
          "local_rope_inv_freq"_a);

  nb::class_<Sequence>(m, "Sequence")
      .def(
          "__init__",
          [](Sequence* self, std::vector<int32_t> prompt, int max_tokens, std::vector<int32_t> stop_tokens, float temperature, int top_k,
             float top_p, float min_p, float repetition_penalty, float presence_penalty, float frequency_penalty,
             std::vector<std::pair<int32_t, float>> logit_bias, uint64_t seed, int num_logprobs, int draft_limit,
             std::vector<int32_t> prediction, std::string domain, std::vector<int32_t> replay, int num_prompt_logprobs,
             const nb::object& constraint) {
            require(!prompt.empty() && max_tokens >= 0, "a sequence needs a prompt");
            require(draft_limit >= 0 && draft_limit <= kMaxDraft, "bad draft limit");
            new (self) Sequence(std::move(prompt), max_tokens, std::move(stop_tokens),
                                {temperature, top_k, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty,
                                 std::move(logit_bias), seed, num_logprobs},
                                {draft_limit, std::move(prediction), std::move(domain)});
            self->replay = std::move(replay);
            self->num_prompt_logprobs = num_prompt_logprobs;
            if (!constraint.is_none()) self->constraint = std::make_unique<PythonConstraint>(constraint);
          },
          "prompt"_a, "max_tokens"_a, "stop_tokens"_a, nb::kw_only(), "temperature"_a = 0.0f, "top_k"_a = 0, "top_p"_a = 1.0f,
          "min_p"_a = 0.0f, "repetition_penalty"_a = 1.0f, "presence_penalty"_a = 0.0f, "frequency_penalty"_a = 0.0f,
          "logit_bias"_a = std::vector<std::pair<int32_t, float>>{}, "seed"_a = 0, "num_logprobs"_a = -1,
          "draft_limit"_a = 0, "prediction"_a = std::vector<int32_t>{}, "domain"_a = "", "replay"_a = std::vector<int32_t>{},
          "num_prompt_logprobs"_a = -1, "constraint"_a = nb::none())
      .def_rw("block_table", &Sequence::block_table)
      .def_prop_rw(
          "num_computed", [](const Sequence& s) { return s.num_computed; },
          [](Sequence& s, int count) {
            require(count >= 0 && count < static_cast<int>(s.tokens.size()), "the last token must still be computed");
            s.num_computed = count;
            s.num_guessed = 0;  // on new blocks
          })
      .def_ro("tokens", &Sequence::tokens)
      .def_prop_ro("num_pending", &Sequence::num_pending)
      .def_prop_ro("num_output", &Sequence::num_output)
      .def_prop_ro("num_accepted", [](const Sequence& s) { return s.drafter ? s.drafter->record.accepted() : 0; })
      .def_prop_ro("num_rejected", [](const Sequence& s) { return s.drafter ? s.drafter->record.rejected() : 0; })
      .def_prop_ro("finish", [](const Sequence& s) { return static_cast<int>(s.finish); })
      .def_ro("error", &Sequence::error)
      .def("take_raised", [](Sequence& s) {  // by its constraint; both leave
        // An exception knows the frames that it went through, and these the sequence: kept here, none of them would ever end.
        const auto constraint = std::move(s.constraint);
        const auto* python = static_cast<const PythonConstraint*>(constraint.get());
        return python != nullptr && python->raised() ? python->raised() : nb::none();
      })
      .def_prop_ro("num_scored", [](const Sequence& s) { return s.prompt_logprobs.size(); })
      .def("take", [](Sequence& s) {  // output tokens since the last call, and their logprobs when asked for
        std::vector<int32_t> tokens(s.tokens.begin() + s.num_prompt + s.num_delivered, s.tokens.end());
        auto logprobs = moved_out(s.logprobs, static_cast<size_t>(s.num_delivered));
        s.num_delivered = s.num_output();
        return std::pair(std::move(tokens), std::move(logprobs));
      })
      .def("take_prompt_logprobs", [](Sequence& s) { return moved_out(s.prompt_logprobs, 0); });  // once, when all are there

  nb::class_<Model>(m, "Model")
      .def(nb::init<ModelConfig, int, const Model::TensorArgs&, const std::string&, std::vector<int>, int, int, int, int>(), "config"_a, "fd"_a,
           "tensors"_a, nb::kw_only(), "isa"_a, "cpus"_a, "num_blocks"_a, "max_rows"_a, "max_logits"_a, "max_context"_a)
      .def("load_draft", &Model::load_draft, "config"_a, "fd"_a, "tensors"_a, nb::kw_only(), "max_context"_a)
      .def("run", &Model::run, "lane"_a, "burst"_a, nb::kw_only(), "max_steps"_a, "time_limit_s"_a, "slice"_a = false)
      .def("resume", &Model::resume, "lane"_a, nb::kw_only(), "max_steps"_a, "time_limit_s"_a, "slice"_a = false)
      .def("abandon", &Model::abandon, "lane"_a)
      .def("all_logits", &Model::all_logits, "sequence"_a, "chunk"_a)
      .def("release_blocks", &Model::release_blocks, "blocks"_a)
      .def("copy_block", &Model::copy_block, "source"_a, "target"_a)
      .def("remember", &Model::remember, "domain"_a, "tokens"_a)
      .def("interrupt", &Model::interrupt)
      .def("preempt", &Model::preempt)
      .def("profile", &Model::profile, "on"_a)
      .def_prop_ro("bytes_per_token", &Model::bytes_per_token)
      .def_prop_ro("num_pinned", &Model::num_pinned);
}

}  // namespace ultrafast
