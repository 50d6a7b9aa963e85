#include "decode/speculation.h"

#include <algorithm>

namespace ultrafast {

void Speculation::propose(Sequence& s) {
  // The last token of the output is never computed: what is drafted must end before it.
  const int limit = std::min(s.draft_limit, s.max_tokens - s.num_output() - 1);
  if (limit <= 0 || !s.drafter->record.can_pay()) return;
  const DraftRecord& record = s.drafter->record;
  Draft& draft = s.draft = s.drafter->propose(s.tokens, limit, memory_.find(s.domain));
  const auto is_token = [this](int32_t token) { return token >= 0 && token < vocab_size_; };
  const auto begin = draft.tokens.begin();
  draft.count = static_cast<int>(std::find_if_not(begin, begin + draft.count, is_token) - begin);
  DraftOffer offer{record.chance(draft.source, draft.match_length), draft.count, record.should_probe()};
  if (model_ != nullptr) {
    const DraftOffer other{record.chance(DraftSource::kModel, 0), std::min(limit, model_->reach(s)), offer.probe,
                           model_->seconds_per_token(costs_.of(1))};
    if (other.limit > 0 && (offer.limit == 0 || best_rate(costs_, other) > best_rate(costs_, offer))) {
      offer = other;
      draft.source = DraftSource::kModel;
      draft.match_length = 0;
    }
  }
  draft.count = 0;
  if (offer.limit <= 0) return;
  drafting_.push_back(&s);
  offers_.push_back(offer);
}

void Speculation::plan(const std::vector<std::pair<Sequence*, int>>& advanced, int num_scored) {
  drafting_.clear();
  offers_.clear();
  if (model_ != nullptr) model_->clear();
  int rows = 0, outputs = 0;
  for (const auto& [sequence, count] : advanced) {
    Sequence& s = *sequence;
    s.draft.count = 0;
    s.num_guessed = std::min(s.num_guessed, static_cast<int>(s.tokens.size()) - 1);  // drafts after the tokens were not accepted
    rows += count;
    if (!s.samples_after(count)) continue;
    ++outputs;
    propose(s);
  }
  if (offers_.empty()) return;
  plan_drafts(costs_, rows, outputs, std::min(max_rows_, rows + max_logits_ - outputs - num_scored), offers_);
  for (size_t i = 0; i < offers_.size(); ++i) {
    Draft& draft = drafting_[i]->draft;
    draft.overhead = offers_[i].overhead;
    if (draft.source != DraftSource::kModel)
      draft.count = offers_[i].count;
    else if (offers_[i].count > 0)
      model_->add(*drafting_[i], offers_[i].count);
  }
}

void Speculation::verified(Sequence& s, int accepted) {
  if (!s.drafter) return;
  const Draft& draft = s.draft;
  if (draft.count > 0) s.drafter->record.verified(draft.source, draft.match_length, draft.count, accepted);
  s.drafter->record.stepped(1 + accepted, draft.count, draft.count > 0 ? draft.overhead : 0.0);
}

}  // namespace ultrafast
