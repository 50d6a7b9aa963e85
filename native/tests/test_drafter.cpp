// What is drafted: along a prediction, after departures from it, and from what was said before.
#include <algorithm>
#include <vector>

#include "decode/drafter.h"
#include "tests/check.h"
#include "tests/random.h"

using namespace ultrafast;
using ultrafast::test::Random;
using ultrafast::test::range;

namespace {

using Tokens = std::vector<int32_t>;

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A sequence that says `output`, and what was drafted before each of its tokens.
struct Told {
  Told(const Tokens& prediction, Tokens prompt, const Tokens& output, const DraftIndex* memory = nullptr)
      : drafter(prediction, prompt, static_cast<int>(output.size())), tokens(std::move(prompt)) {
    drafts.push_back(propose(memory));
    for (const int32_t token : output) {
      drafter.append(token);
      tokens.push_back(token);
      drafts.push_back(propose(memory));
    }
  }
  Tokens propose(const DraftIndex* memory) {
    draft = drafter.propose(tokens, kMaxDraft, memory);
    return {draft.tokens.begin(), draft.tokens.begin() + draft.count};
  }
  // Drafted tokens that came true next to those that did not, if each step took whatever was drafted.
  std::pair<int, int> score(const Tokens& output) const {
    int accepted = 0, rejected = 0;
    for (size_t i = 0; i < output.size();) {
      const Tokens& d = drafts[i];
      size_t same = 0;
      while (same < d.size() && i + same < output.size() && d[same] == output[i + same]) ++same;
      accepted += static_cast<int>(same);
      rejected += static_cast<int>(d.size() - same);
      i += same + 1;
    }
    return {accepted, rejected};
  }
  Drafter drafter;
  Tokens tokens;
  Draft draft;  // the last
  std::vector<Tokens> drafts;
};

}  // namespace

TEST(decode, a_prediction_is_drafted_from_its_start_to_its_end) {
  const Tokens prediction = range(100, 120);
  const Told told(prediction, {1, 2, 3}, prediction + Tokens{5});
  for (int i = 0; i < 20; ++i) CHECK((told.drafts[static_cast<size_t>(i)] == range(100 + i, std::min(120, 107 + i))), i);
  CHECK(told.drafts[20].empty() && told.drafts[21].empty());  // at its end, and past it; the prompt is no part of it
  CHECK(Told({}, {1, 2, 3}, {4}).drafts[0].empty());
}

TEST(decode, a_prediction_is_taken_up_again_after_a_departure) {
  const Tokens prediction = range(100, 160);
  const auto drafts = [&](const Tokens& output) { return Told(prediction, {1, 2, 3}, output).drafts.back(); };
  CHECK(drafts(range(100, 110) + Tokens{7}) == range(111, 118));                                     // one token for another
  CHECK(drafts(range(100, 110) + Tokens{7, 111}) == range(112, 119));
  CHECK(drafts(range(100, 110) + range(113, 114)) == range(114, 121));                               // some left out
  CHECK(drafts(range(100, 110) + Tokens{7, 8, 9, 6} + range(110, 112)) == range(112, 119));          // some put in
  CHECK(drafts(range(100, 110) + range(20, 40) + range(110, 112)) == range(112, 119));               // many
  CHECK(drafts(range(100, 105) + range(150, 152)) == range(152, 159));                               // most left out
  CHECK(drafts(Tokens{7} + range(100, 102)) == range(102, 109));                                     // a preface
  CHECK(drafts(range(150, 152)) == range(152, 159));                                                 // only the end of it
  CHECK(drafts(range(100, 160) + range(100, 102)) == range(102, 109));                               // and all over again
}

TEST(decode, an_edited_prediction_saves_most_steps) {
  Random random(4);
  Tokens prediction, output;
  for (int i = 0; i < 1000; ++i) prediction.push_back(random.below(300));
  for (size_t i = 0; i < prediction.size(); ++i) {
    const int edit = random.below(60);  // every 20th token or so: put in, left out, replaced
    if (edit == 0) output.push_back(random.below(300));
    if (edit != 1) output.push_back(edit == 2 ? random.below(300) : prediction[i]);
  }
  const Told told(prediction, {1, 2, 3}, output);
  const auto [accepted, rejected] = told.score(output);
  CHECK(accepted > 780 && rejected < 400, accepted, rejected);
}

TEST(decode, what_was_said_before_is_drafted_again) {
  const Told told({}, range(50, 90) + Tokens{1, 2}, {60, 61, 62});
  CHECK(told.drafts[0].empty() && told.drafts[1].empty() && told.drafts[2] == range(62, 69) && told.drafts[3] == range(63, 70));
  CHECK(told.draft.source == DraftSource::kContext && told.draft.match_length == 3);
}

TEST(decode, the_source_that_promises_most_is_used) {
  DraftIndex memory(64);
  for (const int32_t token : Tokens{1, 2, 3, 4, 5, 6, 200, 201}) memory.append(token);
  memory.append(DraftIndex::kBorder);
  const Told remembered({}, {9, 5, 6, 100, 9}, {3, 4, 5, 6}, &memory);
  CHECK(remembered.draft.source == DraftSource::kMemory && remembered.draft.match_length == 4);
  CHECK((remembered.drafts.back() == Tokens{200, 201}));
  const Told from_context({}, {2, 3, 4, 5, 6, 100, 9}, {3, 4, 5, 6}, &memory);  // as good: the sequence's own
  CHECK(from_context.draft.source == DraftSource::kContext && from_context.drafts.back()[0] == 100);
  const Told predicted(Tokens{3, 4, 5, 6, 150}, {9, 5, 6, 100, 9}, {3, 4, 5, 6}, &memory);
  CHECK(predicted.draft.source == DraftSource::kPrediction && (predicted.drafts.back() == Tokens{150}));
}

TEST(decode, a_source_that_fails_gives_way) {
  Told told(Tokens{3, 4, 5, 6, 150}, {9, 3, 4, 5, 6, 100, 9}, {3, 4, 5, 6});
  CHECK(told.draft.source == DraftSource::kPrediction);
  for (int i = 0; i < 8; ++i) told.drafter.record.verified(DraftSource::kPrediction, told.draft.match_length, 7, 0);
  told.propose(nullptr);
  CHECK(told.draft.source == DraftSource::kContext && told.draft.tokens[0] == 100);
}

TEST(decode, any_tokens_can_be_drafted_from) {
  Random random(5);
  for (int round = 0; round < 60; ++round) {
    Tokens prediction, prompt, output;
    const int alphabet = 2 + random.below(6);
    for (int i = random.below(40); i > 0; --i) prediction.push_back(random.below(alphabet));
    for (int i = 1 + random.below(40); i > 0; --i) prompt.push_back(random.below(alphabet));
    for (int i = random.below(100); i > 0; --i) output.push_back(random.below(alphabet));
    const Told told(prediction, prompt, output);
    for (const Tokens& draft : told.drafts)
      CHECK(draft.size() <= kMaxDraft && std::all_of(draft.begin(), draft.end(), [&](int32_t t) { return t >= 0 && t < alphabet; }), round);
  }
}
