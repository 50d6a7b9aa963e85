// native_tests [AREA [NAME]]: runs the tests of an area, or all; the exit status is 1 if any failed, 2 if there were none.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tests/check.h"

namespace ultrafast::test {

namespace {

struct Test {
  const char* area;
  const char* name;
  void (*run)();
};

std::vector<Test>& registry() {
  static std::vector<Test> tests;
  return tests;
}

constexpr int kMostShown = 10;
int failures = 0;  // of the running test
std::string notes;

}  // namespace

Registration::Registration(const char* area, const char* name, void (*run)()) { registry().push_back({area, name, run}); }

void fail(const char* file, int line, const char* condition, const std::string& values) {
  if (++failures <= kMostShown) std::fprintf(stderr, "%s:%d: CHECK(%s) failed:%s\n", file, line, condition, values.c_str());
}

void note(const std::string& what) { notes += " (" + what + ")"; }

}  // namespace ultrafast::test

int main(int argc, char** argv) {
  using namespace ultrafast::test;
  int run = 0, failed = 0;
  for (const Test& test : registry()) {
    if (argc > 1 && std::strcmp(argv[1], test.area) != 0) continue;
    if (argc > 2 && std::strcmp(argv[2], test.name) != 0) continue;
    failures = 0;
    notes.clear();
    const auto start = std::chrono::steady_clock::now();
    test.run();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::printf("%s %s.%s %.2f s%s\n", failures == 0 ? "ok  " : "FAIL", test.area, test.name, seconds.count(), notes.c_str());
    std::fflush(stdout);
    ++run;
    failed += failures > 0;
  }
  std::printf("%d tests, %d failed\n", run, failed);
  return run == 0 ? 2 : failed > 0;
}
