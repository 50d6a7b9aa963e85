#include "decode/speculation.h"

#include <algorithm>

namespace ultrafast {

void Speculation::propose(Sequence& s) {
  // The last token of the output is never computed: what is drafted must end before it.
  const int limit = std::min(s.draft_limit, s.max_tokens - s.num_output() - 1);
  if (limit <= 0 || !s.drafter->record.can_pay()) return;
  Draft& draft = s.draft = s.drafter->propose(s.tokens, limit, memory_.find(s.domain));
  const auto is_token = [this](int32_t token) { return token >= 0 && token < vocab_size_; };
  const auto begin = draft.tokens.begin();
  draft.count = static_cast<int>(std::find_if_not(begin, begin + draft.count, is_token) - begin);
  if (draft.count == 0) return;
  drafting_.push_back(&s);
  offers_.push_back({s.drafter->record.chance(draft.source, draft.match_length), draft.count, s.drafter->record.should_probe()});
}

void Speculation::plan(const std::vector<std::pair<Sequence*, int>>& advanced) {
  drafting_.clear();
  offers_.clear();
  int rows = 0, outputs = 0;
  for (const auto& [sequence, count] : advanced) {
    sequence->draft.count = 0;
    rows += count;
    if (!sequence->samples_after(count)) continue;
    ++outputs;
    propose(*sequence);
  }
  if (offers_.empty()) return;
  plan_drafts(costs_, rows, outputs, std::min(max_rows_, rows + max_logits_ - outputs), offers_);
  int drafted = 0;
  for (const DraftOffer& offer : offers_) drafted += offer.count;
  const double overhead = outputs * (costs_.of(rows + drafted) / costs_.of(rows) - 1.0) / std::max(drafted, 1);
  for (size_t i = 0; i < offers_.size(); ++i) {
    drafting_[i]->draft.count = offers_[i].count;
    drafting_[i]->draft.overhead = overhead * offers_[i].count;
  }
}

void Speculation::verified(Sequence& s, int accepted) {
  if (!s.drafter) return;
  const Draft& draft = s.draft;
  if (draft.count > 0) s.drafter->record.verified(draft.source, draft.match_length, draft.count, accepted);
  s.drafter->record.stepped(1 + accepted, draft.count, draft.count > 0 ? draft.overhead : 0.0);
}

}  // namespace ultrafast
