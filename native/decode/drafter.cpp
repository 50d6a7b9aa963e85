#include "decode/drafter.h"

#include <algorithm>
#include <cstdlib>

namespace ultrafast {

namespace {

constexpr int64_t kMaxIndexed = 1 << 17;  // of longer sequences the latest tokens: 2.6 MB

}  // namespace

Drafter::Drafter(const std::vector<int32_t>& prediction, const std::vector<int32_t>& prompt, int max_tokens)
    : index_(static_cast<int>(std::min(static_cast<int64_t>(prediction.size() + prompt.size()) + max_tokens + 1, kMaxIndexed))),
      prediction_size_(static_cast<uint32_t>(prediction.size())) {
  for (const int32_t token : prediction) index_.append(token);
  index_.append(DraftIndex::kBorder);
  for (const int32_t token : prompt) index_.append(token);
}

void Drafter::append(int32_t token) {
  index_.append(token);
  if (prediction_size_ == 0) return;
  if (cursor_ < prediction_size_ && index_.at(cursor_) == token) {
    ++cursor_;
    ++agreed_;
    return;
  }
  // Most often one token took another's place: the prediction goes on behind it.
  if (agreed_ > 0 && cursor_ < prediction_size_) ++cursor_;
  agreed_ = 0;
  realign();
}

// Looks around the cursor for the place that agrees best with the end of the output: longest first, then nearest.
void Drafter::realign() {
  int32_t end[kMaxAgreement];
  for (uint32_t i = 1; i <= kMaxAgreement; ++i) end[kMaxAgreement - i] = i <= index_.size() ? index_.at(index_.size() - i) : -2;
  constexpr int kFarthest = kReach * kMaxAgreement;
  const auto size = static_cast<int>(prediction_size_), expected = static_cast<int>(cursor_);
  int best_distance = kFarthest + 1;
  for (int next = std::max(1, expected - kFarthest); next <= std::min(size, expected + kFarthest); ++next) {
    const int length = index_.agreement(static_cast<uint32_t>(next), end + kMaxAgreement, kMaxAgreement);
    const int distance = std::abs(next - expected);
    if (length == 0 || distance > kReach * length || length < agreed_ || (length == agreed_ && distance >= best_distance)) continue;
    cursor_ = static_cast<uint32_t>(next);
    agreed_ = length;
    best_distance = distance;
  }
}

Draft Drafter::propose(const std::vector<int32_t>& tokens, int limit, const DraftIndex* memory) {
  const int32_t* end = tokens.data() + tokens.size();
  const auto count = static_cast<int>(std::min<size_t>(tokens.size(), DraftIndex::kMaxMatch));
  Draft best;
  double best_chance = 0.0;
  const auto consider = [&](const DraftIndex& index, uint32_t next, DraftSource source, int match_length) {
    const double chance = record.chance(source, match_length);
    if (chance < best_chance || (chance == best_chance && match_length <= best.match_length)) return;
    Draft draft;
    draft.count = index.copy(next, limit, draft.tokens.data());
    draft.source = source;
    draft.match_length = match_length;
    if (draft.count == 0) return;
    best = draft;
    best_chance = chance;
  };
  const DraftIndex::Match own = index_.longest(end, count);
  if (own.length > agreed_ && own.next < prediction_size_) cursor_ = own.next, agreed_ = own.length;
  if (cursor_ < prediction_size_) consider(index_, cursor_, DraftSource::kPrediction, agreed_);
  if (own.length > 0 && own.next > prediction_size_) consider(index_, own.next, DraftSource::kContext, own.length);
  const DraftIndex::Match past = memory != nullptr ? memory->longest(end, count) : DraftIndex::Match{};
  if (past.length > 0) consider(*memory, past.next, DraftSource::kMemory, past.length);
  return best;
}

}  // namespace ultrafast
