#include "kernels/lanes_avx2.h"

#include "kernels/kernels_inl.h"

namespace ultrafast {

extern const KernelTable kernel_table_avx2;
constexpr KernelTable kernel_table_avx2 = make_table("avx2");

}  // namespace ultrafast
