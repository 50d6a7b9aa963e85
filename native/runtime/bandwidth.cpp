#include "runtime/bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <vector>

#include "runtime/arena.h"

namespace ultrafast {

namespace {

constexpr size_t kLine = 64;
constexpr size_t kUnit = 4096;  // shares and streams are multiples of this

using Vector = uint64_t __attribute__((vector_size(32)));  // two 16-byte loads where the instruction set has no wider ones

// Folds kStreams equal parts of [data, data + bytes) into one word, a line of each in turn.
template <size_t kStreams, size_t kPrefetch>
[[gnu::always_inline]] inline uint64_t fold(const uint8_t* data, size_t bytes) {
  Vector even{}, odd{};  // independent, so that only memory can be the limit
  const size_t part = bytes / kStreams;
  for (size_t i = 0; i < part; i += kLine)
    for (size_t s = 0; s < kStreams; ++s) {
      const auto* line = reinterpret_cast<const Vector*>(data + s * part + i);
      if (kPrefetch > 0) __builtin_prefetch(reinterpret_cast<const uint8_t*>(line) + kPrefetch);
      even ^= line[0];
      odd ^= line[1];
    }
  even ^= odd;
  return even[0] ^ even[1] ^ even[2] ^ even[3];
}

using Fold = uint64_t (*)(const uint8_t*, size_t);

struct Method {
  const char* name;
  Fold fold;
  Fold fold_wide;  // the same for processors with 32-byte loads
};

#if defined(__x86_64__)
#define ULTRAFAST_WIDE __attribute__((target("avx2")))
bool has_wide_loads() { return __builtin_cpu_supports("avx2"); }
#else
#define ULTRAFAST_WIDE
bool has_wide_loads() { return false; }
#endif

template <size_t kStreams, size_t kPrefetch>
uint64_t fold_any(const uint8_t* data, size_t bytes) {
  return fold<kStreams, kPrefetch>(data, bytes);
}

template <size_t kStreams, size_t kPrefetch>
ULTRAFAST_WIDE uint64_t fold_wide(const uint8_t* data, size_t bytes) {
  return fold<kStreams, kPrefetch>(data, bytes);
}

template <size_t kStreams, size_t kPrefetch>
constexpr Method method(const char* name) {
  return {name, fold_any<kStreams, kPrefetch>, fold_wide<kStreams, kPrefetch>};
}

constexpr Method kMethods[] = {method<1, 0>("one stream"), method<1, 4096>("one stream, prefetched"), method<2, 0>("2 streams"),
                               method<4, 0>("4 streams"), method<8, 0>("8 streams")};

}  // namespace

ReadSpeed read_speed(Workers& workers, size_t bytes, int repeats) {
  using Clock = std::chrono::steady_clock;
  constexpr size_t unit = 8 * kUnit;
  const size_t share = std::max(bytes / static_cast<size_t>(workers.count()) / unit * unit, unit);
  std::vector<Arena> arenas;
  for (int w = 0; w < workers.count(); ++w) arenas.emplace_back(share, true);
  const auto data = [&](const Worker& worker) { return arenas[static_cast<size_t>(worker.index)].data(); };
  workers.run([&](const Worker& worker) { std::memset(data(worker), 1, share); });
  const bool wide = has_wide_loads();
  ReadSpeed best{0.0, ""};
  std::vector<std::vector<double>> seconds(std::size(kMethods));
  std::atomic<uint64_t> sink{0};
  for (int r = 0; r < repeats; ++r)
    for (size_t m = 0; m < std::size(kMethods); ++m) {
      const Fold fold = wide ? kMethods[m].fold_wide : kMethods[m].fold;
      Clock::time_point start, end;
      workers.run([&](const Worker& worker) {
        worker.sync();
        if (worker.index == 0) start = Clock::now();
        sink.fetch_add(fold(data(worker), share));
        worker.sync();
        if (worker.index == 0) end = Clock::now();
      });
      seconds[m].push_back(std::chrono::duration<double>(end - start).count());
    }
  for (size_t m = 0; m < std::size(kMethods); ++m) {
    std::vector<double>& times = seconds[m];
    const auto middle = times.begin() + static_cast<ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    const double speed = static_cast<double>(share) * workers.count() / *middle;
    if (speed > best.bytes_per_second) best = {speed, kMethods[m].name};
  }
  return best;
}

}  // namespace ultrafast
