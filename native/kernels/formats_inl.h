// The quantised weight formats, for matmul_inl.h: where the tile of a block lies in its row group, the exact integer dot
// products of a block with M tokens, the scales and minima of its rows, and how to unpack it for many tokens. In vector
// tables, pairs[p] then holds, for each row, the two inputs that lie in pair p of ActRow::pairs.
//
// Q6_K blocks have two parts, the first and the second 16 inputs, with scales of their own; dots() then gives those of the
// second part after those of the first, [kParts][M].

namespace ultrafast {
namespace {

inline F32 load_half(const uint8_t* p) { return load_f16(reinterpret_cast<const uint16_t*>(p)); }

template <int kBytes>
struct TilesInARow {
  static constexpr int kTileBytes = kBytes;
  static constexpr int kParts = 1;
  static const uint8_t* tile(const uint8_t* group, int block) { return group + static_cast<ptrdiff_t>(block) * kBytes; }
};

// Eight blocks behind the factors that they share.
template <int kFactorBytes, int kBlockBytes>
struct TilesOfEightBlocks {
  static constexpr int kTileBytes = kBlockBytes;
  static constexpr int kParts = 1;
  static const uint8_t* tile(const uint8_t* group, int block) {
    return group + static_cast<ptrdiff_t>(block / 8) * (kFactorBytes + 8 * kBlockBytes) + kFactorBytes + block % 8 * kBlockBytes;
  }
  static const uint8_t* factors(const uint8_t* tile, int block) { return tile - block % 8 * kBlockBytes - kFactorBytes; }
};

struct Q4_0 : TilesInARow<288> {
  static constexpr TileKind kKind = TileKind::kQ4_0;
  static constexpr bool kHasMinimum = false;
  template <int M>
  static void dots(const uint8_t* tile, const ActRow* x, int block, I32* out) {
    dot_nibbles<M>(tile, x, block * kBlock, out);
    for (int t = 0; t < M; ++t) out[t] = sub_i32(out[t], 8 * x[t].sum[block]);
  }
  static F32 scale(const uint8_t* tile, int, int) { return load_half(tile + 256); }
  static void unpack(const uint8_t* tile, int16_t (*pairs)[32]) { unpack_nibbles(tile, 8, pairs); }
};

struct Q4_1 : TilesInARow<320> {
  static constexpr TileKind kKind = TileKind::kQ4_1;
  static constexpr bool kHasMinimum = true;
  template <int M>
  static void dots(const uint8_t* tile, const ActRow* x, int block, I32* out) {
    dot_nibbles<M>(tile, x, block * kBlock, out);
  }
  static F32 scale(const uint8_t* tile, int, int) { return load_half(tile + 256); }
  static F32 minimum(const uint8_t* tile, int) { return load_half(tile + 288); }
  static void unpack(const uint8_t* tile, int16_t (*pairs)[32]) { unpack_nibbles(tile, 0, pairs); }
};

struct Q5_0 : TilesInARow<352> {
  static constexpr TileKind kKind = TileKind::kQ5_0;
  static constexpr bool kHasMinimum = false;
  template <int M>
  static void dots(const uint8_t* tile, const ActRow* x, int block, I32* out) {
    dot_five_bits<M>(tile, x, block * kBlock, out);
    for (int t = 0; t < M; ++t) out[t] = sub_i32(out[t], 16 * x[t].sum[block]);
  }
  static F32 scale(const uint8_t* tile, int, int) { return load_half(tile + 320); }
  static void unpack(const uint8_t* tile, int16_t (*pairs)[32]) { unpack_five_bits(tile, 16, pairs); }
};

struct Q5_1 : TilesInARow<384> {
  static constexpr TileKind kKind = TileKind::kQ5_1;
  static constexpr bool kHasMinimum = true;
  template <int M>
  static void dots(const uint8_t* tile, const ActRow* x, int block, I32* out) {
    dot_five_bits<M>(tile, x, block * kBlock, out);
  }
  static F32 scale(const uint8_t* tile, int, int) { return load_half(tile + 320); }
  static F32 minimum(const uint8_t* tile, int) { return load_half(tile + 352); }
  static void unpack(const uint8_t* tile, int16_t (*pairs)[32]) { unpack_five_bits(tile, 0, pairs); }
};

struct Q8_0 : TilesInARow<544> {
  static constexpr TileKind kKind = TileKind::kQ8_0;
  static constexpr bool kHasMinimum = false;
  template <int M>
  static void dots(const uint8_t* tile, const ActRow* x, int block, I32* out) {
    dot_bytes<M>(tile, x, block * kBlock, out);
    for (int t = 0; t < M; ++t) out[t] = sub_i32(out[t], 128 * x[t].sum[block]);
  }
  static F32 scale(const uint8_t* tile, int, int) { return load_half(tile + 512); }
  static void unpack(const uint8_t* tile, int16_t (*pairs)[32]) { unpack_bytes(tile, 128, pairs); }
};

// Scales and minima of 16 rows follow kQuants bytes; the format subtracts its minima, so they are negated here.
template <int kQuants>
struct ScalesAndMinima : TilesOfEightBlocks<64, kQuants + 32> {
  using Tiles = TilesOfEightBlocks<64, kQuants + 32>;
  static constexpr bool kHasMinimum = true;
  static F32 scale(const uint8_t* tile, int block, int) {
    return mul(load_half(Tiles::factors(tile, block)), load_u8(tile + kQuants));
  }
  static F32 minimum(const uint8_t* tile, int block) {
    return mul(sub(set1(0.0f), load_half(Tiles::factors(tile, block) + 32)), load_u8(tile + kQuants + 16));
  }
};

struct Q4_K : ScalesAndMinima<256> {
  static constexpr TileKind kKind = TileKind::kQ4_K;
  template <int M>
  static void dots(const uint8_t* tile, const ActRow* x, int block, I32* out) {
    dot_nibbles<M>(tile, x, block * kBlock, out);
  }
  static void unpack(const uint8_t* tile, int16_t (*pairs)[32]) { unpack_nibbles(tile, 0, pairs); }
};

struct Q5_K : ScalesAndMinima<320> {
  static constexpr TileKind kKind = TileKind::kQ5_K;
  template <int M>
  static void dots(const uint8_t* tile, const ActRow* x, int block, I32* out) {
    dot_five_bits<M>(tile, x, block * kBlock, out);
  }
  static void unpack(const uint8_t* tile, int16_t (*pairs)[32]) { unpack_five_bits(tile, 0, pairs); }
};

struct Q6_K : TilesOfEightBlocks<32, 384 + 32> {
  static constexpr TileKind kKind = TileKind::kQ6_K;
  static constexpr bool kHasMinimum = false;
  static constexpr int kParts = 2;
  template <int M>
  static void dots(const uint8_t* tile, const ActRow* x, int block, I32* out) {
    dot_six_bits<M>(tile, x, block * kBlock, out);
    for (int t = 0; t < M; ++t) {
      const int32_t first_sum = sum_of_16(x[t], block * kBlock);
      out[t] = sub_i32(out[t], 32 * first_sum);
      out[M + t] = sub_i32(out[M + t], 32 * (x[t].sum[block] - first_sum));
    }
  }
  static F32 scale(const uint8_t* tile, int block, int part) {
    return mul(load_half(factors(tile, block)), load_i8(tile + 384 + 16 * part));
  }
  static void unpack(const uint8_t* tile, int16_t (*pairs)[32]) { unpack_six_bits(tile, 32, pairs); }
};

}  // namespace
}  // namespace ultrafast
