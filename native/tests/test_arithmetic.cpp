// The speeds of the kernels alone: plausible for every format, and nothing is read that was not written.
#include "kernels/dispatch.h"
#include "model/arithmetic.h"
#include "tests/check.h"

using namespace ultrafast;
using namespace ultrafast::test;

TEST(model, kernels_have_a_speed) {
  Workers workers({-1, -1});
  for (const KernelTable* table : available_kernels()) {
    if (!is_supported(*table)) continue;
    for (int kind = 0; kind < kNumTileKinds; ++kind) {
      const double speed = matmul_speed(workers, *table, static_cast<TileKind>(kind), 64, 3);
      CHECK(speed > 1e4 && speed < 1e14, table->name, kind, speed);
    }
    const double speed = attention_speed(workers, *table, 3, 20);
    CHECK(speed > 1e4 && speed < 1e14, table->name, speed);
  }
}
