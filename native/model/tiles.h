// From the tensor types of the file to tiles (kernels.h) and to plain f32.
#pragma once

#include <cstddef>
#include <cstdint>

#include <vector>

#include "kernels/kernels.h"
#include "model/config.h"

namespace ultrafast {

// ggml type ids of the file format.
enum FileType : int { kFileF32 = 0, kFileF16 = 1, kFileQ4_0 = 2, kFileQ4_1 = 3, kFileQ8_0 = 8, kFileBF16 = 30 };

bool is_supported_type(int file_type);
TileKind tile_kind(int file_type);                     // file_type must be supported
size_t file_row_bytes(int file_type, int cols);        // bytes of one row; quantised types need cols % 32 == 0

// Rows [first, first + count) of a tensor: its own memory, or `scratch` filled from the file; nullptr if the file ends too
// early or cannot be read.
const uint8_t* read_rows(const FileTensor& tensor, int first, int count, std::vector<uint8_t>& scratch);

// Writes one row group as tiles from the `rows` <= 16 rows at `data`; rows past the end become zeros.
void repack_rows(int file_type, const uint8_t* data, int rows, int cols, uint8_t* tiles);

// Row 16 * g + lane of the group that starts at `tiles`, as f32 [cols]: exactly the values of dequantize_row.
void dequantize_tile_row(TileKind kind, const uint8_t* tiles, int cols, int lane, float* out);

// One row of a file tensor as f32 [cols], as the format's reference defines it.
void dequantize_row(int file_type, const uint8_t* row, int cols, float* out);

}  // namespace ultrafast
