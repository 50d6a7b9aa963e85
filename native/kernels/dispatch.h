// Which kernel tables are built in, and which this processor (and its operating system) can run.
#pragma once

#include <string_view>
#include <vector>

#include "kernels/kernels.h"

namespace ultrafast {

// Best first; every table built into this binary.
std::vector<const KernelTable*> available_kernels();

// True if the processor has the instructions and the operating system saves the registers.
bool is_supported(const KernelTable& table);

// The named table, or nullptr if the name is unknown or the table not supported here.
const KernelTable* find_kernels(std::string_view name);

}  // namespace ultrafast
