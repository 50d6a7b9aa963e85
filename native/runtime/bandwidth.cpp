#include "runtime/bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "runtime/arena.h"

namespace ultrafast {

namespace {

uint64_t sum_words(const uint64_t* words, size_t n) {
  uint64_t sums[16] = {};  // independent, so that only memory can be the limit
  for (size_t i = 0; i + 16 <= n; i += 16) {
    __builtin_prefetch(words + i + 1024);
    for (size_t j = 0; j < 16; ++j) sums[j] += words[i + j];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

double read_bandwidth(Workers& workers, size_t bytes, int repeats) {
  const size_t share = std::max<size_t>(bytes / static_cast<size_t>(workers.count()), 4096);
  std::vector<Arena> arenas;
  for (int w = 0; w < workers.count(); ++w) arenas.emplace_back(share, true);
  workers.run([&](const Worker& worker) { std::memset(arenas[static_cast<size_t>(worker.index)].data(), 1, share); });
  double best = 0.0;
  std::atomic<uint64_t> sink{0};
  for (int r = 0; r < repeats; ++r) {
    std::chrono::steady_clock::time_point start, end;
    workers.run([&](const Worker& worker) {
      worker.sync();
      if (worker.index == 0) start = std::chrono::steady_clock::now();
      sink.fetch_add(sum_words(reinterpret_cast<const uint64_t*>(arenas[static_cast<size_t>(worker.index)].data()), share / 8));
      worker.sync();
      if (worker.index == 0) end = std::chrono::steady_clock::now();
    });
    const double seconds = std::chrono::duration<double>(end - start).count();
    best = std::max(best, static_cast<double>(share) * workers.count() / seconds);
  }
  return best;
}

}  // namespace ultrafast
