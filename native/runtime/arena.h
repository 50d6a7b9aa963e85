// Memory that is reserved once and never moved: weights, KV blocks, scratch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ultrafast {

// Anonymous pages, zero until first written; the thread that first writes a page decides on which memory node it lies.
class Arena {
 public:
  Arena() = default;
  // Throws std::bad_alloc if the address space cannot be had. huge_pages asks for them; the kernel may decline.
  Arena(size_t bytes, bool huge_pages);
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Gives the pages that lie wholly in [offset, offset + bytes) back to the system: they read as zeros until written again.
  void release(size_t offset, size_t bytes) const;

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace ultrafast
