// The arithmetic limit of a machine: how fast the kernels themselves are when everything that they read lies in the nearest caches.
#pragma once

#include "kernels/kernels.h"
#include "runtime/workers.h"

namespace ultrafast {

// Multiply-adds per second of all workers together, each running the matmul kernel over row groups of its own, `cols` wide (a
// multiple of 32), times `tokens` activation rows. Throws std::bad_alloc.
double matmul_speed(Workers& workers, const KernelTable& kernels, TileKind kind, int cols, int tokens);

// The same for attention: `num_q` queries that share a KV head of `head_dim` dimensions, over one full chunk of positions.
double attention_speed(Workers& workers, const KernelTable& kernels, int num_q, int head_dim);

}  // namespace ultrafast
