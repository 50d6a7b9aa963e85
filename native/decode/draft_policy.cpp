#include "decode/draft_policy.h"

#include <algorithm>

namespace ultrafast {

namespace {

constexpr double kMargin = 1.03;

// Before anything is known of a sequence: a client that predicts means it, and what agreed for long goes on agreeing.
constexpr double kPriors[kNumDraftSources][6] = {
    {0.3, 0.5, 0.6, 0.7, 0.8, 0.9},    // prediction
    {0.0, 0.2, 0.35, 0.5, 0.65, 0.8},  // context
    {0.0, 0.2, 0.35, 0.5, 0.65, 0.8},  // memory
    {0.6, 0.6, 0.6, 0.6, 0.6, 0.6},    // model
};
constexpr double kPriorWeight = 2.0;  // tokens
constexpr double kKept = 0.8;         // of a tally's weight at every draft
constexpr double kLeastCost = 0.02;   // of a row, in plain steps: none is free, whatever noisy measurements say

}  // namespace

void StepCosts::measured(int rows, double seconds) {
  Step& step = steps_[static_cast<size_t>(rows)];
  ++clock_;
  if (is_known(rows)) {
    step.count = std::min(step.count + 1, kMostWeight);
    const double ratio = std::min(seconds / step.seconds, 2.0);  // another program's time slice is no cost
    const double change = 1.0 + (ratio - 1.0) / step.count;
    for (Step& other : steps_) other.seconds *= 1.0 + kCommon * (change - 1.0);
    step.seconds *= change / (1.0 + kCommon * (change - 1.0));
  } else {
    const bool anything_known = std::any_of(steps_.begin(), steps_.end(), [](const Step& other) { return other.seconds > 0.0; });
    step.seconds = anything_known ? std::min(seconds, kDoubt * of(rows)) : seconds;
    step.count = 1;
  }
  step.measured_at = clock_;
}

double StepCosts::of(int rows) const {
  const int last = static_cast<int>(steps_.size()) - 1;
  int below = std::min(rows, last), above = rows;
  while (below > 0 && !is_known(below)) --below;
  while (above <= last && !is_known(above)) ++above;
  const auto sloped = [](int r) { return 1.0 + kSlope * r; };
  if (below == rows && below > 0) return steps_[static_cast<size_t>(rows)].seconds;
  if (below == 0 && above > last) return sloped(rows);
  if (below == 0) return of(above) * sloped(rows) / sloped(above);
  const double hoped = of(below) * sloped(rows) / sloped(below);
  return above > last ? hoped : std::min(hoped, of(above));
}

size_t DraftRecord::bucket(int match_length) {
  size_t bits = 0;
  for (; match_length > 0; match_length /= 2) ++bits;
  return std::min(bits, static_cast<size_t>(kNumBuckets) - 1);
}

DraftRecord::DraftRecord() {
  for (size_t source = 0; source < kNumDraftSources; ++source)
    for (size_t i = 0; i < kNumBuckets; ++i) tallies_[source][i] = {kPriorWeight * kPriors[source][i], kPriorWeight};
}

double DraftRecord::chance(DraftSource source, int match_length) const {
  const Tally& tally = tallies_[static_cast<size_t>(source)][bucket(match_length)];
  return tally.accepted / tally.tried;
}

void DraftRecord::verified(DraftSource source, int match_length, int drafted, int accepted) {
  Tally& tally = tallies_[static_cast<size_t>(source)][bucket(match_length)];
  tally.accepted = kKept * tally.accepted + accepted;
  tally.tried = kKept * tally.tried + std::min(drafted, accepted + 1);  // what follows the first miss says nothing
  credit_ = std::min(credit_ + accepted, kMaxCredit);
  accepted_ += accepted;
  rejected_ += drafted - accepted;
}

void DraftRecord::stepped(int outputs, int drafted, double overhead) {
  credit_ = std::min(credit_ - overhead + outputs * (1.0 / kProbeEvery), kMaxCredit);
  outputs_since_draft_ = drafted > 0 ? 0 : outputs_since_draft_ + outputs;
}

namespace {

// Seconds of a step of `rows` rows and so many drafted ones.
double cost_with(const StepCosts& costs, int rows, int drafted) {
  return std::max(costs.of(rows + drafted), costs.of(rows) * (1.0 + kLeastCost * drafted));
}

// Gives the most probable token that nobody drafts yet to its offer; nullptr when there is none.
DraftOffer* draft_one_more(std::vector<DraftOffer>& offers) {
  DraftOffer* best = nullptr;
  const auto next = [](const DraftOffer& offer) { return offer.all_accepted * offer.chance; };
  for (DraftOffer& offer : offers)
    if (offer.count < offer.limit && (best == nullptr || next(offer) > next(*best))) best = &offer;
  if (best == nullptr) return nullptr;
  ++best->count;
  best->all_accepted *= best->chance;
  return best;
}

void clear(std::vector<DraftOffer>& offers) {
  for (DraftOffer& offer : offers) offer.count = 0, offer.all_accepted = 1.0;
}

}  // namespace

void plan_drafts(const StepCosts& costs, int rows, int outputs, int max_rows, std::vector<DraftOffer>& offers) {
  // Costs are no smooth curve: of all the numbers of drafted tokens the best is taken.
  const double plain = costs.of(rows);
  double expected = outputs, drafting = 0.0, best_rate = kMargin * expected / plain;
  int best = 0;
  clear(offers);
  for (int drafted = 1; rows + drafted <= max_rows; ++drafted) {
    const DraftOffer* offer = draft_one_more(offers);
    if (offer == nullptr) break;
    expected += offer->all_accepted;
    drafting += offer->seconds;
    if (const double rate = expected / (cost_with(costs, rows, drafted) + drafting); rate > best_rate) best_rate = rate, best = drafted;
  }
  clear(offers);
  for (int drafted = 0; drafted < best; ++drafted) draft_one_more(offers);
  for (DraftOffer& offer : offers)
    if (offer.probe && offer.count == 0 && offer.limit > 0 && rows + best < max_rows) ++offer.count, ++best;
  const double verifying = best > 0 ? (cost_with(costs, rows, best) - plain) / best : 0.0;
  for (DraftOffer& offer : offers) offer.overhead = outputs * offer.count * (verifying + offer.seconds) / plain;
}

double best_rate(const StepCosts& costs, const DraftOffer& offer) {
  double expected = 1.0, all_accepted = 1.0, best = expected / costs.of(1);
  for (int drafted = 1; drafted <= offer.limit; ++drafted) {
    expected += all_accepted *= offer.chance;
    best = std::max(best, expected / (cost_with(costs, 1, drafted) + drafted * offer.seconds));
  }
  return best;
}

}  // namespace ultrafast
