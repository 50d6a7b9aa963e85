// Matrix products; included by kernels_inl.h.

#include "kernels/formats_inl.h"

namespace ultrafast {
namespace {

inline void prefetch_tile(const uint8_t* tile, int bytes) {
  for (int line = 0; line < bytes; line += 64) prefetch(tile + line);
}

// A row group times M tokens, straight from the tiles.
template <class Format, int M>
void rows_quantized(const uint8_t* group, int cols, const ActRow* x, float* out, ptrdiff_t out_stride) {
  F32 acc[M], minima[M];
  for (int t = 0; t < M; ++t) acc[t] = minima[t] = set1(0.0f);
  for (int b = 0; b < cols / kBlock; ++b) {
    const uint8_t* tile = Format::tile(group, b);
    prefetch_tile(tile + kPrefetchBytes, Format::kTileBytes);
    I32 dots[Format::kParts * M];
    Format::template dots<M>(tile, x, b, dots);
    for (int p = 0; p < Format::kParts; ++p) {
      const F32 scale = Format::scale(tile, b, p);
      for (int t = 0; t < M; ++t) acc[t] = fma(to_f32(dots[p * M + t]), mul(scale, set1(x[t].scale[b])), acc[t]);
    }
    if constexpr (Format::kHasMinimum) {
      const F32 minimum = Format::minimum(tile, b);
      for (int t = 0; t < M; ++t) minima[t] = fma(minimum, set1(x[t].scaled_sum[b]), minima[t]);
    }
  }
  for (int t = 0; t < M; ++t) store(out + t * out_stride, Format::kHasMinimum ? add(acc[t], minima[t]) : acc[t]);
}

// A block of a row group as 16-bit integers, laid out as dot_pairs of the instruction set reads them.
template <class Format>
struct PanelBlock {
  alignas(64) int16_t pairs[kBlock / 2][2 * kLanes];
  alignas(64) float scale[Format::kParts][kLanes];
  alignas(64) float minimum[kLanes];
};

constexpr int kPanelBlocks = 16;  // a panel of 18 KB stays in the nearest cache while all tokens pass over it
constexpr int kPanelTokens = 64;  // tokens that share one unpacking

// M tokens times some blocks of a row group that are laid out as a panel; adds to acc and minima, f32 [M][16] each. The
// minima have a loop of their own: together the sums would not fit the registers. With kAhead, the tiles of the panel to
// come are brought near meanwhile.
template <class Format, int M, bool kAhead>
void rows_panel(const uint8_t* group, const PanelBlock<Format>* panel, int first_block, int num_blocks, const ActRow* x, float* acc,
                ptrdiff_t acc_stride, float* minima) {
  for (int i = 0; i < num_blocks; ++i) {
    const int b = first_block + i;
    if constexpr (kAhead) prefetch_tile(Format::tile(group, b + num_blocks), Format::kTileBytes);
    for (int p = 0; p < Format::kParts; ++p) {
      I32 dots[M];
      dot_pairs<M, Format::kParts>(panel[i].pairs, p, x, b * kBlock, dots);
      const F32 scale = load(panel[i].scale[p]);
      for (int t = 0; t < M; ++t) {
        float* to = acc + t * acc_stride;
        store(to, fma(to_f32(dots[t]), mul(scale, set1(x[t].scale[b])), load(to)));
      }
    }
  }
  if constexpr (Format::kHasMinimum) {
    F32 sums[M];
    for (int t = 0; t < M; ++t) sums[t] = load(minima + t * kLanes);
    for (int i = 0; i < num_blocks; ++i) {
      const F32 minimum = load(panel[i].minimum);
      for (int t = 0; t < M; ++t) sums[t] = fma(minimum, set1(x[t].scaled_sum[first_block + i]), sums[t]);
    }
    for (int t = 0; t < M; ++t) store(minima + t * kLanes, sums[t]);
  }
}

// A row group times kMinPanelTokens to kPanelTokens tokens: every tile is unpacked once, some blocks at a time. Same operations in the
// same order per output element as rows_quantized, hence the same bits.
template <class Format>
void rows_many(const uint8_t* group, int cols, const ActRow* x, int num_tokens, float* out, ptrdiff_t out_stride) {
  PanelBlock<Format> panel[kPanelBlocks];
  alignas(64) float minima[kPanelTokens * kLanes];
  for (int t = 0; t < num_tokens; ++t) {
    store(out + t * out_stride, set1(0.0f));
    if constexpr (Format::kHasMinimum) store(minima + t * kLanes, set1(0.0f));
  }
  const int blocks = cols / kBlock;
  for (int first = 0; first < blocks; first += kPanelBlocks) {
    const int count = blocks - first < kPanelBlocks ? blocks - first : kPanelBlocks;
    for (int i = 0; i < count; ++i) {
      const int b = first + i;
      const uint8_t* tile = Format::tile(group, b);
      Format::unpack(tile, panel[i].pairs);
      for (int p = 0; p < Format::kParts; ++p) store(panel[i].scale[p], Format::scale(tile, b, p));
      if constexpr (Format::kHasMinimum) store(panel[i].minimum, Format::minimum(tile, b));
    }
    static_assert(kTokensPerPanelPass <= kMinPanelTokens);
    rows_panel<Format, kTokensPerPanelPass, true>(group, panel, first, count, x, out, out_stride, minima);
    int t = kTokensPerPanelPass;
    for (; t + kTokensPerPanelPass <= num_tokens; t += kTokensPerPanelPass)
      rows_panel<Format, kTokensPerPanelPass, false>(group, panel, first, count, x + t, out + t * out_stride, out_stride,
                                                     minima + t * kLanes);
    for (; t < num_tokens; ++t)
      rows_panel<Format, 1, false>(group, panel, first, count, x + t, out + t * out_stride, out_stride, minima + t * kLanes);
  }
  if constexpr (Format::kHasMinimum)
    for (int t = 0; t < num_tokens; ++t) store(out + t * out_stride, add(load(out + t * out_stride), load(minima + t * kLanes)));
}

// Group by group, so that a group's tiles stay in the nearest cache while all tokens pass over them.
template <class Format>
void matmul_quantized(const uint8_t* tiles, int num_groups, int cols, const ActRow* x, int num_tokens, float* out, ptrdiff_t out_stride) {
  const size_t bytes = group_bytes(Format::kKind, cols);
  for (int g = 0; g < num_groups; ++g, tiles += bytes, out += kLanes) {
    int t = 0;
    while (num_tokens - t >= kMinPanelTokens) {
      const int count = num_tokens - t < kPanelTokens ? num_tokens - t : kPanelTokens;
      rows_many<Format>(tiles, cols, x + t, count, out + t * out_stride, out_stride);
      t += count;
    }
    for (; t + kTokensPerPass <= num_tokens; t += kTokensPerPass)
      rows_quantized<Format, kTokensPerPass>(tiles, cols, x + t, out + t * out_stride, out_stride);
    for (; t < num_tokens; ++t) rows_quantized<Format, 1>(tiles, cols, x + t, out + t * out_stride, out_stride);
  }
}

inline F32 load_weight(const float* p) { return load(p); }
struct F16Weight { uint16_t bits; };
struct Bf16Weight { uint16_t bits; };
inline F32 load_weight(const F16Weight* p) { return load_f16(&p->bits); }
inline F32 load_weight(const Bf16Weight* p) { return load_bf16(&p->bits); }

// Two partial sums, even and odd inputs, so that a fused multiply-add need not wait for the one before it.
template <typename Weight, int M>
void rows_float(const uint8_t* tiles, int cols, const ActRow* x, float* out, ptrdiff_t out_stride) {
  const auto* w = reinterpret_cast<const Weight*>(tiles);
  F32 even[M], odd[M];
  for (int t = 0; t < M; ++t) even[t] = odd[t] = set1(0.0f);
  int i = 0;
  for (; i + 2 <= cols; i += 2, w += 2 * kLanes) {
    prefetch_tile(reinterpret_cast<const uint8_t*>(w) + kPrefetchBytes, 2 * kLanes * static_cast<int>(sizeof(Weight)));
    const F32 w0 = load_weight(w), w1 = load_weight(w + kLanes);
    for (int t = 0; t < M; ++t) {
      even[t] = fma(w0, set1(x[t].f32[i]), even[t]);
      odd[t] = fma(w1, set1(x[t].f32[i + 1]), odd[t]);
    }
  }
  if (i < cols)
    for (int t = 0; t < M; ++t) even[t] = fma(load_weight(w), set1(x[t].f32[i]), even[t]);
  for (int t = 0; t < M; ++t) store(out + t * out_stride, add(even[t], odd[t]));
}

template <TileKind kKind, typename Weight>
void matmul_float(const uint8_t* tiles, int num_groups, int cols, const ActRow* x, int num_tokens, float* out, ptrdiff_t out_stride) {
  const size_t bytes = group_bytes(kKind, cols);
  for (int g = 0; g < num_groups; ++g, tiles += bytes, out += kLanes) {
    int t = 0;
    for (; t + 4 <= num_tokens; t += 4) rows_float<Weight, 4>(tiles, cols, x + t, out + t * out_stride, out_stride);
    for (; t < num_tokens; ++t) rows_float<Weight, 1>(tiles, cols, x + t, out + t * out_stride, out_stride);
  }
}

}  // namespace
}  // namespace ultrafast
