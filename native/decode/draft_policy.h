// How many tokens to draft: what steps cost by their rows, how often drafts came true, and the numbers that follow from both.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ultrafast {

constexpr int kMaxDraft = 7;  // drafted tokens that a step verifies for one sequence: with its pending token 8 rows

// Seconds of a step by its number of rows, as measured lately.
class StepCosts {
 public:
  // Measurements are kept of up to max_rows rows; more can be asked for.
  explicit StepCosts(int max_rows) : steps_(static_cast<size_t>(max_rows) + 1) {}

  void measured(int rows, double seconds);  // at most max_rows

  // Rows not measured lately are hoped to add just kSlope each to what fewer rows cost, so that they are tried when that would
  // make them the best.
  double of(int rows) const;

 private:
  static constexpr int kMostWeight = 8;    // the latest measurement weighs 1 / 8 of the moving mean, or more of a young one
  static constexpr double kCommon = 0.5;   // of what a measurement changes, that holds for all rows: the machine's own pace
  static constexpr double kDoubt = 1.5;    // so much above the expected a first measurement is believed: it may be disturbed
  static constexpr double kSlope = 0.04;
  static constexpr int64_t kLately = 512;  // steps: contexts grow, and a mean that an outlier spoiled must not stay

  struct Step {
    double seconds = 0.0;
    int64_t measured_at = 0;
    int count = 0;  // of measurements, kMostWeight at most
  };
  bool is_known(int rows) const {
    const Step& step = steps_[static_cast<size_t>(rows)];
    return step.seconds > 0.0 && clock_ - step.measured_at < kLately;
  }

  std::vector<Step> steps_;  // by rows
  int64_t clock_ = 0;        // measurements made
};

enum class DraftSource : int { kPrediction, kContext, kMemory, kModel };
constexpr int kNumDraftSources = 4;

// How the drafts of one sequence fared.
class DraftRecord {
 public:
  DraftRecord();

  // The chance that a drafted token is accepted if all before it were. match_length: what the source says for itself, tokens
  // that agreed before the draft.
  double chance(DraftSource source, int match_length) const;

  // A draft was verified.
  void verified(DraftSource source, int match_length, int drafted, int accepted);

  // A step made `outputs` tokens of this sequence; its draft, if any, cost `overhead`, in plain steps.
  void stepped(int outputs, int drafted, double overhead);

  // Drafts are paid from an account, filled by accepted tokens and by little else: even when nothing is ever accepted, all of
  // them together cost no more than a fixed few steps and 1 / 64 of the output.
  bool can_pay() const { return credit_ > 0.0; }

  // Nothing was drafted for so long that it is time to try again, however small the chance seems.
  bool should_probe() const { return outputs_since_draft_ >= kProbeEvery; }

  int accepted() const { return accepted_; }
  int rejected() const { return rejected_; }

 private:
  static constexpr int kNumBuckets = 6;  // match lengths 0, 1, 2-3, 4-7, 8-15, more
  static constexpr int kProbeEvery = 64;
  static constexpr double kMaxCredit = 3.0;

  struct Tally {
    double accepted = 0.0, tried = 0.0;  // tokens, older ones weighing less
  };
  static size_t bucket(int match_length);

  std::array<std::array<Tally, kNumBuckets>, kNumDraftSources> tallies_;
  double credit_ = 1.0;  // plain steps
  int outputs_since_draft_ = 0;
  int accepted_ = 0, rejected_ = 0;
};

// What one sequence could draft, and what it shall.
struct DraftOffer {
  double chance;         // of every token, if all before it are accepted
  int limit;             // tokens there are
  bool probe;            // draft one token at least
  double seconds = 0.0;  // that drafting a token takes
  int count = 0;         // the answer
  double all_accepted = 1.0;  // the chance that all `count` tokens are
  double overhead = 0.0;      // plain steps that drafting and verifying them costs all sequences of the step
};

// Chooses the counts that make the most tokens per second of a step which has `rows` rows without drafts and makes `outputs`
// tokens. Nothing is drafted for a gain within the margin, which is what measurements are good for, nor past max_rows.
//
// For whatever is drafted, the rate of tokens is sum_{i = 0..d} chance^i / (cost(rows) + d seconds): Leviathan, Kalman, Matias:
// "Fast inference from transformers via speculative decoding", ICML 2023, but with costs that depend on the rows.
void plan_drafts(const StepCosts& costs, int rows, int outputs, int max_rows, std::vector<DraftOffer>& offers);

// Tokens per second of a sequence by itself that takes up the offer as far as it pays.
double best_rate(const StepCosts& costs, const DraftOffer& offer);

}  // namespace ultrafast
