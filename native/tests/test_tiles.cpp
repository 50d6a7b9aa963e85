// Repacking loses nothing.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/check.h"
#include "tests/tensors.h"

using namespace ultrafast;
using namespace ultrafast::test;

TEST(kernels, tiles_hold_exactly_the_values_of_the_file) {
  for (const int type : kFileTypes)
    for (const int rows : {1, 15, 16, 17, 40})
      for (const int cols : {32, 96, 7, 41}) {
        if (is_quantized(tile_kind(type)) && cols % kBlock != 0) continue;
        Random random(static_cast<uint64_t>(type * 100 + rows + cols));
        const std::vector<uint8_t> file = random_tensor(type, rows, cols, 1.0f, random);
        const int groups = (rows + kLanes - 1) / kLanes;
        std::vector<uint8_t> tiles(group_bytes(tile_kind(type), cols));
        std::vector<float> want(static_cast<size_t>(cols)), got(want);
        for (int g = 0; g < groups; ++g) {
          std::memset(tiles.data(), 0xa5, tiles.size());
          repack_rows(type, file.data() + static_cast<size_t>(g) * kLanes * file_row_bytes(type, cols), std::min(kLanes, rows - g * kLanes), cols,
                      tiles.data());
          for (int lane = 0; lane < kLanes; ++lane) {
            const int row = g * kLanes + lane;
            dequantize_tile_row(tile_kind(type), tiles.data(), cols, lane, got.data());
            if (row < rows) dequantize_row(type, file.data() + static_cast<size_t>(row) * file_row_bytes(type, cols), cols, want.data());
            if (row == rows) std::fill(want.begin(), want.end(), 0.0f);
            for (size_t i = 0; i < want.size(); ++i) CHECK(want[i] == got[i], type, rows, cols, row, i, want[i], got[i]);
          }
        }
      }
}

TEST(kernels, rows_are_read_from_an_open_file_until_it_ends) {
  std::FILE* file = std::tmpfile();
  const std::vector<uint8_t> bytes = {9, 9, 9, 1, 2, 3, 4, 5, 6, 7, 8};  // three of something else, then 2 x 2 halves
  std::fwrite(bytes.data(), 1, bytes.size(), file);
  std::fflush(file);
  FileTensor tensor{kFileF16, 2, 2};
  tensor.fd = fileno(file);
  tensor.offset = 3;
  std::vector<uint8_t> scratch;
  const uint8_t* rows = read_rows(tensor, 0, 2, scratch);
  CHECK(rows != nullptr && std::equal(rows, rows + 8, bytes.data() + 3));
  rows = read_rows(tensor, 1, 1, scratch);
  CHECK(rows != nullptr && std::equal(rows, rows + 4, bytes.data() + 7));
  CHECK(ftruncate(tensor.fd, 10) == 0);
  CHECK(read_rows(tensor, 0, 1, scratch) != nullptr);
  CHECK(read_rows(tensor, 1, 1, scratch) == nullptr);
  std::fclose(file);
  CHECK(read_rows(tensor, 0, 1, scratch) == nullptr);
}

// One block by hand: scale 0.5, quants counting up, as the format documents them.
TEST(kernels, blocks_dequantize_as_the_format_defines) {
  uint8_t q4_0[18], q4_1[20], q8_0[34];
  float out[32];
  put_f16(q4_0, 0.5f);
  put_f16(q4_1, 0.5f);
  put_f16(q4_1 + 2, -3.0f);
  put_f16(q8_0, 0.5f);
  for (int i = 0; i < 16; ++i) q4_0[2 + i] = q4_1[4 + i] = static_cast<uint8_t>(i | (15 - i) << 4);
  for (int i = 0; i < 32; ++i) q8_0[2 + i] = static_cast<uint8_t>(i * 8 - 128);
  dequantize_row(kFileQ4_0, q4_0, 32, out);
  for (int i = 0; i < 16; ++i) CHECK(out[i] == 0.5f * static_cast<float>(i - 8) && out[i + 16] == 0.5f * static_cast<float>(7 - i), i);
  dequantize_row(kFileQ4_1, q4_1, 32, out);
  for (int i = 0; i < 16; ++i) CHECK(out[i] == 0.5f * static_cast<float>(i) - 3.0f && out[i + 16] == 0.5f * static_cast<float>(15 - i) - 3.0f, i);
  dequantize_row(kFileQ8_0, q8_0, 32, out);
  for (int i = 0; i < 32; ++i) CHECK(out[i] == 0.5f * static_cast<float>(i * 8 - 128), i);
}

TEST(kernels, only_the_documented_types_are_supported) {
  int supported = 0;
  for (int type = -1; type < 64; ++type) supported += is_supported_type(type);
  CHECK(supported == 6, supported);
  for (size_t i = 0; i < std::size(kFileTypes); ++i) CHECK(is_supported_type(kFileTypes[i]) && static_cast<size_t>(tile_kind(kFileTypes[i])) == i, i);
}
