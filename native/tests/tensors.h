// Random tensors as a model file stores them.
#pragma once

#include <cstring>
#include <vector>

#include "model/tiles.h"
#include "tests/random.h"

namespace ultrafast::test {

constexpr int kFileTypes[] = {kFileQ4_0, kFileQ4_1, kFileQ5_0,  kFileQ5_1,  kFileQ8_0, kFileQ4_K,
                              kFileQ5_K, kFileQ6_K, kFileF16, kFileBF16, kFileF32};  // in the order of TileKind

enum class Quants { kRandom, kExtreme };  // kExtreme: only the lowest and the highest

inline void put_f16(uint8_t* p, float value) {
  const uint16_t half = f32_to_f16(value);
  std::memcpy(p, &half, 2);
}

inline uint8_t random_byte(Random& random, Quants quants) {
  if (quants == Quants::kRandom) return static_cast<uint8_t>(random.bits());
  constexpr uint8_t kCorners[] = {0x00, 0x0f, 0xf0, 0xff, 0x80, 0x7f};
  return kCorners[random.below(6)];
}

// Gives a block of random bytes f16 factors that make its weights about `size`; where there is a minimum, their mean is near
// 0, or off it by `shift` steps.
inline void put_factors(int type, uint8_t* block, float size, float shift) {
  switch (type) {  // the deviation of a random quant: (2^bits)/sqrt(12); random six-bit scales average 31.5, signed bytes 74 from 0
    case kFileQ4_0: return put_f16(block, size / 4.6f);
    case kFileQ5_0: return put_f16(block, size / 9.2f);
    case kFileQ8_0: return put_f16(block, size / 74.0f);
    case kFileQ6_K: return put_f16(block + kScalesOfQ6_K + 16, size / (18.5f * 74.0f));
    case kFileQ4_1:
      put_f16(block, size / 4.6f);
      return put_f16(block + 2, size / 4.6f * (shift - 7.5f));
    case kFileQ5_1:
      put_f16(block, size / 9.2f);
      return put_f16(block + 2, size / 9.2f * (shift - 15.5f));
    default: {
      const bool four = type == kFileQ4_K;
      const float step = size / (four ? 31.5f * 4.6f : 31.5f * 9.2f);
      put_f16(block, step);
      put_f16(block + 2, step * (four ? 7.5f : 15.5f));
    }
  }
}

// rows x cols weights of about `size`; quantised ones have a scale, and a minimum, of their own in every block.
inline std::vector<uint8_t> random_tensor(int type, int rows, int cols, float size, Random& random, Quants quants = Quants::kRandom) {
  std::vector<uint8_t> data(static_cast<size_t>(rows) * file_row_bytes(type, cols));
  uint8_t* p = data.data();
  if (!is_quantized(tile_kind(type))) {
    for (int i = 0; i < rows * cols; ++i) {
      const float value = size * random.normal();
      if (type == kFileF16) put_f16(p, value);
      if (type == kFileBF16) std::memcpy(p, reinterpret_cast<const uint8_t*>(&value) + 2, 2);
      if (type == kFileF32) std::memcpy(p, &value, 4);
      p += type == kFileF32 ? 4 : 2;
    }
    return data;
  }
  const FileBlock block = file_block(type);
  for (int b = 0; b < rows * cols / block.cols; ++b, p += block.bytes) {
    for (size_t i = 0; i < block.bytes; ++i) p[i] = random_byte(random, quants);
    put_factors(type, p, size * static_cast<float>(0.5 + random.uniform()), random.normal());
  }
  return data;
}

}  // namespace ultrafast::test
