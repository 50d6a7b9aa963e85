// The machine's own limit: how fast these workers can read memory.
#pragma once

#include <cstddef>

#include "runtime/workers.h"

namespace ultrafast {

struct ReadSpeed {
  double bytes_per_second;
  const char* method;  // the way of reading that gave it
};

// The fastest of several ways to read `bytes`, each by the median of `repeats` passes: from one to eight places at once,
// which keeps more of the hardware's prefetchers busy, or from one with prefetch instructions. The bytes are split evenly
// over the workers, each reading huge pages that it wrote first. Throws std::bad_alloc.
ReadSpeed read_speed(Workers& workers, size_t bytes, int repeats);

}  // namespace ultrafast
