// Matrix products: every table against scalar, and scalar against double precision.
#include <algorithm>
#include <cmath>

#include "tests/act_rows.h"
#include "tests/tables.h"
#include "tests/tensors.h"

using namespace ultrafast;
using namespace ultrafast::test;

namespace {

constexpr float kUntouched = 12345.0f;

// A matrix as tiles that end at a guard page.
struct Tiles {
  Tiles(int type, int num_groups, int columns, size_t slack, Random& random, Quants quants)
      : kind(tile_kind(type)), groups(num_groups), cols(columns),
        data(static_cast<size_t>(groups) * group_bytes(kind, cols) / 4, slack) {  // in words: tiles are aligned to four bytes
    const int rows = groups * kLanes;
    const std::vector<uint8_t> file = random_tensor(type, rows, cols, 1.0f, random, quants);
    for (int g = 0; g < groups; ++g) repack_rows(type, file.data() + static_cast<size_t>(g) * kLanes * file_row_bytes(type, cols), std::min(kLanes, rows - g * kLanes), cols, bytes() + static_cast<size_t>(g) * group_bytes(kind, cols));
  }
  uint8_t* bytes() const { return reinterpret_cast<uint8_t*>(data.data()); }

  TileKind kind;
  int groups, cols;
  Guarded<uint32_t> data;
};

// out[tokens][stride], the last row without its unused end, so that the guard page follows the last result.
void product(const KernelTable& table, const Tiles& tiles, const ActRow* x, int tokens, int stride, const Guarded<float>& out) {
  std::fill(out.begin(), out.end(), kUntouched);
  table.matmul[static_cast<int>(tiles.kind)](tiles.bytes(), tiles.groups, tiles.cols, x, tokens, out.data(), stride);
}

void check_parity(const std::vector<const KernelTable*>& tables, int type, int groups, int cols, int tokens, bool extreme) {
  Random random(static_cast<uint64_t>(type * 1000003 + groups * 10007 + cols * 101 + tokens));
  const size_t slack = static_cast<size_t>(tokens) % 2;
  const Tiles tiles(type, groups, cols, slack, random, extreme ? Quants::kExtreme : Quants::kRandom);
  ActTokens x(tokens, cols, slack);
  x.fill(random, extreme);
  const int width = groups * kLanes, stride = width + 5;
  const auto size = static_cast<size_t>((tokens - 1) * stride + width);
  const Guarded<float> want(size, slack), got(size, slack);
  product(scalar(), tiles, x.rows(), tokens, stride, want);
  for (int t = 0; t + 1 < tokens; ++t)
    for (int i = width; i < stride; ++i)
      CHECK(want[static_cast<size_t>(t * stride + i)] == kUntouched, type, groups, cols, tokens, t);
  for (const KernelTable* table : tables) {
    product(*table, tiles, x.rows(), tokens, stride, got);
    CHECK(same_bits(want.data(), got.data(), size), table->name, type, groups, cols, tokens, extreme);
  }
}

}  // namespace

TEST(kernels, matmul_is_the_same_on_every_isa) {
  const auto tables = vector_tables();
  for (const int type : kFileTypes)
    for (const bool extreme : {false, true})
      for (int tokens = 1; tokens <= 9; ++tokens) {
        const bool quantized = is_quantized(tile_kind(type));
        const int block = file_block(type).cols;
        for (const int cols : {32, 64, 96, 512})
          if (cols % block == 0) check_parity(tables, type, 1 + tokens % 3, cols, tokens, extreme);
        if (quantized && tokens == 9) {  // more than share one unpacking, and more blocks than fit a panel
          check_parity(tables, type, 1, block, 130, extreme);
          check_parity(tables, type, 1, (1056 + block - 1) / block * block, 71, extreme);
        }
        if (quantized || tokens > 5) continue;
        for (const int cols : {1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 63, 65, 257}) check_parity(tables, type, 2, cols, tokens, extreme);
      }
}

TEST(kernels, matmul_writes_nothing_for_no_rows_or_tokens) {
  Random random(1);
  const Tiles tiles(kFileQ4_1, 1, 32, 0, random, Quants::kRandom);
  ActTokens x(1, 32, 0);
  const Guarded<float> out(16);
  product(scalar(), tiles, x.rows(), 0, 16, out);
  CHECK(out[0] == kUntouched);
  std::fill(out.begin(), out.end(), kUntouched);
  scalar().matmul[1](tiles.bytes(), 0, 32, x.rows(), 1, out.data(), 16);
  CHECK(out[0] == kUntouched);
}

TEST(kernels, matmul_is_close_to_double_precision) {
  for (const int type : kFileTypes)
    for (const int cols : {32, 256, 576, 1536}) {
      if (cols % file_block(type).cols != 0) continue;
      Random random(static_cast<uint64_t>(type + cols));
      const Tiles tiles(type, 2, cols, 0, random, Quants::kRandom);
      ActTokens x(3, cols, 0);
      x.fill(random, false);
      const Guarded<float> out(3 * 32);
      product(scalar(), tiles, x.rows(), 3, 32, out);
      std::vector<float> weights(static_cast<size_t>(cols));
      for (int r = 0; r < 32; ++r) {
        dequantize_tile_row(tiles.kind, tiles.bytes() + static_cast<size_t>(r / kLanes) * group_bytes(tiles.kind, cols), cols, r % kLanes,
                            weights.data());
        for (int t = 0; t < 3; ++t) {
          double sum = 0.0, magnitude = 0.0;
          for (size_t i = 0; i < weights.size(); ++i) {
            const double input = is_quantized(tiles.kind) ? double{x[t].scale[i / kBlock]} * x[t].fixed(i) : double{x[t].f32[i]};
            sum += weights[i] * input;
            magnitude += std::fabs(weights[i] * input);
          }
          const double error = std::fabs(out[static_cast<size_t>(t * 32 + r)] - sum);
          CHECK(error <= 0x1p-22 * magnitude, type, cols, r, t, error / magnitude);
        }
      }
    }
}

TEST(kernels, matmul_of_a_token_does_not_depend_on_the_others) {
  std::vector<const KernelTable*> tables = vector_tables();
  tables.push_back(&scalar());
  for (const int type : kFileTypes) {
    Random random(static_cast<uint64_t>(type));
    constexpr int kTokens = 11, kCols = 256;  // single tokens, passes of several, and the panel of many
    const Tiles tiles(type, 3, kCols, 0, random, Quants::kRandom);
    ActTokens x(kTokens, kCols, 0);
    x.fill(random, false);
    const Guarded<float> alone(48), together(kTokens * 48), one_group(16);
    for (const KernelTable* table : tables) {
      for (int tokens = 1; tokens <= kTokens; ++tokens) {
        product(*table, tiles, x.rows(), tokens, 48, together);
        for (int t = 0; t < tokens; ++t) {
          product(*table, tiles, x.rows() + t, 1, 48, alone);
          CHECK(same_bits(alone.data(), together.data() + t * 48, 48), table->name, type, tokens, t);
        }
      }
      table->matmul[static_cast<int>(tiles.kind)](tiles.bytes() + 2 * group_bytes(tiles.kind, kCols), 1, kCols, x.rows(), 1, one_group.data(), 16);
      CHECK(same_bits(one_group.data(), together.data() + 32, 16), table->name, type);
    }
  }
}
