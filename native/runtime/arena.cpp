#include "runtime/arena.h"

#include <sys/mman.h>

#include <new>
#include <utility>

namespace ultrafast {

namespace {
constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;
}

Arena::Arena(size_t bytes, bool huge_pages) {
  if (bytes == 0) return;
  const size_t unit = huge_pages ? kHugePage : kPage;
  if (bytes > SIZE_MAX - unit) throw std::bad_alloc();
  size_ = (bytes + unit - 1) / unit * unit;
  void* pages = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) {
    size_ = 0;
    throw std::bad_alloc();
  }
  data_ = static_cast<uint8_t*>(pages);
#ifdef MADV_HUGEPAGE
  if (huge_pages) madvise(pages, size_, MADV_HUGEPAGE);
#endif
}

void Arena::release(size_t offset, size_t bytes) const {
  const size_t first = (offset + kPage - 1) / kPage * kPage, last = (offset + bytes) / kPage * kPage;
  if (first < last) madvise(data_ + first, last - first, MADV_DONTNEED);
}

Arena::~Arena() {
  if (data_ != nullptr) munmap(data_, size_);
}

Arena::Arena(Arena&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace ultrafast
