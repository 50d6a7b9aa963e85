#include "kernels/lanes_scalar.h"

#include "kernels/kernels_inl.h"

namespace ultrafast {

extern const KernelTable kernel_table_scalar;
constexpr KernelTable kernel_table_scalar = make_table("scalar");

}  // namespace ultrafast
