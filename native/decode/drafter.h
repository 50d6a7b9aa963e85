// Proposes what a sequence says next, from the client's prediction, from the sequence itself and from recent outputs.
#pragma once

#include <array>
#include <vector>

#include "decode/draft_index.h"
#include "decode/draft_policy.h"

namespace ultrafast {

struct Draft {
  std::array<int32_t, kMaxDraft> tokens;
  int count = 0;  // 0: no proposal
  DraftSource source = DraftSource::kContext;
  int match_length = 0;  // tokens that agreed before the draft
  double overhead = 0.0;  // plain steps that verifying it costs
};

// The drafts of one sequence. Nothing here can change its tokens: a draft is only ever compared with them.
class Drafter {
 public:
  // Takes all the memory that `max_tokens` of output need.
  Drafter(const std::vector<int32_t>& prediction, const std::vector<int32_t>& prompt, int max_tokens);

  // The next output token.
  void append(int32_t token);

  // The most promising draft of up to `limit` tokens for what follows `tokens`: prompt and output. `memory` may be null.
  Draft propose(const std::vector<int32_t>& tokens, int limit, const DraftIndex* memory);

  DraftRecord record;

 private:
  static constexpr int kTrust = 4;   // an output that has just begun counts as having agreed with so many tokens of its prediction
  static constexpr int kReach = 8;   // how far from its place an agreement of one token is believed; longer ones reach farther
  static constexpr int kMaxAgreement = 8;

  void realign();

  DraftIndex index_;               // prediction, border, prompt, output
  const uint32_t prediction_size_;
  // What the output is expected to say next stands at `cursor_` in the prediction; it has agreed with `agreed_` tokens before it.
  uint32_t cursor_ = 0;
  int agreed_ = kTrust;
};

}  // namespace ultrafast
