// The pool of pinned workers that runs every native job: all workers enter the same function (SPMD) and meet at barriers.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/parking.h"
#include "runtime/profile.h"

namespace ultrafast {

// Sense-reversing barrier. The others arrive within microseconds as a rule, so waiters look again and again. Whoever has looked
// for kPatience in vain sleeps: some worker is not running, and another program may have the time. Where workers outnumber
// processors, waiters yield a few times instead of looking on: that brings the others on three times as quickly as sleeping does.
class Barrier {
 public:
  // `crowded`: more parties than processors to run them.
  Barrier(int parties, bool crowded) : parties_(parties), crowded_(crowded) {}

  // `ahead`: memory that the caller reads next; while it waits it brings the first of it near. May be null.
  void wait(const uint8_t* ahead = nullptr) noexcept {
    const uint32_t phase = phase_.load(std::memory_order_relaxed) & ~kSleepers;
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < parties_) return await_end(phase, ahead);
    arrived_.store(0, std::memory_order_relaxed);
    if (phase_.exchange(phase + 2, std::memory_order_acq_rel) & kSleepers) unpark_all(phase_);
  }

 private:
  // 99 in 100 waits of decode steps end within it (docs/performance.md).
  static constexpr std::chrono::microseconds kPatience{50};
  static constexpr int kYields = 16;
  static constexpr int kAheadBytes = 16 * 1024;  // half of the nearest cache of most processors
  static constexpr uint32_t kSleepers = 1;  // in phase_: someone sleeps, or is about to

  bool has_ended(uint32_t phase) const noexcept { return (phase_.load(std::memory_order_acquire) & ~kSleepers) != phase; }
  void await_end(uint32_t phase, const uint8_t* ahead) noexcept;
  bool spin(uint32_t phase, const uint8_t* ahead) const noexcept;  // these two tell whether the phase ended meanwhile
  bool yield(uint32_t phase) const noexcept;

  const int parties_;
  const bool crowded_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};  // counts in twos
};

// One per worker, handed to every function that runs on the pool.
struct Worker {
  int index;
  int count;
  Barrier* barrier;
  Profile* profile = nullptr;  // of worker 0, while somebody profiles

  // Meets the other workers; `ahead` as in Barrier::wait.
  void sync(const uint8_t* ahead = nullptr) const noexcept {
    if (profile == nullptr)
      barrier->wait(ahead);
    else
      profile->wait([this, ahead] { barrier->wait(ahead); });
  }
  // What follows is work of `stage`.
  void enter(Stage stage) const noexcept {
    if (profile != nullptr) profile->enter(stage);
  }
  // This worker's share of n equal units: [first, last).
  int64_t first(int64_t n) const { return n * index / count; }
  int64_t last(int64_t n) const { return n * (index + 1) / count; }
};

class Workers {
 public:
  // One thread per entry of `cpus`, pinned to that processor where the system allows; a negative entry is not pinned.
  explicit Workers(const std::vector<int>& cpus);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int count() const { return parties_; }
  int pinned() const { return pinned_.load(); }

  // Runs job(worker) on all workers and returns when all have returned. Idle workers sleep in the kernel. The job must not
  // throw. Callers take turns.
  void run(const std::function<void(const Worker&)>& job);

 private:
  void loop(int index, int cpu);
  void stop();

  const int parties_;
  Barrier barrier_;
  std::mutex caller_mutex_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(const Worker&)>* job_ = nullptr;
  uint64_t generation_ = 0;
  int running_ = 0;
  bool stopping_ = false;
  std::atomic<int> pinned_{0};
  std::vector<std::thread> threads_;
};

}  // namespace ultrafast
