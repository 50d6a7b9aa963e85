// The kernels, written once over sixteen lanes. Each table_<isa>.cpp includes its lanes and then this file, so every
// function here has internal linkage and every instruction set runs the same operations in the same order.

namespace ultrafast {
namespace {

template <int N>
struct Int { static constexpr int value = N; };

constexpr float kInfinity = __builtin_huge_valf();
// Weights stream from memory: ask for the tile this far ahead (docs/performance.md has the measurements).
constexpr int kPrefetchBytes = 2 * 1024;

inline F32 load_first(const float* p, int n) {  // n < 16; the rest is 0
  alignas(64) float lanes[16] = {};
  __builtin_memcpy(lanes, p, static_cast<size_t>(n) * sizeof(float));
  return load(lanes);
}

inline void store_first(float* p, F32 x, int n) {
  alignas(64) float lanes[16];
  store(lanes, x);
  __builtin_memcpy(p, lanes, static_cast<size_t>(n) * sizeof(float));
}

// exp by range reduction, x = n ln 2 + r, and the Taylor series of e^r to r^7 (|r| <= ln 2 / 2: relative error 6e-9
// before rounding). Arguments are clamped to the range where neither the power of two nor the result leaves f32; the order
// of the operands sends NaN to the lower end, so that a NaN score weighs nothing.
inline F32 exp(F32 x) {
  x = max(min(set1(88.0f), x), set1(-87.0f));
  const I32 n = round_to_i32(mul(x, set1(1.44269504f)));
  const F32 nf = to_f32(n);
  F32 r = fma(nf, set1(-0.693359375f), x);  // ln 2 in two parts (Cody and Waite): the first has few bits, so n times it is exact
  r = fma(nf, set1(2.12194440e-4f), r);
  F32 y = set1(1.0f / 5040);
  y = fma(y, r, set1(1.0f / 720));
  y = fma(y, r, set1(1.0f / 120));
  y = fma(y, r, set1(1.0f / 24));
  y = fma(y, r, set1(1.0f / 6));
  y = fma(y, r, set1(0.5f));
  y = fma(y, r, set1(1.0f));
  y = fma(y, r, set1(1.0f));
  return times_pow2(y, n);
}

inline float exp1(float x) {
  alignas(64) float lanes[16];
  store(lanes, exp(set1(x)));
  return lanes[0];
}

}  // namespace
}  // namespace ultrafast

#include "kernels/matmul_inl.h"

namespace ultrafast {
namespace {

// ---- vectors --------------------------------------------------------------------------------------------------------

void rms_norm(const float* x, const float* weight, int n, float eps, float* out) {
  F32 squares = set1(0.0f);
  int i = 0;
  for (; i + 16 <= n; i += 16) squares = fma(load(x + i), load(x + i), squares);
  if (i < n) {
    const F32 tail = load_first(x + i, n - i);
    squares = fma(tail, tail, squares);
  }
  const F32 scale = set1(1.0f / __builtin_sqrtf(reduce_add(squares) / static_cast<float>(n) + eps));
  for (i = 0; i + 16 <= n; i += 16) store(out + i, mul(mul(load(x + i), scale), load(weight + i)));
  if (i < n) store_first(out + i, mul(mul(load_first(x + i, n - i), scale), load_first(weight + i, n - i)), n - i);
}

void quantize(const float* x, int n, const ActRow& out) {
  constexpr float kLimit = 127 * 256;   // the largest multiple of 256 whose high byte is a signed byte
  constexpr float kNothing = 1e-34f;    // smaller blocks become zero: the inverse of their scale would not be finite
  for (int b = 0; b < n / kBlock; ++b, x += kBlock) {
    const F32 first = load(x), second = load(x + 16);
    const float largest = reduce_max(max(abs(first), abs(second)));
    const float scale = largest > kNothing ? largest / kLimit : 0.0f;
    const F32 inverse = set1(largest > kNothing ? kLimit / largest : 0.0f);
    const F32 lower = set1(-kLimit), upper = set1(kLimit);  // clamping also turns NaN into a number
    const I32 a = round_to_i32(min(max(mul(first, inverse), lower), upper));
    const I32 c = round_to_i32(min(max(mul(second, inverse), lower), upper));
    const int32_t sum = store_fixed(out, b * kBlock, a, c);
    out.scale[b] = scale;
    out.sum[b] = sum;
    out.scaled_sum[b] = scale * static_cast<float>(sum);
  }
}

void rope(float* x, const float* cos_sin, int n) {
  for (int i = 0; i < n; i += 2) {
    const float a = x[i], b = x[i + 1];
    x[i] = a * cos_sin[i] - b * cos_sin[i + 1];
    x[i + 1] = a * cos_sin[i + 1] + b * cos_sin[i];
  }
}

inline F32 silu_mul_lanes(F32 gate, F32 up) {
  const F32 one = set1(1.0f);
  return mul(div(gate, add(one, exp(sub(set1(0.0f), gate)))), up);
}

void silu_mul(const float* gate, const float* up, int n, float* out) {
  int i = 0;
  for (; i + 16 <= n; i += 16) store(out + i, silu_mul_lanes(load(gate + i), load(up + i)));
  if (i < n) store_first(out + i, silu_mul_lanes(load_first(gate + i, n - i), load_first(up + i, n - i)), n - i);
}

// x / 2 * (1 + tanh u) = x * sigmoid(2 u): no tanh is needed.
inline F32 gelu_mul_lanes(F32 gate, F32 up) {
  const F32 one = set1(1.0f);
  const F32 cubic = fma(mul(gate, gate), set1(0.044715f), one);
  const F32 u = mul(mul(gate, set1(-1.59576912f)), cubic);  // -2 sqrt(2 / pi) (x + 0.044715 x^3)
  return mul(div(gate, add(one, exp(u))), up);
}

void gelu_mul(const float* gate, const float* up, int n, float* out) {
  int i = 0;
  for (; i + 16 <= n; i += 16) store(out + i, gelu_mul_lanes(load(gate + i), load(up + i)));
  if (i < n) store_first(out + i, gelu_mul_lanes(load_first(gate + i, n - i), load_first(up + i, n - i)), n - i);
}

void add_into(float* x, const float* y, int n) {
  int i = 0;
  for (; i + 16 <= n; i += 16) store(x + i, add(load(x + i), load(y + i)));
  for (; i < n; ++i) x[i] += y[i];
}

void scale_by(float* x, float factor, int n) {
  int i = 0;
  for (; i + 16 <= n; i += 16) store(x + i, mul(load(x + i), set1(factor)));
  for (; i < n; ++i) x[i] *= factor;
}

void to_f16(const float* x, uint16_t* out, int n) {
  const F32 lower = set1(-65504.0f), upper = set1(65504.0f);
  int i = 0;
  for (; i + 16 <= n; i += 16) store_f16(out + i, min(max(load(x + i), lower), upper));
  if (i < n) {
    uint16_t tail[16];
    store_f16(tail, min(max(load_first(x + i, n - i), lower), upper));
    __builtin_memcpy(out + i, tail, static_cast<size_t>(n - i) * sizeof(uint16_t));
  }
}

int argmax(const float* x, int n) {
  constexpr int kChunk = 512;
  float best = -kInfinity;
  int best_chunk = 0;
  for (int c = 0; c < n; c += kChunk) {
    const int end = c + kChunk < n ? c + kChunk : n;
    F32 largest = set1(-kInfinity);
    int i = c;
    for (; i + 16 <= end; i += 16) largest = max(load(x + i), largest);
    float chunk_best = reduce_max(largest);
    for (; i < end; ++i) chunk_best = x[i] > chunk_best ? x[i] : chunk_best;
    if (chunk_best > best) {
      best = chunk_best;
      best_chunk = c;
    }
  }
  for (int i = best_chunk; i < n; ++i)
    if (x[i] == best) return i;
  return 0;  // nothing but NaN
}

float softmax_numerators(const float* x, int n, float largest, float factor, float* out) {
  const F32 m = set1(largest), f = set1(factor);
  F32 total = set1(0.0f);
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    const F32 e = exp(mul(sub(load(x + i), m), f));
    store(out + i, e);
    total = add(total, e);
  }
  if (i < n) {
    const F32 e = keep_first(exp(mul(sub(load_first(x + i, n - i), m), f)), n - i, 0.0f);
    store_first(out + i, e, n - i);
    total = add(total, e);
  }
  return reduce_add(total);
}

// ---- attention ------------------------------------------------------------------------------------------------------

// N query heads that share one KV head: each key and value vector is loaded once for all of them. P vectors of positions
// (or of value elements) at a time, so that no sum waits for itself.
template <int N, int P, bool kPrefetch>
void attend(const AttentionChunk& c, int first) {  // first: of the query heads
  constexpr int kLine = 32;  // elements of a cache line
  const uint16_t* next_v = c.next + static_cast<ptrdiff_t>(kKvBlock) * c.head_dim;
  const int first_group = c.first / kLanes, groups = (c.length + kLanes - 1) / kLanes;
  alignas(64) float weights[N][kKvBlock];
  F32 largest[N];
  for (int h = 0; h < N; ++h) largest[h] = set1(-kInfinity);
  const auto scores = [&](auto vectors, int g) {
    constexpr int kVectors = decltype(vectors)::value;
    const ptrdiff_t size = static_cast<ptrdiff_t>(c.head_dim) * kLanes;
    const uint16_t* k = c.k + g * size;
    F32 score[kVectors][N];
    for (int v = 0; v < kVectors; ++v)
      for (int h = 0; h < N; ++h) score[v][h] = set1(0.0f);
    for (int d = 0; d < c.head_dim; ++d) {
      if constexpr (kPrefetch)
        for (int line = 0; line < kVectors / 2; ++line) prefetch(c.next + g * size + (d * (kVectors / 2) + line) * kLine);
      for (int v = 0; v < kVectors; ++v) {
        const F32 key = load_f16(k + v * size + d * kLanes);
        for (int h = 0; h < N; ++h) score[v][h] = fma(set1(c.q[(first + h) * c.head_dim + d]), key, score[v][h]);
      }
    }
    for (int v = 0; v < kVectors; ++v)
      for (int h = 0; h < N; ++h) {
        const F32 up_to_last = keep_first(score[v][h], c.length - (g + v) * kLanes, -kInfinity);
        const F32 valid = drop_first(up_to_last, c.first - (g + v) * kLanes, -kInfinity);
        store(weights[h] + (g + v) * kLanes, valid);
        largest[h] = max(valid, largest[h]);
      }
  };
  int g = first_group;
  for (; g + P <= groups; g += P) scores(Int<P>(), g);
  for (; g < groups; ++g) scores(Int<1>(), g);
  for (int h = 0; h < N; ++h) {
    const float m = reduce_max(largest[h]);
    F32 sum = set1(0.0f);
    for (g = first_group; g < groups; ++g) {
      F32 e = keep_first(exp(sub(load(weights[h] + g * kLanes), set1(m))), c.length - g * kLanes, 0.0f);
      e = drop_first(e, c.first - g * kLanes, 0.0f);
      store(weights[h] + g * kLanes, e);
      sum = add(sum, e);
    }
    c.max[first + h] = m;
    c.sum[first + h] = reduce_add(sum);
  }
  const auto weighted = [&](auto vectors, int d) {
    constexpr int kVectors = decltype(vectors)::value;
    F32 acc[kVectors][N];
    for (int v = 0; v < kVectors; ++v)
      for (int h = 0; h < N; ++h) acc[v][h] = set1(0.0f);
    for (int p = c.first; p < c.length; ++p) {
      if constexpr (kPrefetch)
        for (int line = 0; line < kVectors / 2; ++line) prefetch(next_v + d * kKvBlock + (p * (kVectors / 2) + line) * kLine);
      for (int v = 0; v < kVectors; ++v) {
        const F32 value = load_f16(c.v + static_cast<ptrdiff_t>(p) * c.padded_dim + d + v * kLanes);
        for (int h = 0; h < N; ++h) acc[v][h] = fma(set1(weights[h][p]), value, acc[v][h]);
      }
    }
    for (int v = 0; v < kVectors; ++v)
      for (int h = 0; h < N; ++h) store(c.acc + (first + h) * c.padded_dim + d + v * kLanes, acc[v][h]);
  };
  int d = 0;
  for (; d + P * kLanes <= c.padded_dim; d += P * kLanes) weighted(Int<P>(), d);
  for (; d < c.padded_dim; d += kLanes) weighted(Int<1>(), d);
}

void attention(const AttentionChunk& chunk) {
  int h = 0;
  if (chunk.next != nullptr) {  // once: the first pass brings all of it
    if (chunk.num_q >= kHeadsPerPass) {
      attend<kHeadsPerPass, 2, true>(chunk, 0);
      h = kHeadsPerPass;
    } else {
      attend<1, 4, true>(chunk, 0);
      h = 1;
    }
  }
  for (; h + kHeadsPerPass <= chunk.num_q; h += kHeadsPerPass) attend<kHeadsPerPass, 2, false>(chunk, h);
  for (; h < chunk.num_q; ++h) attend<1, 4, false>(chunk, h);
}

void attention_merge(float* running_max, float* sum, float* acc, float chunk_max, float chunk_sum, const float* chunk_acc, int dim) {
  const float m = *running_max > chunk_max ? *running_max : chunk_max;
  const float keep = exp1(*running_max - m), take = exp1(chunk_max - m);
  const F32 keep_lanes = set1(keep), take_lanes = set1(take);
  for (int d = 0; d < dim; d += kLanes) {
    store(acc + d, fma(load(chunk_acc + d), take_lanes, mul(load(acc + d), keep_lanes)));
  }
  *sum = __builtin_fmaf(chunk_sum, take, *sum * keep);
  *running_max = m;
}

constexpr KernelTable make_table(const char* name) {
  return KernelTable{
      name,
      {matmul_quantized<Q4_0>, matmul_quantized<Q4_1>, matmul_quantized<Q5_0>, matmul_quantized<Q5_1>, matmul_quantized<Q8_0>,
       matmul_quantized<Q4_K>, matmul_quantized<Q5_K>, matmul_quantized<Q6_K>, matmul_float<TileKind::kF16, F16Weight>,
       matmul_float<TileKind::kBF16, Bf16Weight>, matmul_float<TileKind::kF32, float>},
      rms_norm,
      quantize,
      rope,
      silu_mul,
      gelu_mul,
      attention,
      attention_merge,
      add_into,
      scale_by,
      to_f16,
      argmax,
      softmax_numerators,
  };
}

}  // namespace
}  // namespace ultrafast
