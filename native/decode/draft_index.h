// Finds where the end of a token sequence has occurred before: what followed there is a draft that costs no computation.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace ultrafast {

// Keeps the last `capacity` tokens appended, and of every run of 2 and of 5 tokens where it occurred, latest first.
class DraftIndex {
 public:
  static constexpr int kMinMatch = 2, kMaxMatch = 32;
  static constexpr int32_t kBorder = -1;  // appended like a token: neither a match nor a draft runs across it

  // An earlier occurrence of the end of a sequence.
  struct Match {
    uint32_t next = 0;  // position of the token that followed
    int length = 0;     // tokens that agree, kMaxMatch at most; 0: there is no occurrence
  };

  // Memory for everything is taken here; positions are counted from the first token appended. capacity: 1 to 2^30.
  explicit DraftIndex(int capacity);

  void append(int32_t token);

  // The longest match found for the `count` tokens before `end`, the most recent among equals. Looks at a bounded number of
  // occurrences, the most recent ones, so that it takes microseconds whatever the tokens are.
  Match longest(const int32_t* end, int count) const;

  // Copies up to `count` tokens from `next` on, and returns how many there were before a border. Where the tokens end, the copy
  // continues with itself: a sequence that repeats itself goes on doing so.
  int copy(uint32_t next, int count, int32_t* out) const;

  uint32_t size() const { return size_; }                                   // tokens appended
  int32_t at(uint32_t position) const { return tokens_[position & mask_]; }  // one of the last `capacity`
  // Tokens before position `next` that agree with those before `end`, `most` at most.
  int agreement(uint32_t next, const int32_t* end, int most) const;

 private:
  static constexpr std::array<int, 2> kRuns = {5, kMinMatch};  // long ones first
  static constexpr int kMaxCandidates = 32;

  // Chains of the positions that follow a run of tokens. Positions are checked by comparing tokens: what a chain says of
  // overwritten ones, or of runs with the same hash, does no harm.
  struct Chains {
    std::vector<uint32_t> latest;   // by hash of the run
    std::vector<uint32_t> earlier;  // by position
  };
  bool holds(uint32_t position) const { return size_ - position - 1 < tokens_.size(); }

  std::vector<int32_t> tokens_;  // a ring: its size is a power of two
  const uint32_t mask_;
  uint32_t size_ = 0;
  std::array<Chains, kRuns.size()> chains_;
};

}  // namespace ultrafast
