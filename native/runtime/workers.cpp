#include "runtime/workers.h"

#ifdef __linux__
#include <pthread.h>
#include <sched.h>
#endif

namespace ultrafast {

namespace {

bool pin_this_thread([[maybe_unused]] int cpu) {
#ifdef __linux__
  if (cpu < 0 || cpu >= CPU_SETSIZE) return false;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0;
#else
  return false;
#endif
}

// Processors that this process may run on.
int num_processors() {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
  return static_cast<int>(std::thread::hardware_concurrency());
}

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // `yield` does nothing on most cores
#endif
}

}  // namespace

bool Barrier::spin(uint32_t phase, const uint8_t* ahead) const noexcept {
  constexpr int kLine = 64;
  const uint8_t* const end = ahead == nullptr ? nullptr : ahead + kAheadBytes;
  const auto start = std::chrono::steady_clock::now();
  do {
    for (int looks = 32; looks > 0; --looks) {  // about a microsecond
      if (has_ended(phase)) return true;
      if (ahead != end) {
        __builtin_prefetch(ahead);
        ahead += kLine;
      } else {
        relax();
      }
    }
  } while (std::chrono::steady_clock::now() - start < kPatience);
  return false;
}

bool Barrier::yield(uint32_t phase) const noexcept {
  for (int i = 0; i < kYields && !has_ended(phase); ++i) std::this_thread::yield();
  return has_ended(phase);
}

void Barrier::await_end(uint32_t phase, const uint8_t* ahead) noexcept {
  if (crowded_ ? yield(phase) : spin(phase, ahead)) return;
  while (!has_ended(phase)) {
    uint32_t seen = phase;
    if (phase_.compare_exchange_strong(seen, phase | kSleepers) || seen == (phase | kSleepers)) park(phase_, phase | kSleepers);
  }
}

Workers::Workers(const std::vector<int>& cpus)
    : parties_(static_cast<int>(cpus.size())), barrier_(parties_, parties_ > num_processors()) {
  threads_.reserve(cpus.size());
  try {
    for (size_t i = 0; i < cpus.size(); ++i) threads_.emplace_back(&Workers::loop, this, static_cast<int>(i), cpus[i]);
  } catch (...) {  // the system has no more threads to give: the destructor will not run
    stop();
    throw;
  }
  run([](const Worker&) {});  // all are up, and pinned, before the first real job touches memory
}

Workers::~Workers() { stop(); }

void Workers::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::run(const std::function<void(const Worker&)>& job) {
  std::lock_guard turn(caller_mutex_);
  std::unique_lock lock(mutex_);
  job_ = &job;
  running_ = count();
  ++generation_;
  wake_.notify_all();
  done_.wait(lock, [this] { return running_ == 0; });
  job_ = nullptr;
}

void Workers::loop(int index, int cpu) {
  if (pin_this_thread(cpu)) pinned_.fetch_add(1);
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stopping_ || generation_ != seen; });
    if (stopping_) return;
    seen = generation_;
    const auto* job = job_;
    const Worker worker{index, parties_, &barrier_};
    lock.unlock();
    (*job)(worker);
    lock.lock();
    if (--running_ == 0) done_.notify_one();
  }
}

}  // namespace ultrafast
