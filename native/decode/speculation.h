// Which drafts a step verifies: proposals of the sequences, weighed against what the step's rows cost.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "decode/draft_memory.h"
#include "decode/draft_model.h"
#include "decode/draft_policy.h"
#include "decode/sequence.h"

namespace ultrafast {

class Speculation {
 public:
  Speculation(int vocab_size, int max_rows, int max_logits)
      : vocab_size_(vocab_size), max_rows_(max_rows), max_logits_(max_logits), costs_(max_logits) {}

  // Sets the draft of every sequence of a step that computes so many tokens of each; those of the draft model `guess` makes.
  // num_scored: rows of logits that are for the prompt's own tokens.
  void plan(const std::vector<std::pair<Sequence*, int>>& advanced, int num_scored);
  bool must_guess() const { return model_ != nullptr && !model_->is_empty(); }
  void guess(const Worker& worker, const Pause& pause) noexcept { model_->run(worker, pause); }

  // The first `accepted` tokens of the sequence's draft came true. Of different sequences at the same time from several threads.
  static void verified(Sequence& sequence, int accepted);

  // A step that sampled after each of its rows took so long.
  void measured(int rows, double seconds) { costs_.measured(rows, seconds); }

  // Drafts from a model where nothing better is found. Not while a step is planned or run.
  void set_model(std::unique_ptr<DraftModel> model) { model_ = std::move(model); }
  const DraftModel* model() const { return model_.get(); }

  // Tokens of a request that ended, for later ones of the same domain.
  void remember(const std::string& domain, const std::vector<int32_t>& tokens) { memory_.remember(domain, tokens); }

 private:
  void propose(Sequence& sequence);

  const int vocab_size_, max_rows_, max_logits_;
  StepCosts costs_;
  DraftMemory memory_;
  std::unique_ptr<DraftModel> model_;
  std::vector<Sequence*> drafting_;  // of the step being planned, with a proposal
  std::vector<DraftOffer> offers_;   // theirs
};

}  // namespace ultrafast
