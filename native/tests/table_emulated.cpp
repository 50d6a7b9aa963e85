// The avx512vnni kernels, compiled over the emulated intrinsics and under a name of their own.
#define ULTRAFAST_EMULATE_AVX512
#include "kernels/lanes_avx512vnni.h"

#include "kernels/kernels_inl.h"

namespace ultrafast {

extern const KernelTable kernel_table_emulated;
constexpr KernelTable kernel_table_emulated = make_table("avx512vnni-emulated");

}  // namespace ultrafast
