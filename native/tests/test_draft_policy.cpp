// How many tokens are drafted: by what steps cost, by how drafts fared, and that failing drafts stay cheap.
#include <algorithm>
#include <cmath>
#include <vector>

#include "decode/draft_policy.h"
#include "tests/check.h"
#include "tests/random.h"

using namespace ultrafast;
using ultrafast::test::Random;

namespace {

// Steps of up to 4 rows cost nearly the same, and 8 rows twice as much.
double staircase(int rows) { return rows == 1 ? 1.0 : rows <= 4 ? 1.3 : 1.3 + 0.3 * (rows - 4); }

StepCosts measured(double (*cost)(int), int rows = 64) {
  StepCosts costs(rows);
  for (int times = 0; times < 100; ++times)
    for (int r = 1; r <= rows; ++r) costs.measured(r, cost(r));
  return costs;
}

int planned(const StepCosts& costs, double chance, int limit = kMaxDraft, bool probe = false) {
  std::vector<DraftOffer> offers{{chance, limit, probe}};
  plan_drafts(costs, 1, 1, 64, offers);
  return offers[0].count;
}

struct Outcome {
  double seconds = 0.0;
  int drafted = 0;
};

// A sequence of `tokens` whose drafts hold with probability `truth`, in steps that take staircase(rows).
// Measured are these times with `noise`, on a machine that is every now and then so many times slower.
Outcome simulate(double truth, int tokens, StepCosts& costs, double noise = 0.0, double slower = 1.0) {
  Random random(3);
  DraftRecord record;
  Outcome outcome;
  for (int made = 0; made < tokens;) {
    std::vector<DraftOffer> offers;
    const int match_length = random.below(12);
    const DraftSource source = match_length % 2 ? DraftSource::kContext : DraftSource::kPrediction;
    if (record.can_pay()) offers.push_back({record.chance(source, match_length), kMaxDraft, record.should_probe()});
    plan_drafts(costs, 1, 1, 64, offers);
    const int drafted = offers.empty() ? 0 : offers[0].count;
    int accepted = 0;
    while (accepted < drafted && random.uniform() < truth) ++accepted;
    if (drafted > 0) record.verified(source, match_length, drafted, accepted);
    record.stepped(1 + accepted, drafted, costs.of(1 + drafted) / costs.of(1) - 1.0);
    const double pace = made / 150 % 2 == 0 ? 1.0 : slower;
    costs.measured(1 + drafted, pace * staircase(1 + drafted) * std::max(0.1, 1.0 + noise * random.normal()));
    outcome.seconds += staircase(1 + drafted);
    outcome.drafted += drafted;
    made += 1 + accepted;
  }
  CHECK(record.accepted() + record.rejected() == outcome.drafted);
  return outcome;
}

}  // namespace

TEST(decode, costs_are_measured_or_hoped_for) {
  StepCosts costs(16);
  CHECK(costs.of(8) > costs.of(1) && costs.of(8) < 1.5 * costs.of(1));  // nothing is known: a gentle slope
  costs.measured(1, 2.0);
  CHECK(costs.of(1) == 2.0 && costs.of(8) > 2.0 && costs.of(8) < 3.0);
  costs.measured(9, 6.0);
  CHECK(costs.of(9) > 3.0 && costs.of(9) < 5.0, costs.of(9));  // it was probably disturbed
  for (int i = 0; i < 200; ++i) costs.measured(9, 6.0);
  CHECK(std::fabs(costs.of(9) - 6.0) < 1e-3 && costs.of(16) > 6.0 && costs.of(16) < 9.0);
  CHECK(costs.of(1) > 2.0 && costs.of(1) < 3.0 && costs.of(5) < 1.3 * costs.of(1));  // in part it is the machine that got slower
  CHECK(costs.of(100) > costs.of(16));
  for (int i = 0; i < 100; ++i) costs.measured(9, 4.0);
  CHECK(std::fabs(costs.of(9) - 4.0) < 0.01, costs.of(9));
  costs.measured(9, 1000.0);  // the machine did something else meanwhile
  CHECK(costs.of(9) < 5.0, costs.of(9));
}

TEST(decode, an_old_measurement_is_forgotten) {
  StepCosts costs(8);
  costs.measured(4, 100.0);
  for (int i = 0; i < 5000; ++i) costs.measured(1, 1.0);
  CHECK(costs.of(4) < 2.0, costs.of(4));  // 4 rows are worth trying again
}

TEST(decode, as_much_is_drafted_as_pays) {
  const StepCosts costs = measured(staircase);
  CHECK(planned(costs, 0.1) == 0 && planned(costs, 0.0) == 0);
  CHECK(planned(costs, 0.7) == 3);   // what the first step of the stairs holds
  CHECK(planned(costs, 0.99) == 7);
  CHECK(planned(costs, 0.99, 2) == 2 && planned(costs, 0.99, 0) == 0);
  CHECK(planned(costs, 0.1, 7, true) == 1 && planned(costs, 0.1, 0, true) == 0 && planned(costs, 0.99, 7, true) == 7);
  for (const double chance : {0.3, 0.5, 0.6, 0.8, 0.9, 0.97}) {  // against every number there is
    double best = 1.03 / staircase(1), expected = 1.0;
    int want = 0;
    for (int d = 1; d <= kMaxDraft; ++d) {
      expected += std::pow(chance, d);
      if (expected / staircase(1 + d) > best) best = expected / staircase(1 + d), want = d;
    }
    CHECK(planned(costs, chance) == want, chance, want);
  }
}

TEST(decode, the_most_probable_tokens_get_the_rows) {
  const StepCosts costs = measured([](int) { return 1.0; });
  std::vector<DraftOffer> offers{{0.5, 7, false}, {0.9, 7, false}, {0.9, 1, false}};
  plan_drafts(costs, 3, 3, 9, offers);  // 0.9 0.9 0.81 0.729 0.6561 0.59049 | 0.531441 0.5
  CHECK(offers[0].count == 0 && offers[1].count == 5 && offers[2].count == 1, offers[0].count, offers[1].count, offers[2].count);
  plan_drafts(costs, 3, 3, 3, offers);
  CHECK(offers[0].count + offers[1].count + offers[2].count == 0);  // the step is full
  offers = {{0.0, 7, true}, {0.0, 7, true}};
  plan_drafts(costs, 2, 2, 3, offers);
  CHECK(offers[0].count + offers[1].count == 1);  // probes keep to the limit too
}

TEST(decode, a_draft_that_costs_time_must_earn_it) {
  const StepCosts costs = measured(staircase);
  const auto planned_at = [&](double chance, double seconds) {
    std::vector<DraftOffer> offers{{chance, 7, false, seconds}};
    plan_drafts(costs, 1, 1, 64, offers);
    return offers[0].count;
  };
  CHECK(planned_at(0.7, 0.0) == 3 && planned_at(0.7, 0.1) == 3 && planned_at(0.7, 0.6) == 0);
  CHECK(best_rate(costs, {0.7, 3, false}) > best_rate(costs, {0.7, 3, false, 0.1}));
  CHECK(std::fabs(best_rate(costs, {0.7, 3, false, 0.1}) - (1 + 0.7 + 0.49 + 0.343) / (1.3 + 0.3)) < 1e-9);
  CHECK(best_rate(costs, {0.1, 3, false, 0.5}) == 1.0);  // no draft is better
  std::vector<DraftOffer> offers{{0.9, 2, false, 0.2}, {0.0, 0, false}};
  plan_drafts(costs, 2, 2, 64, offers);
  CHECK(offers[0].count == 2 && std::fabs(offers[0].overhead - 2 * (0.04 + 0.4 / 1.3)) < 1e-9 && offers[1].overhead == 0.0, offers[0].overhead);
}

TEST(decode, a_chance_is_learnt_by_source_and_match) {
  DraftRecord record;
  CHECK(record.chance(DraftSource::kPrediction, 20) > 0.8 && record.chance(DraftSource::kContext, 2) < 0.5);
  const double before = record.chance(DraftSource::kContext, 20);
  for (int i = 0; i < 20; ++i) record.verified(DraftSource::kContext, 2 + i % 2, 7, 7);
  CHECK(record.chance(DraftSource::kContext, 3) > 0.9 && record.chance(DraftSource::kContext, 20) == before);
  for (int i = 0; i < 20; ++i) record.verified(DraftSource::kContext, 3, 4, 0);
  CHECK(record.chance(DraftSource::kContext, 2) < 0.2, record.chance(DraftSource::kContext, 2));
  for (int i = 0; i < 50; ++i) record.verified(DraftSource::kMemory, 40, 2, 1);  // every second token
  CHECK(std::fabs(record.chance(DraftSource::kMemory, 99) - 0.5) < 0.06, record.chance(DraftSource::kMemory, 99));
  CHECK(record.accepted() == 190 && record.rejected() == 130);
}

TEST(decode, drafts_that_never_hold_cost_little) {
  StepCosts costs = measured(staircase);
  const Outcome never = simulate(0.0, 2000, costs);
  CHECK(never.seconds < 1.02 * 2000 + 2.0, never.seconds);  // plain: a second a token
  CHECK(never.drafted >= 20 && never.drafted <= 120, never.drafted);  // one now and then: things may change
  StepCosts noisy(64);
  CHECK(simulate(0.0, 2000, noisy, 0.2).seconds < 1.03 * 2000 + 3.0, simulate(0.0, 2000, noisy, 0.2).seconds);
  StepCosts unknown(64);
  CHECK(simulate(0.0, 2000, unknown).seconds < 1.02 * 2000 + 3.0);
}

TEST(decode, drafts_that_hold_are_used) {
  StepCosts costs = measured(staircase);
  CHECK(simulate(1.0, 2000, costs).seconds < 1.1 * 2000 * staircase(8) / 8);
  double expected = 1.0, best = 1.0;
  for (int d = 1; d <= kMaxDraft; ++d) best = std::max(best, (expected += std::pow(0.8, d)) / staircase(1 + d));
  CHECK(simulate(0.8, 4000, costs).seconds < 1.1 * 4000 / best, best);
  StepCosts unknown(64);
  CHECK(simulate(1.0, 2000, unknown).seconds < 1.1 * 2000 * staircase(8) / 8);
  StepCosts unsteady(64);
  const double seconds = simulate(1.0, 4000, unsteady, 0.2, 3.0).seconds;
  CHECK(seconds < 1.25 * 4000 * staircase(8) / 8, seconds, 4000 * staircase(8) / 8);
}
