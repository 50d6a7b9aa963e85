#include "kernels/lanes_avx512vnni.h"

#include "kernels/kernels_inl.h"

namespace ultrafast {

extern const KernelTable kernel_table_avx512vnni;
constexpr KernelTable kernel_table_avx512vnni = make_table("avx512vnni");

}  // namespace ultrafast
