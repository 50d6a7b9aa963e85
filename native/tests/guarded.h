// A buffer whose end is the end of readable memory: reading or writing past it is a crash, also without a sanitizer.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <new>

#include "tests/random.h"

namespace ultrafast::test {

template <class T>
class Guarded {
 public:
  // n zeros. The buffer ends `slack` elements before the guard page: with slack 1 it is aligned to nothing but T.
  explicit Guarded(size_t n, size_t slack = 0) : size_(n) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = ((n + slack) * sizeof(T) + page - 1) / page * page;
    mapped_ = bytes + page;
    base_ = static_cast<char*>(mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED || mprotect(base_ + bytes, page, PROT_NONE) != 0) throw std::bad_alloc();
    data_ = reinterpret_cast<T*>(base_ + bytes) - n - slack;
  }
  ~Guarded() { munmap(base_, mapped_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  T* data() const { return data_; }
  size_t size() const { return size_; }
  T* begin() const { return data_; }
  T* end() const { return data_ + size_; }
  T& operator[](size_t i) const { return data_[i]; }

 private:
  char* base_;
  size_t mapped_, size_;
  T* data_;
};

inline void fill(const Guarded<float>& buffer, Random& random, Style style) {
  for (float& x : buffer) x = number(random, style);
}

}  // namespace ultrafast::test
