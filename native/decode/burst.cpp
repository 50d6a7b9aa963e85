#include "decode/burst.h"

#include <algorithm>
#include <cstring>

namespace ultrafast {

Decoder::Decoder(std::unique_ptr<Forward> forward, const KernelTable& kernels, Workers& workers, int vocab_size, int max_rows,
                 int max_logits)
    : forward_(std::move(forward)),
      kernels_(kernels),
      workers_(workers),
      vocab_size_(vocab_size),
      max_rows_(max_rows),
      max_logits_(max_logits),
      speculation_(vocab_size, max_rows, max_logits),
      scratch_(static_cast<size_t>(workers.count())) {}

namespace {

// Cuts what is computed of prompts whose tokens are scored, so that all rows of logits together are at most `max_logits`.
// Everyone has one row, to sample from or to move on with; the rest go to those who come first. Returns how many are for scores.
int limit_scored(std::vector<std::pair<Sequence*, int>>& advanced, int max_logits) {
  int room = max_logits - static_cast<int>(advanced.size()), total = 0;
  for (auto& [s, count] : advanced) {
    const int limit = count, most = std::max(1, room);
    int scored = 0;
    for (count = 0; count < limit && scored < most; ++count) scored += s->scores(s->num_computed + count);
    room = std::max(0, room - scored);
    total += scored;
  }
  return total;
}

}  // namespace

bool Decoder::build(Step& step) {
  step.batch.clear();
  step.sampled.clear();
  step.scored.clear();
  step.advanced.clear();
  for (const auto& [s, chunk] : step.entries)
    if (s->finish == Finish::kNone && s->num_pending() > 0) step.advanced.emplace_back(s, std::min(s->num_pending(), chunk));
  speculation_.plan(step.advanced, limit_scored(step.advanced, max_logits_));
  if (!speculation_.must_guess()) assemble(step);
  return !step.advanced.empty();
}

// The rows of a step whose drafts are made.
void Decoder::assemble(Step& step) {
  auto& [rows, logits_rows] = step.batch;
  for (const auto& [sequence, count] : step.advanced) {
    Sequence& s = *sequence;
    const bool samples = s.samples_after(count);
    for (int i = 0; i < count; ++i, ++s.num_computed) {
      const auto position = static_cast<size_t>(s.num_computed);
      if (s.scores(s.num_computed)) {
        step.scored.push_back({&s, s.tokens[position + 1], static_cast<int>(logits_rows.size())});
        logits_rows.push_back(static_cast<int>(rows.size()));
      }
      rows.push_back({s.tokens[position], s.num_computed, s.block_table.data()});
    }
    if (!samples) continue;
    step.sampled.push_back({&s, static_cast<int>(logits_rows.size()), s.num_output() == 0});
    logits_rows.push_back(static_cast<int>(rows.size()) - 1);
    for (int i = 0; i < s.draft.count; ++i) {
      logits_rows.push_back(static_cast<int>(rows.size()));
      rows.push_back({s.draft.tokens[static_cast<size_t>(i)], s.num_computed + i, s.block_table.data()});
    }
  }
}

// Takes note of a finished step; returns whether a client should hear of it at once.
bool Decoder::conclude(Step& step) {
  for (Scored& scored : step.scored) scored.sequence->prompt_logprobs.push_back(std::move(scored.logprobs));
  bool has_news = std::any_of(step.sampled.begin(), step.sampled.end(), [](const Sampled& sampled) { return sampled.is_first; });
  for (const auto& [s, count] : step.advanced) {
    if (s->max_tokens > 0 || s->num_pending() > 0) continue;
    s->finish = Finish::kLength;
    has_news = true;
  }
  return has_news;
}

void Decoder::sample(const Worker& worker, Step& step) {
  const auto first = static_cast<size_t>(worker.index), every = static_cast<size_t>(worker.count);
  Scratch& scratch = scratch_[first];
  for (size_t i = first; i < step.sampled.size(); i += every) sample(step.sampled[i], scratch);
  for (size_t i = first; i < step.scored.size(); i += every) {
    Scored& scored = step.scored[i];
    scored.logprobs = Sampler::logprobs(kernels_, forward_->logits(scored.logits_row), vocab_size_, scored.token,
                                        scored.sequence->num_prompt_logprobs, scratch.weights);
  }
}

void Decoder::sample(const Sampled& sampled, Scratch& scratch) {
  Sequence& s = *sampled.sequence;
  int accepted = 0;  // of the draft; the logits after it are good as long as it says what is sampled
  for (bool goes_on = true; goes_on;) {
    const float* logits = forward_->logits(sampled.logits_row + accepted);
    if (s.constraint && !s.constrain(scratch.allowed, vocab_size_)) break;
    const uint32_t* allowed = s.constraint ? scratch.allowed.data() : nullptr;
    int32_t token = s.sampler.pick(kernels_, logits, vocab_size_, s.tokens.size(), allowed, scratch.weights, scratch.order);
    if (const auto n = static_cast<size_t>(s.num_output()); n < s.replay.size()) token = s.replay[n];
    if (const int count = s.sampler.params().num_logprobs; count >= 0)
      s.logprobs.push_back(Sampler::logprobs(kernels_, logits, vocab_size_, token, count, scratch.weights));
    s.append(token);
    const bool drafted = accepted < s.draft.count && s.draft.tokens[static_cast<size_t>(accepted)] == token;
    accepted += drafted;
    goes_on = drafted && s.finish == Finish::kNone;
  }
  s.num_computed = static_cast<int>(s.tokens.size()) - 1;
  Speculation::verified(s, accepted);
}

int Decoder::run(Lane lane, const std::vector<BurstEntry>& entries, const BurstLimits& limits) {
  Step& step = steps_[static_cast<size_t>(lane)];
  step.entries = entries;
  return build(step) ? go_on(lane, limits) : 0;
}

int Decoder::resume(Lane lane, const BurstLimits& limits) { return is_suspended(lane) ? go_on(lane, limits) : 0; }

void Decoder::abandon(Lane lane) {
  Step& step = steps_[static_cast<size_t>(lane)];
  if (!step.suspended) return;
  for (const auto& [sequence, count] : step.advanced) sequence->num_computed -= count;
  step.suspended = false;
  forward_->select(lane);
  forward_->abandon();
}

int Decoder::go_on(Lane lane, const BurstLimits& limits) {
  Step& step = steps_[static_cast<size_t>(lane)];
  const auto deadline = std::chrono::steady_clock::now() + limits.time_limit;
  const auto is_late = [&] { return std::chrono::steady_clock::now() >= deadline; };
  const Pause pause = [&, may = lane == Lane::kShared] {
    return may && (preempted_.load(std::memory_order_relaxed) || (limits.slice && is_late()));
  };
  forward_->select(lane);
  int steps = 0;
  bool more = true;
  workers_.run([&](Worker worker) {
    if (profile_ && worker.index == 0) {
      worker.profile = &*profile_;
      worker.profile->start(Stage::kBetween);
    }
    auto mark = std::chrono::steady_clock::now();
    bool is_whole = !step.suspended;  // the step at hand began in this burst
    while (more) {
      if (is_whole && speculation_.must_guess()) {
        Worker quiet = worker;
        quiet.profile = nullptr;  // the stages are the model's
        speculation_.guess(quiet, pause);
        if (worker.index == 0) {
          assemble(step);
          mark = std::chrono::steady_clock::now();
        }
        worker.sync();
      }
      const bool finished = forward_->run(worker, step.batch, pause);
      if (finished) {
        worker.enter(Stage::kSampling);
        sample(worker, step);
        worker.sync();
        worker.enter(Stage::kBetween);
      }
      if (worker.index == 0) {  // the others wait at the next barrier
        step.suspended = !finished;
        if (finished) ++steps;
        const bool has_news = finished && conclude(step);
        const auto now = std::chrono::steady_clock::now();
        const auto rows = static_cast<int>(step.batch.rows.size());
        if (finished && is_whole && rows == step.batch.num_logits() && step.scored.empty())
          speculation_.measured(rows, std::chrono::duration<double>(now - mark).count());
        mark = now;
        more = finished && !has_news && steps < limits.max_steps && !interrupted_.load(std::memory_order_relaxed) && now < deadline &&
               build(step);
      }
      worker.sync();
      is_whole = true;
    }
    if (worker.profile != nullptr) worker.profile->stop(steps);
  });
  // Only now: a wish that came since the last look is granted by what follows, too.
  interrupted_.store(false, std::memory_order_relaxed);
  preempted_.store(false, std::memory_order_relaxed);
  return steps;
}

void Decoder::set_draft_model(std::unique_ptr<Forward> forward, int max_context) {
  const double relative_cost = static_cast<double>(forward->bytes_per_token()) / static_cast<double>(forward_->bytes_per_token());
  speculation_.set_model(std::make_unique<DraftModel>(std::move(forward), kernels_, vocab_size_, max_context, relative_cost));
}

void Decoder::release_block(int block) {
  forward_->release_block(block);
  if (const DraftModel* model = speculation_.model()) model->forward().release_block(block);
}

void Decoder::copy_block(int source, int target) {
  forward_->copy_block(source, target);
  if (const DraftModel* model = speculation_.model()) model->forward().copy_block(source, target);
}

void Decoder::all_logits(Sequence& s, int chunk, float* out) {
  const auto total = static_cast<int>(s.tokens.size());
  Batch batch;
  forward_->select(Lane::kUrgent);
  while (s.num_computed < total) {
    batch.clear();
    const int count = std::min(chunk, total - s.num_computed), first = s.num_computed;
    for (int i = 0; i < count; ++i) {
      batch.rows.push_back({s.tokens[static_cast<size_t>(first + i)], first + i, s.block_table.data()});
      batch.logits_rows.push_back(i);
    }
    workers_.run([&](const Worker& worker) { forward_->run(worker, batch, [] { return false; }); });
    for (int i = 0; i < count; ++i)
      std::memcpy(out + static_cast<size_t>(first + i) * vocab_size_, forward_->logits(i), sizeof(float) * vocab_size_);
    s.num_computed += count;
  }
}

}  // namespace ultrafast
