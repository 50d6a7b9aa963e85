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
      for (const int cols : {32, 96, 256, 768, 7, 41}) {
        if (cols % file_block(type).cols != 0) continue;
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

// Five bits: the fifth comes after the factors. One part of each K format by hand, all other bytes of the block being zero.
TEST(kernels, five_and_six_bit_blocks_dequantize_as_the_format_defines) {
  uint8_t q5_0[22] = {}, q5_1[24] = {};
  float out[256];
  put_f16(q5_0, 0.5f);
  put_f16(q5_1, 0.5f);
  put_f16(q5_1 + 2, -3.0f);
  q5_0[2 + 2] = q5_1[4 + 2] = 0x10;      // the fifth bit of input 20
  q5_0[6 + 4] = q5_1[8 + 4] = 0x73;      // inputs 4 and 20
  dequantize_row(kFileQ5_0, q5_0, 32, out);
  CHECK(out[4] == 0.5f * (3 - 16) && out[20] == 0.5f * (16 + 7 - 16) && out[3] == 0.5f * -16, out[4], out[20], out[3]);
  dequantize_row(kFileQ5_1, q5_1, 32, out);
  CHECK(out[4] == 0.5f * 3 - 3 && out[20] == 0.5f * (16 + 7) - 3 && out[3] == -3, out[4], out[20], out[3]);

  uint8_t q4_k[144] = {}, q5_k[176] = {}, q6_k[210] = {};
  for (uint8_t* block : {q4_k, q5_k}) {
    put_f16(block, 0.5f);
    put_f16(block + 2, 0.25f);
    block[4 + 5] = 0x80 | 7;   // minimum of part 1; upper bits of the minimum of part 5
    block[4 + 1] = 0x40 | 33;  // scale of part 1; upper bits of the scale of part 5
    block[4 + 9] = 0x21;       // lower bits of both of part 5
  }
  q4_k[16 + 3] = q5_k[48 + 3] = 0x90;            // part 1, input 3
  q4_k[16 + 64 + 31] = q5_k[48 + 64 + 31] = 0xa0;  // part 5, input 31
  q5_k[16 + 31] = 0x20;                          // its fifth bit
  dequantize_row(kFileQ4_K, q4_k, 256, out);
  CHECK(out[35] == 0.5f * 33 * 9 - 0.25f * 7 && out[36] == -0.25f * 7 && out[191] == 0.5f * 17 * 10 - 0.25f * 34 && out[0] == 0);
  dequantize_row(kFileQ5_K, q5_k, 256, out);
  CHECK(out[35] == 0.5f * 33 * 9 - 0.25f * 7 && out[36] == -0.25f * 7 && out[191] == 0.5f * 17 * 26 - 0.25f * 34 && out[0] == 0);

  put_f16(q6_k + 208, 0.5f);
  q6_k[192 + 13] = 0xfd;        // -3: inputs 208 ... 223
  q6_k[64 + 16] = 0x0b << 4;    // part 6 is the high half of the second half's first 32 bytes
  q6_k[128 + 32 + 16] = 2 << 4; // its upper bits
  dequantize_row(kFileQ6_K, q6_k, 256, out);
  CHECK(out[208] == 0.5f * -3 * (32 + 11 - 32) && out[209] == 0.5f * -3 * -32 && out[207] == 0, out[208], out[209], out[207]);
}

TEST(kernels, only_the_documented_types_are_supported) {
  int supported = 0;
  for (int type = -1; type < 64; ++type) supported += is_supported_type(type);
  CHECK(supported == kNumTileKinds, supported);
  for (size_t i = 0; i < std::size(kFileTypes); ++i) CHECK(is_supported_type(kFileTypes[i]) && static_cast<size_t>(tile_kind(kFileTypes[i])) == i, i);
}
