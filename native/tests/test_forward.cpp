// The forward pass over tiles: close to the reference, and the same bits however the work is cut.
#include <algorithm>
#include <cmath>

#include "tests/tables.h"
#include "tests/tiny_model.h"

using namespace ultrafast;
using namespace ultrafast::test;

namespace {

// Every feature that changes the path through the model at least once.
std::vector<TinyShape> shapes() {
  const std::vector<int> mixed = {kFileQ4_1, kFileQ8_0, kFileQ4_0, kFileF16, kFileBF16, kFileF32, kFileQ4_1};
  return {
      {},
      {.types = {kFileQ4_1}},
      {.num_heads = 6, .types = mixed, .tied = false},                                         // 3 query heads a KV head
      {.num_heads = 8, .num_kv_heads = 1, .types = {kFileQ8_0}, .bias = true},                 // 8
      {.num_heads = 2, .rope_dim = 8, .types = {kFileQ4_0}, .bias = true, .tied = false},      // 1; half of each head rotates
      {.types = {kFileQ5_0, kFileQ5_1}},
      {.num_layers = 1, .hidden_size = 256, .intermediate_size = 256, .num_heads = 8, .head_dim = 32,
       .types = {kFileQ6_K, kFileQ4_K, kFileQ5_K}},
      {.hidden_size = 40, .intermediate_size = 50, .num_heads = 3, .num_kv_heads = 3, .head_dim = 20, .vocab_size = 50, .rope_dim = 20},
      {.hidden_size = 37, .intermediate_size = 17, .num_heads = 1, .num_kv_heads = 1, .head_dim = 2, .vocab_size = 5, .rope_dim = 2,
       .types = {kFileF16, kFileBF16}, .bias = true},
      {.types = {kFileQ8_0}, .bias = true, .rope_halves = true},                               // as Qwen 2
      {.num_kv_heads = 1, .rope_dim = 8, .types = mixed, .bias = true, .qk_norm = true, .rope_halves = true},
      {.num_heads = 8, .num_kv_heads = 4, .head_dim = 20, .rope_dim = 20, .types = {kFileQ4_0}, .qk_norm = true, .gelu = true},
      {.num_layers = 3, .num_heads = 2, .num_kv_heads = 1, .head_dim = 48, .rope_dim = 48, .types = {kFileQ4_1}, .qk_norm = true,
       .post_norms = true, .rope_halves = true, .gelu = true, .windows = {20, 0, 1}},          // as Gemma 3
      {.types = {kFileQ4_1}, .post_norms = true, .windows = {64, 65}},
  };
}

// Large heads, so that a few hundred cached positions for 64 tokens no longer fit the scratch that spreads attention by chunks.
TinyShape wide_heads() { return {.num_layers = 1, .num_heads = 8, .num_kv_heads = 1, .head_dim = 128, .rope_dim = 128}; }

void check_equal(const std::vector<float>& want, const std::vector<float>& got, const How& how, size_t shape) {
  CHECK(same_bits(want.data(), got.data(), want.size()), shape, how.kernels->name, how.num_workers, how.chunk, how.scattered);
}

}  // namespace

TEST(model, logits_are_close_to_the_reference) {
  size_t index = 0;
  for (const TinyShape& shape : shapes()) {
    const TinyModel model(shape);
    const auto tokens = random_tokens(70, shape.vocab_size, 2);
    const auto want = all_logits(model, tokens, {.num_workers = 2});
    const auto got = all_logits(model, tokens, {.kernels = &scalar()});
    double error = 0.0, size = 0.0;
    for (size_t i = 0; i < want.size(); ++i) {
      error += std::pow(double{got[i]} - want[i], 2);
      size += std::pow(want[i], 2);
    }
    CHECK(std::isfinite(size) && size > 0.0, index);
    CHECK(std::sqrt(error / size) < 2e-3, index, std::sqrt(error / size));  // keys and values have 11 bits, and norms pass errors on enlarged
    ++index;
  }
}

TEST(model, logits_do_not_depend_on_isa_workers_chunks_or_blocks) {
  const auto tables = vector_tables();
  size_t index = 0;
  for (const TinyShape& shape : shapes()) {
    const TinyModel model(shape);
    const auto tokens = random_tokens(70, shape.vocab_size, 3);
    const auto want = all_logits(model, tokens, {.kernels = &scalar()});
    for (const KernelTable* table : tables) {
      const How how{.kernels = table};
      check_equal(want, all_logits(model, tokens, how), how, index);
    }
    const KernelTable* table = find_kernels("avx2") != nullptr ? find_kernels("avx2") : &scalar();
    for (const How& how : {How{table, 2, 1}, How{table, 3, 7}, How{table, 1, 64}, How{table, 2, 64, true}, How{table, 3, 5, true}, How{&scalar(), 2, 4}})
      check_equal(want, all_logits(model, tokens, how), how, index);
    ++index;
  }
}

TEST(model, more_workers_than_rows_change_nothing) {
  const TinyModel model({.num_layers = 1, .hidden_size = 32, .intermediate_size = 32, .num_heads = 2, .num_kv_heads = 1, .vocab_size = 20, .types = {kFileQ4_1}});
  const auto tokens = random_tokens(10, 20, 4);
  const How one{.kernels = &scalar()}, many{.kernels = &scalar(), .num_workers = 7};
  check_equal(all_logits(model, tokens, one), all_logits(model, tokens, many), many, 0);
}

TEST(model, both_ways_to_share_out_attention_are_the_same) {
  const TinyShape shape = wide_heads();
  const TinyModel model(shape);
  const auto tokens = random_tokens(330, shape.vocab_size, 5);
  const KernelTable* table = find_kernels("avx2") != nullptr ? find_kernels("avx2") : &scalar();
  const How one_by_one{.kernels = table, .chunk = 1}, together{.kernels = table, .num_workers = 2, .chunk = 64, .scattered = true};
  // The last full pass: 64 rows of 5 chunks, 8 heads, 130 floats each, against the 2^18 floats of scratch.
  const int64_t needed = int64_t{64} * 5 * shape.num_heads * (2 + shape.head_dim);
  CHECK(needed > int64_t{1} << 18, needed);
  const auto want = all_logits(model, tokens, one_by_one);
  check_equal(want, all_logits(model, tokens, together), together, 0);
  const auto reference = all_logits(model, tokens, {.num_workers = 2, .chunk = 64});
  double worst = 0.0, largest = 0.0;
  for (size_t i = 0; i < want.size(); ++i) {
    worst = std::max(worst, std::fabs(double{want[i]} - reference[i]));
    largest = std::max(largest, std::fabs(double{reference[i]}));
  }
  CHECK(worst < 5e-3 * largest, worst, largest);
}

TEST(model, skipped_logits_change_nothing) {
  const TinyModel model({.types = {kFileQ4_1}});
  const auto tokens = random_tokens(70, 90, 6);
  const auto want = all_logits(model, tokens, {.kernels = &scalar()});
  const auto got = all_logits(model, tokens, {.kernels = &scalar(), .chunk = 10, .logits_every = 7});
  for (size_t t = 0; t < tokens.size(); t += 7) CHECK(same_bits(want.data() + t * 90, got.data() + t * 90, 90), t);
}

// Three sequences in one pass, at different positions, some with several tokens: each as if it were alone.
TEST(model, sequences_in_a_batch_do_not_meet) {
  for (const KernelTable* table : {&scalar(), &kernel_table_emulated, find_kernels("avx2")}) {
    if (table == nullptr) continue;
    const TinyModel model({.types = {kFileQ4_1, kFileQ8_0}});
    Runner runner(model, {.kernels = table, .num_workers = 2}, 128, 3);
    std::vector<std::vector<int32_t>> tokens;
    std::vector<std::vector<float>> want;
    for (uint64_t s = 0; s < 3; ++s) {
      tokens.push_back(random_tokens(80, 90, 7 + s));
      want.push_back(all_logits(model, tokens.back(), {.kernels = table}));
    }
    constexpr int kStride[] = {1, 5, 11};
    int next[] = {0, 0, 0};
    for (int pass = 0; pass < 7; ++pass) {
      Batch batch;
      for (int s = 0; s < 3; ++s) {
        for (int i = 0; i < kStride[s]; ++i, ++next[s])
          batch.rows.push_back({tokens[static_cast<size_t>(s)][static_cast<size_t>(next[s])], next[s], runner.blocks(s).data()});
        batch.logits_rows.push_back(static_cast<int>(batch.rows.size()) - 1);
      }
      runner.run(batch);
      for (int s = 0; s < 3; ++s)
        CHECK(same_bits(runner.logits(s), want[static_cast<size_t>(s)].data() + (next[s] - 1) * 90, 90), table->name, pass, s);
    }
  }
}

// A pass that is suspended after every layer, with whole passes of the other lane in between: both as if they were alone.
TEST(model, a_suspended_pass_goes_on_as_if_nothing_had_happened) {
  const TinyModel model({.types = {kFileQ4_1, kFileQ8_0}});
  const auto prompt = random_tokens(60, 90, 3), other = random_tokens(60, 90, 4);
  const auto want = all_logits(model, prompt, {.kernels = &scalar()}), want_other = all_logits(model, other, {.kernels = &scalar()});
  for (const int num_workers : {1, 3}) {
    Runner runner(model, {.kernels = &scalar(), .num_workers = num_workers}, 64, 2);
    Batch shared;
    for (int i = 0; i < 60; ++i) shared.rows.push_back({prompt[static_cast<size_t>(i)], i, runner.blocks(0).data()});
    shared.logits_rows = {59, 30};
    int pieces = 1, position = 0;
    while (!runner.run(shared, Lane::kShared, [] { return true; })) {
      ++pieces;
      Batch urgent{{{other[static_cast<size_t>(position)], position, runner.blocks(1).data()}}, {0}};
      CHECK(runner.run(urgent));
      CHECK(same_bits(runner.logits(0), want_other.data() + position * 90, 90), num_workers, position);
      ++position;
    }
    CHECK(pieces == model.config.num_layers, pieces);
    CHECK(same_bits(runner.logits(0), want.data() + 59 * 90, 90) && same_bits(runner.logits(1), want.data() + 30 * 90, 90), num_workers);
  }
}

TEST(model, a_copied_block_has_the_same_keys_and_values) {
  const TinyModel model({.types = {kFileQ4_1}});
  const auto tokens = random_tokens(40, 90, 5);
  for (const bool reference : {false, true}) {
    const KernelTable* table = reference ? nullptr : &scalar();
    const auto want = all_logits(model, tokens, {.kernels = table});
    Runner runner(model, {.kernels = table}, 64, 2);
    Batch prefix;
    for (int i = 0; i < 30; ++i) prefix.rows.push_back({tokens[static_cast<size_t>(i)], i, runner.blocks(0).data()});
    runner.run(prefix);
    runner.forward().copy_block(runner.blocks(0)[0], runner.blocks(1)[0]);
    runner.forward().release_block(runner.blocks(0)[0]);
    Batch rest;
    for (int i = 30; i < 40; ++i) rest.rows.push_back({tokens[static_cast<size_t>(i)], i, runner.blocks(1).data()});
    rest.logits_rows = {9};
    runner.run(rest);
    CHECK(same_bits(runner.logits(0), want.data() + 39 * 90, 90), reference);
  }
}

TEST(model, rope_angles_are_those_of_the_position) {
  const TinyModel model({});
  float angles[16];
  rope_angles(model.config.rope_inv_freq, 1000, angles);
  for (size_t i = 0; i < 8; ++i) {
    const double angle = 1000 * model.config.rope_inv_freq[i];
    CHECK(angles[2 * i] == static_cast<float>(std::cos(angle)) && angles[2 * i + 1] == static_cast<float>(std::sin(angle)), i);
  }
}

TEST(model, a_step_reads_every_matrix_once) {
  const TinyShape shape{.num_layers = 3, .types = {kFileQ4_1}};
  for (const bool tied : {true, false}) {
    TinyShape each = shape;
    each.tied = tied;
    const TinyModel model(each);
    Runner runner(model, {.kernels = &scalar(), .num_workers = 2}, 64);
    const size_t layer = (64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 96 * 64) / 32 * 20;  // 20 bytes hold 32 weights
    CHECK(runner.take_forward()->bytes_per_token() == 3 * layer + 96 * 64 / 32 * 20, tied);  // 90 rows fill 96
  }
}
