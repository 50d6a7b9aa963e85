// From the rows of a model file to tiles (kernels.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include <vector>

#include "kernels/kernels.h"
#include "model/config.h"
#include "model/file_types.h"

namespace ultrafast {

TileKind tile_kind(int file_type);  // file_type must be supported

// Rows [first, first + count) of a tensor: its own memory, or `scratch` filled from the file; nullptr if the file ends too
// early or cannot be read.
const uint8_t* read_rows(const FileTensor& tensor, int first, int count, std::vector<uint8_t>& scratch);

// Writes one row group as tiles from the `rows` <= 16 rows at `data`; rows past the end become zeros.
void repack_rows(int file_type, const uint8_t* data, int rows, int cols, uint8_t* tiles);

// Row 16 * g + lane of the group that starts at `tiles`, as f32 [cols]: exactly the values of dequantize_row.
void dequantize_tile_row(TileKind kind, const uint8_t* tiles, int cols, int lane, float* out);

}  // namespace ultrafast
