// The tensor types of the model file: their blocks, and their values as f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ultrafast {

// ggml type ids of the file format.
enum FileType : int {
  kFileF32 = 0,
  kFileF16 = 1,
  kFileQ4_0 = 2,
  kFileQ4_1 = 3,
  kFileQ5_0 = 6,
  kFileQ5_1 = 7,
  kFileQ8_0 = 8,
  kFileQ4_K = 12,
  kFileQ5_K = 13,
  kFileQ6_K = 14,
  kFileBF16 = 30,
};

struct FileBlock {
  int cols;  // elements; a row has whole blocks. 0: the type is not supported
  size_t bytes;
};
FileBlock file_block(int file_type);

inline bool is_supported_type(int file_type) { return file_block(file_type).cols != 0; }

// The rest is for supported types.
size_t file_row_bytes(int file_type, int cols);

// One row of a file tensor as f32 [cols], as the format's reference defines it.
void dequantize_row(int file_type, const uint8_t* row, int cols, float* out);

// ---- inside a block of a quantised type ----

// The 32 unsigned integers of inputs [32 * part, 32 * part + 32): what the type's formula subtracts is not subtracted yet.
void unpack_quants(int file_type, const uint8_t* block, int part, uint8_t* quants);

// Q4_K and Q5_K: the six-bit scale and minimum of a part.
struct ScaleMinimum {
  uint8_t scale, minimum;
};
ScaleMinimum unpack_scale_minimum(const uint8_t* block, int part);

// Q6_K: where the scales (i8, one per 16 inputs) and then the f16 factor lie.
constexpr size_t kScalesOfQ6_K = 128 + 64;

inline uint16_t load_u16(const uint8_t* p) {
  uint16_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

}  // namespace ultrafast
