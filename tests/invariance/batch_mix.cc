#include "invariance/batch_mix.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/option_names.h"
#include "local/load.h"
#include "local/local_engine.h"

namespace tokamak::invariance {
namespace {

constexpr double kDrainSeconds = 60;
constexpr std::chrono::seconds kRestTime{30};

Result<std::unique_ptr<Engine>> LoadCounted(const EngineOptions& options, bool always_drafts,
                                            uint64_t seed, Counts* counts) {
  ASSIGN_OR_RETURN(EngineParts parts, LoadParts(options));
  parts.core.drafts.always = always_drafts || seed % 2 == 0;
  // Whatever they cost: on these models the draft model takes as long as the other.
  if (options.speculate == Speculation::kDraft) parts.core.drafts.always = true;
  std::unique_ptr<Executor>& executor = parts.replicas[0].executor;
  executor = MakeCountingExecutor(std::move(executor), options.cuda_graphs == CudaGraphs::kOn, seed,
                                  counts);
  return LocalEngine::Create(std::move(parts));
}

void Append(OutputChunk chunk, OutputChunk* whole) {
  const auto append = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  whole->text += chunk.text;
  append(whole->token_ids, chunk.token_ids);
  append(whole->logprobs, chunk.logprobs);
  append(whole->prompt_logprobs, chunk.prompt_logprobs);
  whole->finish_reason = chunk.finish_reason;
  whole->error = chunk.error;
  whole->seed = chunk.seed;
  whole->usage = chunk.usage;
}

// A step submitted ahead may still run when the last request ends, and hold its blocks.
EngineStats StatsAtRest(const Engine& engine) {
  const auto deadline = std::chrono::steady_clock::now() + kRestTime;
  while (engine.stats().used_blocks > 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return engine.stats();
}

}  // namespace

std::string BatchMixOptions::ToString() const {
  return fmt::format(
      "CUDA graphs {}, {} steps in flight, {} threads, {} sequences, {} tokens per step, {} "
      "blocks, {} host blocks, prefix cache {}, {} tokens of images cached, {} drafts by {}, {} "
      "requests at once",
      Name(cuda_graphs), steps_in_flight, threads, max_seqs, max_batch_tokens, num_blocks,
      host_blocks, prefix_cache ? "on" : "off", image_cache_tokens, draft_tokens,
      !draft_model.empty() ? draft_model
      : only_forced        ? "the grammar"
                           : "text",
      most_open);
}

BatchMixOptions RandomBatchMix(std::mt19937_64* random, const std::vector<Case>& cases,
                               int32_t block_size, int32_t cache_groups) {
  const auto below = [random](int32_t end) {
    return static_cast<int32_t>((*random)() % static_cast<uint64_t>(end));
  };
  int32_t needed = 0;
  for (const Case& c : cases) {
    const int32_t positions = c.num_prompt_tokens() + c.request.sampling.max_tokens.value_or(0);
    needed = std::max(needed, cache_groups * ((positions + block_size - 1) / block_size));
  }
  constexpr int32_t kBatchTokens[] = {2, 3, 5, 8, 13, 16, 24, 33, 48, 64, 100, 200, 512};
  BatchMixOptions options;
  options.threads = 1 + below(2);
  options.max_seqs = 2 + below(30);
  options.max_batch_tokens = kBatchTokens[below(std::size(kBatchTokens))];
  options.num_blocks = needed + below(needed + 1);
  options.host_blocks = below(3) == 0 ? 0 : 1 + below(4 * needed);
  options.prefix_cache = below(8) > 0;
  options.most_open = 4 + below(40);
  options.arrival_odds = 1 + below(8);
  options.draft_tokens = 1 + below(8);
  options.draft_source = below(3);
  constexpr int32_t kImageTokens[] = {1, 1, 60, 100, 0};
  options.image_cache_tokens = kImageTokens[below(std::size(kImageTokens))];
  return options;
}

BatchMix::BatchMix(EngineOptions base, int64_t kv_token_bytes, const BatchMixOptions& options,
                   uint64_t seed)
    : base_(std::move(base)), options_(options), random_(seed) {
  base_.cuda_graphs = options.cuda_graphs;
  base_.steps_in_flight = options.steps_in_flight;
  base_.threads = options.threads;
  base_.max_seqs = options.max_seqs;
  base_.max_batch_tokens = options.max_batch_tokens;
  base_.num_blocks = options.num_blocks;
  base_.host_cache_bytes = options.host_blocks * kv_token_bytes * base_.block_size;
  base_.prefix_cache = options.prefix_cache;
  base_.image_cache_tokens = options.image_cache_tokens;
  base_.speculate = options.draft_tokens == 0     ? Speculation::kOff
                    : options.draft_model.empty() ? Speculation::kNgram
                                                  : Speculation::kDraft;
  base_.draft_model = options.draft_model;
  if (options.draft_tokens > 0) base_.draft_tokens = options.draft_tokens;
  if (options.only_forced) base_.prompt_lookup_min = base_.prompt_lookup_max = 16;
  (options.threads == 1 ? counts_.one_thread : counts_.two_threads) = 1;
}

Result<std::vector<std::vector<OutputChunk>>> BatchMix::Run(const std::vector<Case>& cases,
                                                            Counts* counts) {
  cases_ = &cases;
  for (size_t i = 0; i < cases.size(); ++i) {
    order_.insert(order_.begin() + static_cast<int64_t>(random_() % (i + 1)), i);
    answers_.emplace_back(static_cast<size_t>(cases[i].request.sampling.n));
    open_choices_.push_back(cases[i].request.sampling.n);
  }
  ids_.resize(cases.size());
  num_chunks_.resize(cases.size());
  base_.max_queue = static_cast<int32_t>(cases.size()) + 1;
  ASSIGN_OR_RETURN(engine_, LoadCounted(base_, options_.always_drafts, random_(), &counts_));
  RETURN_IF_ERROR(Start());
  {
    MutexLock lock(mutex_);
    while (!done_) changed_.Wait(mutex_);
  }
  engine_->Drain(kDrainSeconds);
  const EngineStats stats = StatsAtRest(*engine_);
  engine_.reset();
  RETURN_IF_ERROR(status_);
  if (stats.used_blocks != 0 || stats.running != 0 || stats.waiting != 0) {
    return Internal("after the last request {} blocks are in use, {} sequences run and {} wait",
                    stats.used_blocks, stats.running, stats.waiting);
  }
  counts_.tokens += stats.generated_tokens;
  counts_.cached_tokens += stats.cached_prompt_tokens;
  counts_.preemptions += stats.preemptions;
  counts_.drafts += stats.drafts;
  counts_.accepted_drafts += stats.accepted_drafts;
  if (base_.speculate == Speculation::kDraft && base_.draft_model == base_.model) {
    counts_.own_drafts += stats.drafts;
  } else if (base_.speculate == Speculation::kDraft) {
    counts_.other_drafts += stats.drafts;
  }
  counts->Add(counts_);
  return std::move(answers_);
}

// Submits a first request. Its callback submits the others, and theirs continue.
Status BatchMix::Start() {
  Request first;
  first.token_ids = {1};
  first.sampling.temperature = 0;
  first.sampling.max_tokens = 1;
  const auto id = engine_->Submit(std::move(first), [this](const OutputChunk& chunk) {
    if (chunk.finish_reason) SubmitSome();
  });
  return id.status();
}

void BatchMix::SubmitSome() {
  while (status_.ok() && next_ < order_.size()) {
    const size_t open = next_ - num_ended_;
    if (open >= static_cast<size_t>(options_.most_open)) return;
    if (open > 0 && random_() % static_cast<uint64_t>(options_.arrival_odds) != 0) return;
    SubmitNext();
  }
}

void BatchMix::SubmitNext() {
  const size_t index = order_[next_++];
  const Case& c = (*cases_)[index];
  const auto take = [this, index](OutputChunk chunk) { Take(index, std::move(chunk)); };
  const Result<RequestId> id = engine_->Submit(c.request, take);
  if (!id.ok()) return Fail(id.status());
  ids_[index] = *id;
  if (c.cancel_after == 0) engine_->Cancel(*id);
}

void BatchMix::Take(size_t index, OutputChunk chunk) {
  if (!status_.ok()) return;  // the engine will be destroyed
  const bool last = chunk.finish_reason.has_value();
  OutputChunk& whole = answers_[index][static_cast<size_t>(chunk.choice)];
  if (whole.finish_reason) return Fail(Internal("request {} got a chunk after its last", index));
  Append(std::move(chunk), &whole);
  if (++num_chunks_[index] == (*cases_)[index].cancel_after) engine_->Cancel(ids_[index]);
  if (last && --open_choices_[index] == 0 && ++num_ended_ == order_.size()) return Done();
  SubmitSome();
}

void BatchMix::Fail(Status status) {
  status_ = std::move(status);
  Done();
}

void BatchMix::Done() {
  MutexLock lock(mutex_);
  done_ = true;
  changed_.NotifyAll();
}

}  // namespace tokamak::invariance
