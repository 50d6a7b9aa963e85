#include "decode/draft_index.h"

#include <algorithm>

namespace ultrafast {

namespace {

size_t ring_size(int capacity) {
  size_t size = 1;
  while (size < static_cast<size_t>(capacity)) size *= 2;
  return size;
}

// A hash of `count` tokens, read through `token(i)`.
template <class Token>
uint32_t run_hash(int count, Token token) {
  uint64_t hash = 0;
  for (int i = 0; i < count; ++i) hash = (hash + static_cast<uint32_t>(token(i)) + 1) * 0x9E3779B97F4A7C15;
  return static_cast<uint32_t>(hash >> 32);
}

}  // namespace

DraftIndex::DraftIndex(int capacity) : tokens_(ring_size(capacity), kBorder), mask_(static_cast<uint32_t>(tokens_.size()) - 1) {
  for (Chains& chains : chains_) {
    chains.latest.resize(tokens_.size());
    chains.earlier.resize(tokens_.size());
  }
}

void DraftIndex::append(int32_t token) {
  // A run becomes known when something follows it: the end of the tokens never matches itself.
  for (size_t i = 0; i < kRuns.size() && token != kBorder; ++i) {
    const auto run = static_cast<uint32_t>(kRuns[i]);
    if (size_ < run) continue;
    const uint32_t hash = run_hash(kRuns[i], [&](int t) { return at(size_ - run + static_cast<uint32_t>(t)); });
    uint32_t& latest = chains_[i].latest[hash & mask_];
    chains_[i].earlier[size_ & mask_] = latest;
    latest = size_;
  }
  tokens_[size_ & mask_] = token;
  ++size_;
}

int DraftIndex::agreement(uint32_t next, const int32_t* end, int most) const {
  const uint32_t held = std::min(size_, static_cast<uint32_t>(tokens_.size()));
  const uint32_t before = held - (size_ - next);  // tokens held before `next`
  most = static_cast<int>(std::min(static_cast<uint32_t>(most), before));
  int length = 0;
  while (length < most && end[-1 - length] == at(next - 1 - static_cast<uint32_t>(length))) ++length;
  return length;
}

DraftIndex::Match DraftIndex::longest(const int32_t* end, int count) const {
  const int most = std::min(count, kMaxMatch);
  Match best;
  for (size_t i = 0; i < kRuns.size(); ++i) {
    const int run = kRuns[i];
    if (most < run) continue;
    uint32_t position = chains_[i].latest[run_hash(run, [&](int t) { return end[t - run]; }) & mask_];
    for (int tried = 0; tried < kMaxCandidates && holds(position); ++tried) {
      const int length = agreement(position, end, most);
      if (length > best.length && length >= run) best = {position, length};
      const uint32_t earlier = chains_[i].earlier[position & mask_];
      if (best.length == most || earlier >= position) break;
      position = earlier;
    }
    if (best.length > 0) break;
  }
  return best;
}

int DraftIndex::copy(uint32_t next, int count, int32_t* out) const {
  const auto there = static_cast<int>(std::min(size_ - next, uint32_t{1} << 30));
  for (int i = 0; i < count; ++i) {
    out[i] = i < there ? at(next + static_cast<uint32_t>(i)) : out[i - there];
    if (out[i] == kBorder) return i;
  }
  return count;
}

}  // namespace ultrafast
