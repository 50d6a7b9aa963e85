// A request's running state, as the native loop sees it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "decode/constraint.h"
#include "decode/drafter.h"
#include "decode/sampler.h"

namespace ultrafast {

enum class Finish : int { kNone, kStop, kLength, kFailed };  // kFailed: by its constraint

// What a sequence may draft. None of it changes its tokens.
struct Drafting {
  int limit = 0;                         // tokens a step, kMaxDraft at most; 0: none
  std::vector<int32_t> prediction = {};  // what the client expects it to say
  std::string domain = {};               // whose recent outputs it may draft from
};

// Tokens [0, num_computed) are in the KV cache; the rest wait to be computed.
struct Sequence {
  Sequence(std::vector<int32_t> prompt, int max_tokens, std::vector<int32_t> stop_tokens, SamplingParams params, Drafting drafting = {});

  std::vector<int32_t> tokens;       // prompt, then output
  const int num_prompt;
  const int max_tokens;              // the output ends here with Finish::kLength; with 0 the prompt does, computed
  const std::vector<int32_t> stop_tokens;
  std::vector<int32_t> replay;       // for measurements: output tokens that take the place of the sampler's picks
  std::vector<int32_t> block_table;  // must cover every position that a burst computes
  int num_computed = 0;
  int num_delivered = 0;             // output tokens already handed to Python
  Finish finish = Finish::kNone;
  Sampler sampler;
  std::vector<Logprobs> logprobs;    // of every output token, when asked for
  int num_prompt_logprobs = -1;      // as SamplingParams::num_logprobs, but of the prompt's own tokens
  std::vector<Logprobs> prompt_logprobs;  // theirs as far as computed: of the second token, the third, ...
  std::unique_ptr<Constraint> constraint;
  std::string error;                 // why it failed

  const int draft_limit;
  const std::string domain;
  std::optional<Drafter> drafter;    // where draft_limit > 0
  Draft draft;                       // verified by the step that samples this sequence next
  int num_guessed = 0;               // tokens [0, num_guessed) are in the draft model's cache, drafts that failed among them

  int num_output() const { return static_cast<int>(tokens.size()) - num_prompt; }
  // Tokens still to be computed before the next can be sampled; 1 while decoding.
  int num_pending() const { return static_cast<int>(tokens.size()) - num_computed; }
  // Whether a step that computes `count` tokens samples afterwards.
  bool samples_after(int count) const { return count == num_pending() && max_tokens > 0; }

  // Whether the row of this position is to tell the log-probability of the prompt token that follows it.
  bool scores(int position) const {
    return num_prompt_logprobs >= 0 && position >= static_cast<int>(prompt_logprobs.size()) && position < num_prompt - 1;
  }

  // Asks the constraint what may come next: the bits of `allowed`, one for each of `vocab_size` tokens. Returns whether anything
  // may; otherwise, or when the constraint fails, the sequence has failed.
  bool constrain(std::vector<uint32_t>& allowed, int vocab_size);
  // Adds an output token; may finish the sequence.
  void append(int32_t token);
};

}  // namespace ultrafast
