// From the tensor types of the file to tiles (kernels.h) and to plain f32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

namespace ultrafast {

// ggml type ids of the file format.
enum FileType : int { kFileF32 = 0, kFileF16 = 1, kFileQ4_0 = 2, kFileQ4_1 = 3, kFileQ8_0 = 8, kFileBF16 = 30 };

bool is_supported_type(int file_type);
TileKind tile_kind(int file_type);                     // file_type must be supported
size_t file_row_bytes(int file_type, int cols);        // bytes of one row; quantised types need cols % 32 == 0

// Writes row group `group` (rows 16 * group ...) of a file tensor as tiles; rows past the end become zeros.
void repack_group(int file_type, const uint8_t* data, int rows, int cols, int group, uint8_t* tiles);

// Row 16 * g + lane of the group that starts at `tiles`, as f32 [cols]: exactly the values of dequantize_row.
void dequantize_tile_row(TileKind kind, const uint8_t* tiles, int cols, int lane, float* out);

// One row of a file tensor as f32 [cols], as the format's reference defines it.
void dequantize_row(int file_type, const uint8_t* row, int cols, float* out);

}  // namespace ultrafast
