#include "model/file_types.h"

#include "kernels/f16.h"
#include "kernels/kernels.h"

namespace ultrafast {

namespace {

float f16_at(const uint8_t* p) { return f16_to_f32(load_u16(p)); }

// Two rows of 16 nibbles: input i in the low half of byte i, input i + 16 in the high half.
void unpack_nibbles(const uint8_t* packed, uint8_t* quants) {
  for (int i = 0; i < 16; ++i) {
    quants[i] = packed[i] & 15;
    quants[16 + i] = packed[i] >> 4;
  }
}

// Bit i of 32 is the fifth bit of input i.
void add_fifth_bits(const uint8_t* packed, uint8_t* quants) {
  for (int i = 0; i < kBlock; ++i) quants[i] = static_cast<uint8_t>(quants[i] | (packed[i / 8] >> i % 8 & 1) << 4);
}

void dequantize_part(int type, const uint8_t* block, int part, float* out) {
  uint8_t quants[kBlock];
  unpack_quants(type, block, part, quants);
  const auto affine = [&](float scale, int offset, float minimum) {
    for (int i = 0; i < kBlock; ++i) out[i] = scale * static_cast<float>(quants[i] - offset) + minimum;
  };
  const auto centered = [&](float scale, int offset, int first, int count) {
    for (int i = first; i < first + count; ++i) out[i] = scale * static_cast<float>(quants[i] - offset);
  };
  switch (type) {
    case kFileQ4_0: return centered(f16_at(block), 8, 0, kBlock);
    case kFileQ5_0: return centered(f16_at(block), 16, 0, kBlock);
    case kFileQ8_0: return centered(f16_at(block), 128, 0, kBlock);
    case kFileQ4_K:
    case kFileQ5_K: {
      const ScaleMinimum six_bits = unpack_scale_minimum(block, part);
      return affine(f16_at(block) * six_bits.scale, 0, -(f16_at(block + 2) * six_bits.minimum));
    }
    case kFileQ6_K: {
      const uint8_t* scales = block + kScalesOfQ6_K;
      for (int half = 0; half < 2; ++half)
        centered(f16_at(scales + 16) * static_cast<int8_t>(scales[2 * part + half]), 32, 16 * half, 16);
      return;
    }
    default: return affine(f16_at(block), 0, f16_at(block + 2));  // Q4_1, Q5_1
  }
}

}  // namespace

FileBlock file_block(int type) {
  switch (type) {
    case kFileF32: return {1, 4};
    case kFileF16:
    case kFileBF16: return {1, 2};
    case kFileQ4_0: return {kBlock, 2 + 16};
    case kFileQ4_1: return {kBlock, 4 + 16};
    case kFileQ5_0: return {kBlock, 2 + 4 + 16};
    case kFileQ5_1: return {kBlock, 4 + 4 + 16};
    case kFileQ8_0: return {kBlock, 2 + 32};
    case kFileQ4_K: return {kSuperBlock, 4 + 12 + 128};
    case kFileQ5_K: return {kSuperBlock, 4 + 12 + 32 + 128};
    case kFileQ6_K: return {kSuperBlock, kScalesOfQ6_K + 16 + 2};
    default: return {0, 0};
  }
}

size_t file_row_bytes(int type, int cols) {
  const FileBlock block = file_block(type);
  return static_cast<size_t>(cols / block.cols) * block.bytes;
}

void unpack_quants(int type, const uint8_t* block, int part, uint8_t* quants) {
  switch (type) {
    case kFileQ4_0: return unpack_nibbles(block + 2, quants);
    case kFileQ4_1: return unpack_nibbles(block + 4, quants);
    case kFileQ5_0: unpack_nibbles(block + 6, quants); return add_fifth_bits(block + 2, quants);
    case kFileQ5_1: unpack_nibbles(block + 8, quants); return add_fifth_bits(block + 4, quants);
    case kFileQ8_0:
      for (int i = 0; i < kBlock; ++i) quants[i] = block[2 + i] ^ 0x80;  // a signed byte plus 128
      return;
    case kFileQ4_K:
    case kFileQ5_K: {  // 32 bytes hold two parts, the first in the low halves
      const uint8_t* fifth = block + 16;
      const uint8_t* packed = block + (type == kFileQ4_K ? 16 : 48) + part / 2 * 32;
      for (int i = 0; i < kBlock; ++i) quants[i] = packed[i] >> part % 2 * 4 & 15;
      if (type == kFileQ5_K)
        for (int i = 0; i < kBlock; ++i) quants[i] = static_cast<uint8_t>(quants[i] | (fifth[i] >> part & 1) << 4);
      return;
    }
    case kFileQ6_K: {  // each half of the block: 64 bytes hold parts 0 and 1 in the low halves, 2 and 3 in the high ones
      const int half = part / 4, k = part % 4;
      const uint8_t* packed = block + half * 64 + k % 2 * 32;
      const uint8_t* upper = block + 128 + half * 32;
      for (int i = 0; i < kBlock; ++i)
        quants[i] = static_cast<uint8_t>((packed[i] >> k / 2 * 4 & 15) | (upper[i] >> 2 * k & 3) << 4);
      return;
    }
    default: return;
  }
}

// Twelve bytes: the lower six bits of bytes 0-3 and 4-7 are scales and minima of parts 0-3; their upper two bits lead those
// of parts 4-7, whose lower four bits are the halves of bytes 8-11.
ScaleMinimum unpack_scale_minimum(const uint8_t* block, int part) {
  const uint8_t* scales = block + 4;
  if (part < 4) return {static_cast<uint8_t>(scales[part] & 63), static_cast<uint8_t>(scales[part + 4] & 63)};
  return {static_cast<uint8_t>((scales[part + 4] & 15) | (scales[part - 4] >> 6) << 4),
          static_cast<uint8_t>(scales[part + 4] >> 4 | (scales[part] >> 6) << 4)};
}

void dequantize_row(int type, const uint8_t* row, int cols, float* out) {
  switch (type) {
    case kFileF32: std::memcpy(out, row, static_cast<size_t>(cols) * 4); return;
    case kFileF16:
      for (int i = 0; i < cols; ++i) out[i] = f16_at(row + 2 * i);
      return;
    case kFileBF16:
      for (int i = 0; i < cols; ++i) out[i] = bf16_to_f32(load_u16(row + 2 * i));
      return;
    default: break;
  }
  const FileBlock block = file_block(type);
  for (int b = 0; b < cols / block.cols; ++b, row += block.bytes)
    for (int part = 0; part < block.cols / kBlock; ++part, out += kBlock) dequantize_part(type, row, part, out);
}

}  // namespace ultrafast
