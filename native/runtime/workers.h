// The pool of pinned workers that runs every native job: all workers enter the same function (SPMD) and meet at barriers.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/profile.h"

namespace ultrafast {

// Sense-reversing barrier. Waiters spin, since the others arrive within microseconds; when they do not (fewer cores than
// workers), they yield the processor.
class Barrier {
 public:
  explicit Barrier(int parties) : parties_(parties) {}

  void wait() noexcept {
    const uint32_t phase = phase_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == parties_) {
      arrived_.store(0, std::memory_order_relaxed);
      phase_.store(phase + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; phase_.load(std::memory_order_acquire) == phase; ++spins) {
      if (spins < kSpins) {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
      } else {
        std::this_thread::yield();
      }
    }
  }

 private:
  static constexpr int kSpins = 4000;  // about 50 us: longer than any stage's imbalance, shorter than a time slice
  const int parties_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
};

// One per worker, handed to every function that runs on the pool.
struct Worker {
  int index;
  int count;
  Barrier* barrier;
  Profile* profile = nullptr;  // of worker 0, while somebody profiles

  void sync() const noexcept {
    if (profile == nullptr)
      barrier->wait();
    else
      profile->wait([this] { barrier->wait(); });
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
