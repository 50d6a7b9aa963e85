// Where a suffix occurred before: against a search through everything, and that borders and bounds hold.
#include <algorithm>
#include <vector>

#include "decode/draft_index.h"
#include "decode/draft_memory.h"
#include "tests/check.h"
#include "tests/random.h"

using namespace ultrafast;
using ultrafast::test::Random;

namespace {

constexpr int kBorder = DraftIndex::kBorder;

// Tokens before `next` that agree with the end of `tail`.
int agreement(const std::vector<int32_t>& all, size_t next, const std::vector<int32_t>& tail) {
  size_t length = 0;
  const size_t most = std::min({next, tail.size(), size_t{DraftIndex::kMaxMatch}});
  while (length < most && all[next - 1 - length] == tail[tail.size() - 1 - length]) ++length;
  return static_cast<int>(length);
}

// The longest match by looking everywhere in the last `held` tokens, the latest among equals.
DraftIndex::Match search_all(const std::vector<int32_t>& all, const std::vector<int32_t>& tail, size_t held) {
  DraftIndex::Match best;
  const size_t first = all.size() - std::min(held, all.size());
  for (size_t next = first + 1; next < all.size(); ++next) {
    const int length = std::min(agreement(all, next, tail), static_cast<int>(next - first));
    if (all[next] != kBorder && length >= std::max(best.length, DraftIndex::kMinMatch)) best = {static_cast<uint32_t>(next), length};
  }
  return best;
}

// How often the last two tokens of `tail` occur in the last `held`.
int occurrences(const std::vector<int32_t>& all, const std::vector<int32_t>& tail, size_t held) {
  int count = 0;
  for (size_t next = all.size() - std::min(held, all.size()) + 2; next < all.size(); ++next) count += agreement(all, next, tail) >= 2;
  return count;
}

DraftIndex::Match longest(const DraftIndex& index, const std::vector<int32_t>& tail) {
  return index.longest(tail.data() + tail.size(), static_cast<int>(tail.size()));
}

// Random tokens that repeat earlier stretches of themselves, as texts do.
int32_t next_token(Random& random, const std::vector<int32_t>& all, int alphabet, size_t& copied) {
  if (random.below(12) == 0) copied = all.empty() ? 0 : static_cast<size_t>(random.below(static_cast<int>(all.size())));
  const bool copies = copied < all.size() && all[copied] != kBorder && random.below(20) != 0;
  const int32_t token = copies ? all[copied] : random.below(alphabet);
  ++copied;
  return token;
}

}  // namespace

TEST(decode, a_suffix_is_found_where_it_last_occurred) {
  Random random(1);
  int found = 0, different = 0;
  for (int round = 0; round < 40; ++round) {
    const int capacity = 1 << (5 + round % 4), alphabet = 40 + 40 * (round % 3);
    DraftIndex index(capacity);
    std::vector<int32_t> all;
    size_t copied = 0;
    for (int i = 0; i < 400; ++i) {
      all.push_back(random.below(60) == 0 ? kBorder : next_token(random, all, alphabet, copied));
      index.append(all.back());
      CHECK(index.at(static_cast<uint32_t>(i)) == all.back() && index.size() == all.size());
      // The end of the tokens themselves, without borders in it, as a sequence would ask.
      std::vector<int32_t> tail(std::find(all.rbegin(), all.rend(), kBorder).base(), all.end());
      const DraftIndex::Match want = search_all(all, tail, static_cast<size_t>(capacity)), got = longest(index, tail);
      if (occurrences(all, tail, static_cast<size_t>(capacity)) > 20) continue;  // the next test's
      const int there = static_cast<int>(got.next) - std::max(0, static_cast<int>(all.size()) - capacity);  // tokens held before
      CHECK(got.length == 0 || got.length == std::min(there, agreement(all, got.next, tail)), round, i, got.length, got.next);
      found += want.length > 0;
      different += got.length != want.length || got.next != want.next;
    }
  }
  CHECK(found > 4000 && different <= 2, found, different);  // runs with the same hash as a very frequent one are looked at less
}

TEST(decode, of_too_many_occurrences_the_latest_count) {
  Random random(2);
  DraftIndex index(1 << 12);
  std::vector<int32_t> all;
  for (int i = 0; i < 4000; ++i) {  // two tokens: every short run occurs more often than is looked at
    all.push_back(random.below(2));
    index.append(all.back());
    if (i < 40) continue;
    const DraftIndex::Match got = longest(index, all), best = search_all(all, all, all.size());
    CHECK(got.length >= std::min(best.length, 5) && got.length <= best.length, i, got.length, best.length);
    CHECK(got.length == agreement(all, got.next, all), i, got.length);
    const DraftIndex::Match recent = search_all({all.end() - 40, all.end()}, all, 40);  // fewer occurrences than are looked at
    CHECK(got.length >= recent.length, i, got.length, recent.length);
  }
}

TEST(decode, nothing_runs_across_a_border) {
  DraftIndex index(64);
  for (const int32_t token : {1, 2, 3, 4, kBorder, 5, 6, 7}) index.append(token);
  const auto draft = [&](const std::vector<int32_t>& tail, int count) {
    const DraftIndex::Match match = longest(index, tail);
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    tokens.resize(match.length == 0 ? 0 : static_cast<size_t>(index.copy(match.next, count, tokens.data())));
    return tokens;
  };
  CHECK((draft({1, 2}, 7) == std::vector<int32_t>{3, 4}));  // ends at the border
  CHECK((draft({1, 2}, 1) == std::vector<int32_t>{3}));
  CHECK(draft({3, 4}, 7).empty());  // nothing follows but the border
  CHECK(longest(index, {4, 5, 6}).length == 2);
  CHECK(longest(index, {6, 7}).length == 0);  // nothing follows yet
  CHECK(longest(index, {2}).length == 0);     // too short
}

TEST(decode, a_copy_past_the_end_repeats_itself) {
  DraftIndex index(16);
  for (const int32_t token : {9, 1, 2, 3, 1, 2, 3}) index.append(token);
  const DraftIndex::Match match = longest(index, {1, 2, 3, 1, 2, 3});
  std::vector<int32_t> tokens(7);
  CHECK(match.length == 3 && index.copy(match.next, 7, tokens.data()) == 7);
  CHECK((tokens == std::vector<int32_t>{1, 2, 3, 1, 2, 3, 1}));
}

TEST(decode, a_match_has_a_longest_length) {
  DraftIndex index(256);
  std::vector<int32_t> all;
  for (int i = 0; i < 150; ++i) index.append(all.emplace_back(i % 50));
  CHECK(longest(index, all).length == DraftIndex::kMaxMatch && longest(index, all).next == 100);
}

TEST(decode, domains_remember_apart_and_few_of_them) {
  DraftMemory memory;
  memory.remember("a", {1, 2, 3});
  memory.remember("b", {1, 2, 4});
  memory.remember("a", {});
  const auto next = [&](const std::string& domain) {
    const DraftIndex* index = memory.find(domain);
    if (index == nullptr) return -1;
    const DraftIndex::Match match = longest(*index, {1, 2});
    return match.length == 2 ? index->at(match.next) : -2;
  };
  CHECK(next("a") == 3 && next("b") == 4 && next("c") == -1);
  memory.remember("a", {7, 1});
  memory.remember("a", {2, 5});  // two outputs: no run goes from one to the other
  CHECK(next("a") == 3);
  for (int i = 0; i < DraftMemory::kMaxDomains - 1; ++i) {
    memory.remember(std::to_string(i), {1, 2, 100 + i});
    CHECK(next("a") == 3, i);  // used, so another one is forgotten: b
  }
  CHECK(next("b") == -1 && next("0") == 100);
  memory.remember("one more", {1, 2, 6});
  CHECK(next("1") == -1 && next("0") == 100 && next("a") == 3 && next("one more") == 6);
}
