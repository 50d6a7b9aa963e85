#include "kernels/dispatch.h"

namespace ultrafast {

std::vector<const KernelTable*> available_kernels() {
#ifdef ULTRAFAST_HAVE_X86_KERNELS
  return {&kernel_table_avx512vnni, &kernel_table_avx2, &kernel_table_scalar};
#else
  return {&kernel_table_scalar};
#endif
}

bool is_supported(const KernelTable& table) {
  if (&table == &kernel_table_scalar) return true;
#ifdef ULTRAFAST_HAVE_X86_KERNELS
  // The compiler's run-time check reads CPUID and, through XGETBV, what the operating system saves. F16C, which some
  // compilers do not know by name, came to every processor line before AVX2 did.
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  if (&table == &kernel_table_avx2) return avx2;
  if (&table == &kernel_table_avx512vnni)
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
#endif
  return false;
}

const KernelTable* find_kernels(std::string_view name) {
  for (const KernelTable* table : available_kernels())
    if (name == table->name && is_supported(*table)) return table;
  return nullptr;
}

}  // namespace ultrafast
