// Random tensors as a model file stores them.
#pragma once

#include <cstring>
#include <vector>

#include "model/tiles.h"
#include "tests/random.h"

namespace ultrafast::test {

constexpr int kFileTypes[] = {kFileQ4_0, kFileQ4_1, kFileQ8_0, kFileF16, kFileBF16, kFileF32};  // in the order of TileKind

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
  const int num_quants = type == kFileQ8_0 ? 32 : 16;
  const float step = size / (type == kFileQ8_0 ? 74.0f : 4.6f);  // the deviation of a random quant
  for (int b = 0; b < rows * cols / kBlock; ++b) {
    const float scale = step * static_cast<float>(0.5 + random.uniform());
    put_f16(p, scale);
    p += 2;
    if (type == kFileQ4_1) {
      put_f16(p, scale * (-7.5f + random.normal()));
      p += 2;
    }
    for (int i = 0; i < num_quants; ++i) *p++ = random_byte(random, quants);
  }
  return data;
}

}  // namespace ultrafast::test
