// The machine's own limit: how fast these workers can read memory.
#pragma once

#include <cstddef>

#include "runtime/workers.h"

namespace ultrafast {

// Bytes per second of the best of `repeats` sequential reads of `bytes` (split evenly over the workers, each reading memory that
// it wrote first). Throws std::bad_alloc.
double read_bandwidth(Workers& workers, size_t bytes, int repeats);

}  // namespace ultrafast
