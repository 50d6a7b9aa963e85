// The test harness: TEST(area, name) registers a function, CHECK reports file, line and values, and the test goes on.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>

#include "kernels/f16.h"

namespace ultrafast::test {

struct Registration {
  Registration(const char* area, const char* name, void (*run)());
};

void fail(const char* file, int line, const char* condition, const std::string& values);
void note(const std::string& what);  // printed beside the test's name: a part that this machine cannot run

template <class... Values>
std::string describe(const Values&... values) {
  std::ostringstream out;
  out.precision(9);
  ((out << ' ' << values), ...);
  return out.str();
}

// Equal bit for bit. Which operand's NaN an operation passes on is up to the compiler, so any NaN equals any other.
inline bool same_bits(float a, float b) { return f32_to_bits(a) == f32_to_bits(b) || (a != a && b != b); }
inline bool same_bits(const float* a, const float* b, size_t n) {
  for (size_t i = 0; i < n; ++i)
    if (!same_bits(a[i], b[i])) return false;
  return true;
}

}  // namespace ultrafast::test

#define TEST(area, name)                                                                              \
  static void test_##area##_##name();                                                                 \
  static const ::ultrafast::test::Registration register_##area##_##name{#area, #name, test_##area##_##name}; \
  static void test_##area##_##name()

// CHECK(condition, values...): the values, say the loop variables, are shown when it fails.
#define CHECK(condition, ...)                                                                                        \
  do {                                                                                                               \
    if (!(condition)) ::ultrafast::test::fail(__FILE__, __LINE__, #condition, ::ultrafast::test::describe(__VA_ARGS__)); \
  } while (0)
