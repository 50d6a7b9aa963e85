// The pool, its barrier, and the memory it works in.
#include <atomic>
#include <chrono>
#include <ctime>
#include <new>
#include <thread>

#include "runtime/arena.h"
#include "runtime/bandwidth.h"
#include "runtime/workers.h"
#include "tests/check.h"

using namespace ultrafast;
using namespace ultrafast::test;

static void burn(std::chrono::microseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

TEST(runtime, every_worker_runs_every_job_once) {
  for (const int count : {1, 2, 3, 9}) {
    Workers workers(std::vector<int>(static_cast<size_t>(count), -1));
    CHECK(workers.count() == count && workers.pinned() == 0, count);
    std::vector<int> runs(static_cast<size_t>(count));
    for (int job = 1; job <= 200; ++job) {
      workers.run([&](const Worker& worker) {
        if (worker.count == count) ++runs[static_cast<size_t>(worker.index)];
      });
      for (const int r : runs) CHECK(r == job, count, job, r);
    }
  }
}

TEST(runtime, nobody_passes_the_barrier_early) {
  constexpr int kWorkers = 8, kPhases = 100;  // more workers than cores: they must yield
  Workers workers(std::vector<int>(kWorkers, -1));
  int at[kWorkers] = {};
  std::atomic<int> wrong{0};
  workers.run([&](const Worker& worker) {
    for (int phase = 1; phase <= kPhases; ++phase) {
      at[worker.index] = phase;  // plain: the barrier alone must order these
      worker.sync();
      for (const int other : at) wrong += other != phase;
      worker.sync();
    }
  });
  CHECK(wrong == 0, wrong.load());
}

TEST(runtime, late_workers_find_the_others) {  // whether those still look or already sleep
  for (const int count : {2, 3, 8}) {
    constexpr int kPhases = 60;
    Workers workers(std::vector<int>(static_cast<size_t>(count), -1));
    std::vector<int> at(static_cast<size_t>(count));
    std::atomic<int> wrong{0};
    workers.run([&](const Worker& worker) {
      for (int phase = 1; phase <= kPhases; ++phase) {
        if (phase % count == worker.index) burn(std::chrono::microseconds(phase * 5));
        at[static_cast<size_t>(worker.index)] = phase;
        worker.sync();
        for (const int other : at) wrong += other != phase;
        worker.sync();
      }
    });
    CHECK(wrong == 0, count, wrong.load());
  }
}

#ifdef __linux__
TEST(runtime, who_waits_long_sleeps) {
  const auto cpu_seconds = [] {
    timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
  };
  for (const int count : {2, 6}) {
    Workers workers(std::vector<int>(static_cast<size_t>(count), -1));
    std::vector<double> used(static_cast<size_t>(count));
    workers.run([&](const Worker& worker) {
      const double before = cpu_seconds();
      if (worker.index == 0) burn(std::chrono::milliseconds(50));
      worker.sync();
      used[static_cast<size_t>(worker.index)] = cpu_seconds() - before;
    });
    for (int i = 1; i < count; ++i) CHECK(used[static_cast<size_t>(i)] < 0.01, count, i, used[static_cast<size_t>(i)]);
  }
}
#endif

TEST(runtime, shares_cover_everything_once) {
  for (const int count : {1, 2, 3, 7, 64})
    for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{5}, int64_t{63}, int64_t{1000}, int64_t{1} << 40}) {
      int64_t next = 0;
      for (int i = 0; i < count; ++i) {
        const Worker worker{i, count, nullptr};
        CHECK(worker.first(n) == next && worker.last(n) >= next && worker.last(n) - next <= n / count + 1, count, n, i);
        next = worker.last(n);
      }
      CHECK(next == n, count, n);
    }
}

TEST(runtime, callers_take_turns) {
  Workers workers({-1, -1});
  std::atomic<int> inside{0}, overlaps{0}, runs{0};
  const auto call = [&] {
    for (int i = 0; i < 100; ++i)
      workers.run([&](const Worker& worker) {
        if (worker.index == 0) overlaps += inside.fetch_add(1) != 0;
        worker.sync();
        if (worker.index == 0) --inside;
        ++runs;
      });
  };
  std::thread other(call);
  call();
  other.join();
  CHECK(overlaps == 0 && runs == 400, overlaps.load(), runs.load());
}

TEST(runtime, pools_come_and_go) {
  for (int i = 0; i < 50; ++i) {
    Workers workers({0, -1, 1 << 20});  // no such processor: not pinned
    CHECK(workers.count() == 3 && workers.pinned() <= 1, workers.pinned());
    if (i % 2 == 0) workers.run([](const Worker& worker) { worker.sync(); });
  }
}

TEST(runtime, arenas_are_zero_and_move) {
  for (const bool huge : {false, true}) {
    Arena arena(100001, huge);
    CHECK(arena.size() >= 100001 && reinterpret_cast<uintptr_t>(arena.data()) % 4096 == 0);
    for (size_t i = 0; i < arena.size(); i += 1009) CHECK(arena.data()[i] == 0, i);
    uint8_t* data = arena.data();
    data[100000] = 7;
    Arena moved(std::move(arena));
    CHECK(moved.data() == data && arena.data() == nullptr && arena.size() == 0);
    Arena assigned(4096, false);
    assigned = std::move(moved);
    CHECK(assigned.data() == data && data[100000] == 7);
  }
  CHECK(Arena(0, true).data() == nullptr);
}

TEST(runtime, an_arena_too_large_throws) {
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX - 4096, SIZE_MAX / 2, size_t{1} << 50}) {
    bool thrown = false;
    try {
      Arena arena(bytes, bytes % 2 == 0);
    } catch (const std::bad_alloc&) {
      thrown = true;
    }
    CHECK(thrown, bytes);
  }
}

TEST(runtime, memory_can_be_read) {
  Workers workers({-1, -1});
  const ReadSpeed speed = read_speed(workers, 1 << 20, 2);
  CHECK(speed.bytes_per_second > 1e6 && speed.bytes_per_second < 1e14, speed.bytes_per_second);
  CHECK(speed.method[0] != '\0');
  CHECK(read_speed(workers, 1, 1).bytes_per_second > 0.0);  // rounded up to a few pages a worker
}
