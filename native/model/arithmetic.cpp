#include "model/arithmetic.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "model/forward.h"
#include "runtime/arena.h"

namespace ultrafast {

namespace {

constexpr size_t kTileBytes = 16 << 10;  // half of the smallest first-level cache in use
constexpr int kFill = 0x11;              // as a number of any format: positive, neither huge nor denormal
constexpr int kLaps = 20;
constexpr auto kLapTime = std::chrono::microseconds(500);

// Repeats make_pass()() on every worker for a lap; the best lap's units of work per second, over all workers.
template <class MakePass>
double best_rate(Workers& workers, double work_of_pass, MakePass make_pass) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> rates(static_cast<size_t>(workers.count()));
  double best = 0.0;
  workers.run([&](const Worker& worker) {
    auto pass = make_pass();
    for (int lap = 0; lap < kLaps; ++lap) {
      worker.sync();
      const auto start = Clock::now();
      Clock::duration elapsed;
      int passes = 0;
      do {
        pass();
        ++passes;
        elapsed = Clock::now() - start;
      } while (elapsed < kLapTime);
      rates[static_cast<size_t>(worker.index)] = passes * work_of_pass / std::chrono::duration<double>(elapsed).count();
      worker.sync();
      if (worker.index != 0) continue;
      double sum = 0.0;
      for (const double rate : rates) sum += rate;
      best = std::max(best, sum);
    }
  });
  return best;
}

}  // namespace

double matmul_speed(Workers& workers, const KernelTable& kernels, TileKind kind, int cols, int tokens) {
  const auto groups = static_cast<int>(std::max<size_t>(1, kTileBytes / group_bytes(kind, cols)));
  const double work = static_cast<double>(groups) * kLanes * cols * tokens;
  return best_rate(workers, work, [&] {
    Arena tiles(group_bytes(kind, cols) * static_cast<size_t>(groups), false);
    std::memset(tiles.data(), kFill, tiles.size());
    Activations x(tokens, cols);
    const std::vector<float> ones(static_cast<size_t>(cols), 1.0f);
    for (int t = 0; t < tokens; ++t) {
      std::copy(ones.begin(), ones.end(), x.rows()[t].f32);
      kernels.quantize(ones.data(), cols, x.rows()[t]);
    }
    std::vector<float> out(static_cast<size_t>(tokens) * groups * kLanes);
    return [&kernels, kind, cols, tokens, groups, tiles = std::move(tiles), x = std::move(x), out = std::move(out)]() mutable {
      kernels.matmul[static_cast<int>(kind)](tiles.data(), groups, cols, x.rows(), tokens, out.data(), ptrdiff_t{groups} * kLanes);
    };
  });
}

double attention_speed(Workers& workers, const KernelTable& kernels, int num_q, int head_dim) {
  const int padded = (head_dim + 15) / 16 * 16;
  const double work = 2.0 * num_q * head_dim * kKvBlock;  // scores, then the weighted sum of the values
  return best_rate(workers, work, [&] {
    std::vector<uint16_t> keys(static_cast<size_t>(kKvBlock) * head_dim, kFill * 0x101), values(static_cast<size_t>(kKvBlock) * padded, kFill * 0x101);
    std::vector<float> q(static_cast<size_t>(num_q) * head_dim, 1.0f), out(static_cast<size_t>(num_q) * (2 + padded));
    return [&kernels, num_q, head_dim, padded, keys = std::move(keys), values = std::move(values), q = std::move(q),
            out = std::move(out)]() mutable {
      AttentionChunk chunk;
      chunk.q = q.data();
      chunk.num_q = num_q;
      chunk.head_dim = head_dim;
      chunk.padded_dim = padded;
      chunk.k = keys.data();
      chunk.v = values.data();
      chunk.length = kKvBlock;
      chunk.max = out.data();
      chunk.sum = chunk.max + num_q;
      chunk.acc = chunk.sum + num_q;
      kernels.attention(chunk);
    };
  });
}

}  // namespace ultrafast
