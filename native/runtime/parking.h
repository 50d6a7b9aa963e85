// Sleeping in the kernel until a word changes, and waking who sleeps.
#pragma once

#include <atomic>
#include <cstdint>

#ifdef __linux__
#include <climits>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <chrono>
#include <thread>
#endif

namespace ultrafast {

// Returns after unpark_all(word), at once when the word is not `expected`, and sometimes for no reason: look again.
inline void park([[maybe_unused]] const std::atomic<uint32_t>& word, [[maybe_unused]] uint32_t expected) noexcept {
#ifdef __linux__
  static_assert(sizeof word == sizeof expected);
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
#else
  std::this_thread::sleep_for(std::chrono::microseconds(50));  // nothing portable waits on a word: nap
#endif
}

inline void unpark_all([[maybe_unused]] const std::atomic<uint32_t>& word) noexcept {
#ifdef __linux__
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
#endif
}

}  // namespace ultrafast
