#include "decode/sequence.h"

#include <algorithm>

namespace ultrafast {

Sequence::Sequence(std::vector<int32_t> prompt, int max_output, std::vector<int32_t> stops, SamplingParams params, Drafting drafting)
    : tokens(std::move(prompt)),
      num_prompt(static_cast<int>(tokens.size())),
      max_tokens(max_output),
      stop_tokens(std::move(stops)),
      sampler(std::move(params)),
      draft_limit(std::min(drafting.limit, kMaxDraft)),
      domain(std::move(drafting.domain)) {
  sampler.see_prompt(tokens);
  if (draft_limit > 0) drafter.emplace(drafting.prediction, tokens, max_tokens);
}

void Sequence::append(int32_t token) {
  sampler.see_output(token);
  tokens.push_back(token);
  if (drafter) drafter->append(token);
  if (std::find(stop_tokens.begin(), stop_tokens.end(), token) != stop_tokens.end())
    finish = Finish::kStop;
  else if (num_output() >= max_tokens)
    finish = Finish::kLength;
}

}  // namespace ultrafast
