#include "decode/sequence.h"

#include <algorithm>
#include <exception>

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

bool Sequence::constrain(std::vector<uint32_t>& allowed, int vocab_size) {
  allowed.assign((static_cast<size_t>(vocab_size) + 31) / 32, 0);
  try {
    constraint->advance(num_output() > 0 ? std::optional(tokens.back()) : std::nullopt, allowed.data());
  } catch (const std::exception& failure) {
    error = failure.what();
    finish = Finish::kFailed;
    return false;
  }
  if (const int tail = vocab_size % 32; tail != 0) allowed.back() &= (uint32_t{1} << tail) - 1;
  if (std::any_of(allowed.begin(), allowed.end(), [](uint32_t word) { return word != 0; })) return true;
  error = "no token is allowed to come next";
  finish = Finish::kFailed;
  return false;
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
