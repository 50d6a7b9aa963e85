// Where a step's time goes: a stopwatch that worker 0 carries through the stages.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

namespace ultrafast {

enum class Stage : int { kEmbed, kQkv, kAttention, kOutput, kGateUp, kDown, kLogits, kSampling, kBetween };
constexpr std::array<const char*, 9> kStageNames = {"embed", "qkv",    "attention", "output",  "gate_up",
                                                    "down",  "logits", "sampling",  "between"};

// Nanoseconds of one worker by stage: at work, and waiting for the others at the stage's barriers.
class Profile {
 public:
  struct Times {
    int64_t work_ns = 0;
    int64_t wait_ns = 0;
  };

  void start(Stage stage) {
    stage_ = stage;
    mark_ = Clock::now();
  }
  // What follows belongs to `stage`.
  void enter(Stage stage) {
    times(stage_).work_ns += lap();
    stage_ = stage;
  }
  // Times a wait apart from the work around it.
  template <class Wait>
  void wait(Wait wait) {
    times(stage_).work_ns += lap();
    wait();
    times(stage_).wait_ns += lap();
  }
  void stop(int steps) {
    times(stage_).work_ns += lap();
    steps_ += steps;
  }

  const std::array<Times, kStageNames.size()>& stages() const { return stages_; }
  int64_t steps() const { return steps_; }

 private:
  using Clock = std::chrono::steady_clock;

  Times& times(Stage stage) { return stages_[static_cast<size_t>(stage)]; }
  int64_t lap() {
    const Clock::time_point now = Clock::now();
    const int64_t ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now - mark_).count();
    mark_ = now;
    return ns;
  }

  std::array<Times, kStageNames.size()> stages_{};
  int64_t steps_ = 0;
  Stage stage_ = Stage::kBetween;
  Clock::time_point mark_;
};

}  // namespace ultrafast
