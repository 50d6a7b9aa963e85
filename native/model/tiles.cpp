#include "model/tiles.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "kernels/f16.h"

namespace ultrafast {

namespace {

// Blocks of 32 values as the file stores them: f16 scale (, f16 minimum), then the quants.
constexpr size_t kBlockBytesQ4_0 = 2 + 16;
constexpr size_t kBlockBytesQ4_1 = 4 + 16;
constexpr size_t kBlockBytesQ8_0 = 2 + 32;

uint16_t load_u16(const uint8_t* p) {
  uint16_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// Both the file's nibble blocks and ours keep input i in the low half and input i + 16 in the high half of a byte.
void place_nibbles(const uint8_t* quants, int lane, uint8_t* tile) {
  for (int j = 0; j < 4; ++j) std::memcpy(tile + 64 * j + 4 * lane, quants + 4 * j, 4);
}

void place_f16(const uint8_t* value, int lane, uint8_t* array) { std::memcpy(array + 2 * lane, value, 2); }

void repack_row(int type, const uint8_t* row, int cols, int lane, uint8_t* tiles) {
  const int blocks = cols / kBlock;
  switch (type) {
    case kFileQ4_0:
      for (int b = 0; b < blocks; ++b, row += kBlockBytesQ4_0, tiles += 288) {
        place_nibbles(row + 2, lane, tiles);
        place_f16(row, lane, tiles + 256);
      }
      break;
    case kFileQ4_1:
      for (int b = 0; b < blocks; ++b, row += kBlockBytesQ4_1, tiles += 320) {
        place_nibbles(row + 4, lane, tiles);
        place_f16(row, lane, tiles + 256);
        place_f16(row + 2, lane, tiles + 288);
      }
      break;
    case kFileQ8_0:
      for (int b = 0; b < blocks; ++b, row += kBlockBytesQ8_0, tiles += 544) {
        for (int i = 0; i < 32; ++i) tiles[64 * (i / 4) + 4 * lane + i % 4] = static_cast<uint8_t>(row[2 + i] ^ 0x80);  // + 128
        place_f16(row, lane, tiles + 512);
      }
      break;
    default: {
      const size_t size = type == kFileF32 ? 4 : 2;
      for (int i = 0; i < cols; ++i) std::memcpy(tiles + (static_cast<size_t>(i) * kLanes + lane) * size, row + i * size, size);
    }
  }
}

}  // namespace

bool is_supported_type(int type) {
  return type == kFileF32 || type == kFileF16 || type == kFileBF16 || type == kFileQ4_0 || type == kFileQ4_1 || type == kFileQ8_0;
}

TileKind tile_kind(int type) {
  switch (type) {
    case kFileQ4_0: return TileKind::kQ4_0;
    case kFileQ4_1: return TileKind::kQ4_1;
    case kFileQ8_0: return TileKind::kQ8_0;
    case kFileF16: return TileKind::kF16;
    case kFileBF16: return TileKind::kBF16;
    default: return TileKind::kF32;
  }
}

size_t file_row_bytes(int type, int cols) {
  const auto n = static_cast<size_t>(cols);
  switch (type) {
    case kFileQ4_0: return n / kBlock * kBlockBytesQ4_0;
    case kFileQ4_1: return n / kBlock * kBlockBytesQ4_1;
    case kFileQ8_0: return n / kBlock * kBlockBytesQ8_0;
    case kFileF32: return n * 4;
    default: return n * 2;
  }
}

const uint8_t* read_rows(const FileTensor& tensor, int first, int count, std::vector<uint8_t>& scratch) {
  const size_t row_bytes = file_row_bytes(tensor.type, tensor.cols);
  const size_t start = row_bytes * static_cast<size_t>(first), size = row_bytes * static_cast<size_t>(count);
  if (tensor.data != nullptr) return tensor.data + start;
  scratch.resize(size);
  for (size_t done = 0; done < size;) {
    const ssize_t got = pread(tensor.fd, scratch.data() + done, size - done, tensor.offset + static_cast<int64_t>(start + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return nullptr;
    done += static_cast<size_t>(got);
  }
  return scratch.data();
}

void repack_rows(int type, const uint8_t* data, int rows, int cols, uint8_t* tiles) {
  if (rows < kLanes) std::memset(tiles, 0, group_bytes(tile_kind(type), cols));
  for (int lane = 0; lane < rows; ++lane) repack_row(type, data + static_cast<size_t>(lane) * file_row_bytes(type, cols), cols, lane, tiles);
}

void dequantize_tile_row(TileKind kind, const uint8_t* tiles, int cols, int lane, float* out) {
  const size_t tile_bytes = group_bytes(kind, kBlock);
  for (int i = 0; i < cols; ++i) {
    const int c = i % kBlock;
    const uint8_t* tile = tiles + static_cast<size_t>(i / kBlock) * tile_bytes;
    const uint8_t nibbles = tile[64 * (c % 16 / 4) + 4 * lane + c % 4];
    const int nibble = c < 16 ? nibbles & 15 : nibbles >> 4;
    switch (kind) {
      case TileKind::kQ4_0: out[i] = f16_to_f32(load_u16(tile + 256 + 2 * lane)) * static_cast<float>(nibble - 8); break;
      case TileKind::kQ4_1:
        out[i] = f16_to_f32(load_u16(tile + 256 + 2 * lane)) * static_cast<float>(nibble) + f16_to_f32(load_u16(tile + 288 + 2 * lane));
        break;
      case TileKind::kQ8_0:
        out[i] = f16_to_f32(load_u16(tile + 512 + 2 * lane)) * static_cast<float>(tile[64 * (c / 4) + 4 * lane + c % 4] - 128);
        break;
      case TileKind::kF16: out[i] = f16_to_f32(load_u16(tile + (c * kLanes + lane) * 2)); break;
      case TileKind::kBF16: out[i] = bf16_to_f32(load_u16(tile + (c * kLanes + lane) * 2)); break;
      case TileKind::kF32: std::memcpy(out + i, tile + (c * kLanes + lane) * 4, 4); break;
    }
  }
}

void dequantize_row(int type, const uint8_t* row, int cols, float* out) {
  switch (type) {
    case kFileF32: std::memcpy(out, row, static_cast<size_t>(cols) * 4); return;
    case kFileF16:
      for (int i = 0; i < cols; ++i) out[i] = f16_to_f32(load_u16(row + 2 * i));
      return;
    case kFileBF16:
      for (int i = 0; i < cols; ++i) out[i] = bf16_to_f32(load_u16(row + 2 * i));
      return;
    case kFileQ8_0:
      for (int b = 0; b < cols / kBlock; ++b, row += kBlockBytesQ8_0)
        for (int i = 0; i < kBlock; ++i)
          *out++ = f16_to_f32(load_u16(row)) * static_cast<float>(static_cast<int8_t>(row[2 + i]));
      return;
    default: break;
  }
  const bool has_minimum = type == kFileQ4_1;
  for (int b = 0; b < cols / kBlock; ++b, out += kBlock) {
    const float scale = f16_to_f32(load_u16(row));
    const float minimum = has_minimum ? f16_to_f32(load_u16(row + 2)) : 0.0f;
    const uint8_t* quants = row + (has_minimum ? 4 : 2);
    for (int i = 0; i < 16; ++i) {
      const int low = quants[i] & 15, high = quants[i] >> 4;
      out[i] = has_minimum ? scale * static_cast<float>(low) + minimum : scale * static_cast<float>(low - 8);
      out[i + 16] = has_minimum ? scale * static_cast<float>(high) + minimum : scale * static_cast<float>(high - 8);
    }
    row += has_minimum ? kBlockBytesQ4_1 : kBlockBytesQ4_0;
  }
}

}  // namespace ultrafast
