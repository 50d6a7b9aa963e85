#include "model/tiles.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "kernels/f16.h"

namespace ultrafast {

namespace {

// ---- one row's 32 quants in a block of 16 rows, laid out as kernels.h says ----

constexpr int kNibbles = 256, kFifthBits = 64, kUpperBits = 128;  // bytes

void place_nibbles(const uint8_t* quants, int lane, uint8_t* block) {
  for (int i = 0; i < 16; ++i)
    block[64 * (i / 4) + 4 * lane + i % 4] = static_cast<uint8_t>((quants[i] & 15) | (quants[16 + i] & 15) << 4);
}

void place_fifth_bits(const uint8_t* quants, int lane, uint8_t* bits) {
  for (int c = 0; c < 4; ++c) {
    int byte = 0;
    for (int k = 0; k < 8; ++k) byte |= (quants[4 * k + c] >> 4 & 1) << k;
    bits[4 * lane + c] = static_cast<uint8_t>(byte);
  }
}

void place_upper_bits(const uint8_t* quants, int lane, uint8_t* bits) {
  for (int half = 0; half < 2; ++half)
    for (int c = 0; c < 4; ++c) {
      int byte = 0;
      for (int k = 0; k < 4; ++k) byte |= (quants[16 * half + 4 * k + c] >> 4 & 3) << 2 * k;
      bits[64 * half + 4 * lane + c] = static_cast<uint8_t>(byte);
    }
}

int nibble_at(const uint8_t* block, int lane, int i) {
  const uint8_t both = block[64 * (i % 16 / 4) + 4 * lane + i % 4];
  return i < 16 ? both & 15 : both >> 4;
}

int five_bits_at(const uint8_t* block, int lane, int i) {
  return nibble_at(block, lane, i) | (block[kNibbles + 4 * lane + i % 4] >> i / 4 & 1) << 4;
}

int six_bits_at(const uint8_t* block, int lane, int i) {
  return nibble_at(block, lane, i) | (block[kNibbles + 64 * (i / 16) + 4 * lane + i % 4] >> i % 16 / 4 * 2 & 3) << 4;
}

void place_f16(const uint8_t* value, int lane, uint8_t* array) { std::memcpy(array + 2 * lane, value, 2); }

float f16_of(const uint8_t* array, int lane) { return f16_to_f32(load_u16(array + 2 * lane)); }

// ---- one row's block of the file into a tile ----

void repack_block(int type, const uint8_t* block, int lane, uint8_t* tile) {
  uint8_t quants[kBlock];
  unpack_quants(type, block, 0, quants);
  if (type == kFileQ8_0) {
    for (int i = 0; i < kBlock; ++i) tile[64 * (i / 4) + 4 * lane + i % 4] = quants[i];
    place_f16(block, lane, tile + 512);
    return;
  }
  place_nibbles(quants, lane, tile);
  uint8_t* scales = tile + kNibbles;
  if (type == kFileQ5_0 || type == kFileQ5_1) {
    place_fifth_bits(quants, lane, scales);
    scales += kFifthBits;
  }
  place_f16(block, lane, scales);
  if (type == kFileQ4_1 || type == kFileQ5_1) place_f16(block + 2, lane, scales + 32);
}

void repack_super_block(int type, const uint8_t* block, int lane, uint8_t* tile) {
  const uint8_t* scales_of_q6_k = block + kScalesOfQ6_K;
  if (type == kFileQ6_K) {
    place_f16(scales_of_q6_k + 16, lane, tile);
    tile += 32;
  } else {
    place_f16(block, lane, tile);
    place_f16(block + 2, lane, tile + 32);
    tile += 64;
  }
  for (int part = 0; part < kSuperBlock / kBlock; ++part) {
    uint8_t quants[kBlock];
    unpack_quants(type, block, part, quants);
    place_nibbles(quants, lane, tile);
    tile += kNibbles;
    if (type == kFileQ6_K) {
      place_upper_bits(quants, lane, tile);
      tile += kUpperBits;
      tile[lane] = scales_of_q6_k[2 * part];
      tile[16 + lane] = scales_of_q6_k[2 * part + 1];
    } else {
      if (type == kFileQ5_K) {
        place_fifth_bits(quants, lane, tile);
        tile += kFifthBits;
      }
      const ScaleMinimum six_bits = unpack_scale_minimum(block, part);
      tile[lane] = six_bits.scale;
      tile[16 + lane] = six_bits.minimum;
    }
    tile += 32;
  }
}

void repack_row(int type, const uint8_t* row, int cols, int lane, uint8_t* tiles) {
  const TileKind kind = tile_kind(type);
  const FileBlock block = file_block(type);
  if (!is_quantized(kind)) {
    for (int i = 0; i < cols; ++i) std::memcpy(tiles + (static_cast<size_t>(i) * kLanes + lane) * block.bytes, row + i * block.bytes, block.bytes);
    return;
  }
  const auto repack = block.cols == kSuperBlock ? repack_super_block : repack_block;
  for (int b = 0; b < cols / block.cols; ++b, row += block.bytes, tiles += tile_bytes(kind)) repack(type, row, lane, tiles);
}

// The value of input i of a tile.
float weight_at(TileKind kind, const uint8_t* tile, int lane, int i) {
  const auto quant = [](int q) { return static_cast<float>(q); };
  // Within tiles of eight blocks: the block, and the input in it.
  const int b = i / kBlock, c = i % kBlock;
  switch (kind) {
    case TileKind::kQ4_0: return f16_of(tile + 256, lane) * quant(nibble_at(tile, lane, i) - 8);
    case TileKind::kQ4_1: return f16_of(tile + 256, lane) * quant(nibble_at(tile, lane, i)) + f16_of(tile + 288, lane);
    case TileKind::kQ5_0: return f16_of(tile + 320, lane) * quant(five_bits_at(tile, lane, i) - 16);
    case TileKind::kQ5_1: return f16_of(tile + 320, lane) * quant(five_bits_at(tile, lane, i)) + f16_of(tile + 352, lane);
    case TileKind::kQ8_0: return f16_of(tile + 512, lane) * quant(tile[64 * (i / 4) + 4 * lane + i % 4] - 128);
    case TileKind::kQ4_K: {
      const uint8_t* block = tile + 64 + b * (kNibbles + 32);
      const uint8_t* scales = block + kNibbles + lane;
      return f16_of(tile, lane) * scales[0] * quant(nibble_at(block, lane, c)) - f16_of(tile + 32, lane) * scales[16];
    }
    case TileKind::kQ5_K: {
      const uint8_t* block = tile + 64 + b * (kNibbles + kFifthBits + 32);
      const uint8_t* scales = block + kNibbles + kFifthBits + lane;
      return f16_of(tile, lane) * scales[0] * quant(five_bits_at(block, lane, c)) - f16_of(tile + 32, lane) * scales[16];
    }
    case TileKind::kQ6_K: {
      const uint8_t* block = tile + 32 + b * (kNibbles + kUpperBits + 32);
      const auto scale = static_cast<int8_t>(block[kNibbles + kUpperBits + c / 16 * 16 + lane]);
      return f16_of(tile, lane) * scale * quant(six_bits_at(block, lane, c) - 32);
    }
    case TileKind::kF16: return f16_of(tile + i * kLanes * 2, lane);
    case TileKind::kBF16: return bf16_to_f32(load_u16(tile + (i * kLanes + lane) * 2));
    case TileKind::kF32: break;
  }
  float value;
  std::memcpy(&value, tile + (i * kLanes + lane) * 4, 4);
  return value;
}

}  // namespace

TileKind tile_kind(int type) {
  switch (type) {
    case kFileQ4_0: return TileKind::kQ4_0;
    case kFileQ4_1: return TileKind::kQ4_1;
    case kFileQ5_0: return TileKind::kQ5_0;
    case kFileQ5_1: return TileKind::kQ5_1;
    case kFileQ8_0: return TileKind::kQ8_0;
    case kFileQ4_K: return TileKind::kQ4_K;
    case kFileQ5_K: return TileKind::kQ5_K;
    case kFileQ6_K: return TileKind::kQ6_K;
    case kFileF16: return TileKind::kF16;
    case kFileBF16: return TileKind::kBF16;
    default: return TileKind::kF32;
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
  for (int i = 0; i < cols; ++i)
    out[i] = weight_at(kind, tiles + static_cast<size_t>(i / tile_cols(kind)) * tile_bytes(kind), lane, i % tile_cols(kind));
}

}  // namespace ultrafast
