// The kernel tables under test.
#pragma once

#include <string>
#include <vector>

#include "kernels/dispatch.h"
#include "tests/check.h"

namespace ultrafast {

extern const KernelTable kernel_table_emulated;  // the avx512vnni kernels over emulate_avx512.h

namespace test {

inline const KernelTable& scalar() { return kernel_table_scalar; }

// Every table that this processor runs but scalar, which defines the answer; the emulated one runs anywhere.
inline std::vector<const KernelTable*> vector_tables() {
  std::vector<const KernelTable*> tables = {&kernel_table_emulated};
  for (const KernelTable* table : available_kernels()) {
    if (table == &kernel_table_scalar) continue;
    if (is_supported(*table))
      tables.push_back(table);
    else
      note(std::string("no ") + table->name + " here");
  }
  return tables;
}

}  // namespace test
}  // namespace ultrafast
