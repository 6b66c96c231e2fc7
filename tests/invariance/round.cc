#include "invariance/round.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/option_names.h"
#include "invariance/batch_mix.h"
#include "invariance/compare.h"
#include "invariance/requests.h"
#include "tokamak/engine.h"

namespace tokamak::invariance {
namespace {

// Options that may change answers, so they are equal alone and in mixed batches.
EngineOptions RandomBase(const RoundOptions& options, std::mt19937_64* random) {
  constexpr KvCacheDtype kCacheTypes[] = {KvCacheDtype::kF32, KvCacheDtype::kF16,
                                          KvCacheDtype::kBF16, KvCacheDtype::kFp8};
  constexpr int32_t kBlockSizes[] = {16, 8, 5};
  EngineOptions base;
  base.model = options.model;
  base.device = options.device;
  base.isa = options.isa;
  base.kernels = options.kernels;
  base.kv_cache_dtype = kCacheTypes[(*random)() % std::size(kCacheTypes)];
  // GPUs do not have it, and it needs larger heads than the tiny models have.
  if (!options.tiny && !options.gpu() && (*random)() % 4 == 0) {
    base.kv_cache_dtype = KvCacheDtype::kQ8_0;
  }
  base.block_size = kBlockSizes[(*random)() % std::size(kBlockSizes)];
  base.max_context = options.tiny ? 0 : 512;
  base.max_logprobs = -1;
  return base;
}

// One request, one sequence, one step and one image at a time, without chunks, prefix cache, graphs
// or drafts.
EngineOptions Alone(EngineOptions base) {
  base.cuda_graphs = CudaGraphs::kOff;
  base.steps_in_flight = 1;
  base.threads = 1;
  base.max_seqs = 1;
  base.max_batch_tokens = 1024;
  base.prefix_cache = false;
  base.image_cache_tokens = 1;
  base.speculate = Speculation::kOff;
  return base;
}

Status RunAlone(Engine& engine, Case* c) {
  ASSIGN_OR_RETURN(c->alone, engine.Generate(c->request));
  for (const OutputChunk& choice : c->alone) {
    if (choice.finish_reason == FinishReason::kStop ||
        choice.finish_reason == FinishReason::kLength) {
      continue;
    }
    return Internal("alone, a request ended with an error: {}", choice.error.ToString());
  }
  return Status();
}

Result<std::vector<Case>> MakeCases(const RoundOptions& options, Engine& engine,
                                    std::mt19937_64* random) {
  const uint64_t seed = (*random)();
  ASSIGN_OR_RETURN(Material material,
                   options.tiny ? TinyMaterial(seed, engine.model()) : TextMaterial(engine));
  if (!options.draft_mixes.empty()) material.repeat_percent = 40;
  RequestMaker maker((*random)(), std::move(material));
  std::vector<Case> cases;
  const int32_t count = options.requests + (options.requests + 3) / 4;
  for (int32_t i = 0; i < count; ++i) {
    Case c;
    c.request = maker.Next(cases);
    if (i >= options.requests) c.cancel_after = static_cast<int32_t>((*random)() % 12);
    RETURN_IF_ERROR(RunAlone(engine, &c));
    cases.push_back(std::move(c));
  }
  return cases;
}

std::string Compare(const std::vector<Case>& cases,
                    const std::vector<std::vector<OutputChunk>>& answers, Counts* counts) {
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::string difference = FirstDifference(answers[i], cases[i].alone);
    if (!difference.empty()) {
      return fmt::format("request {}, {}\n  request: {}", i, difference,
                         Describe(cases[i].request));
    }
    if (cases[i].cancel_after < 0) ++counts->requests;
    if (answers[i].front().finish_reason == FinishReason::kCancelled) ++counts->cancelled;
    const auto& thinking = cases[i].request.sampling.thinking;
    if (thinking && answers[i].front().text.find(thinking->close) != std::string::npos) {
      ++counts->thoughts_ended;
    }
  }
  return "";
}

// Makes `random` a mix that drafts in this way.
void SetDrafts(const RoundOptions& options, const DraftMix& drafts, BatchMixOptions* random) {
  random->steps_in_flight = drafts.steps_in_flight;
  random->only_forced = drafts.method == DraftMix::Method::kForced;
  // In one of four rounds what is worth it: which rows draft then also depends on the others.
  random->always_drafts = options.seed % 4 != 0;
  random->draft_model.clear();
  if (drafts.method != DraftMix::Method::kModel) return;
  random->draft_model =
      options.seed % 2 == 0 && !options.other_model.empty() ? options.other_model : options.model;
}

// Returns `random` with the properties that mix `i` must have.
BatchMixOptions Circumstances(const RoundOptions& options, int32_t i, int32_t first_depth,
                              BatchMixOptions random) {
  const bool drafts_only = !options.draft_mixes.empty();
  random.cuda_graphs = i < 2 || drafts_only ? CudaGraphs::kOff : CudaGraphs::kOn;
  random.steps_in_flight = 1 << (first_depth + i) % 3;
  random.threads = 1 + i % 2;
  random.max_batch_tokens = std::max(random.max_batch_tokens, options.least_batch_tokens);
  if (drafts_only) {
    SetDrafts(options, options.draft_mixes[static_cast<size_t>(i)], &random);
  } else {
    const std::string draft_models[] = {"", options.model, options.other_model};
    random.draft_model = draft_models[random.draft_source];
  }
  // Makes one of two mixes swap, even in runs of a few requests.
  if ((options.seed + static_cast<uint64_t>(i)) % 2 == 0) {
    random.prefix_cache = true;
    random.host_blocks = std::max(random.host_blocks, random.num_blocks);
  }
  if (options.states) {
    random.draft_tokens = random.host_blocks = 0;
    random.draft_model.clear();
  }
  // Even a small step of a real model takes time.
  if (!options.tiny) random.max_batch_tokens = std::max(24, random.max_batch_tokens);
  return random;
}

Result<std::string> Run(const RoundOptions& options, std::vector<Counts>* counts) {
  std::mt19937_64 random(Hash64(options.salt.data(), options.salt.size(), options.seed));
  const EngineOptions base = RandomBase(options, &random);
  ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, Engine::Load(Alone(base)));
  ASSIGN_OR_RETURN(const std::vector<Case> cases, MakeCases(options, *engine, &random));
  const int64_t kv_token_bytes = engine->model().kv_token_bytes;
  engine.reset();
  const auto first_depth = static_cast<int32_t>(random() % 3);
  const auto num_draft_mixes = static_cast<int32_t>(options.draft_mixes.size());
  const int32_t num_mixes = num_draft_mixes > 0 ? num_draft_mixes : options.gpu() ? 4 : 2;
  for (int32_t i = 0; i < num_mixes; ++i) {
    Counts* const into = &(*counts)[num_draft_mixes > 0 ? static_cast<size_t>(i) : 0];
    const BatchMixOptions circumstances =
        Circumstances(options, i, first_depth,
                      RandomBatchMix(&random, cases, base.block_size, options.cache_groups));
    BatchMix mix(base, kv_token_bytes, circumstances, random());
    const auto answers = mix.Run(cases, into);
    const std::string where =
        fmt::format("\n  mix {}: {}\n  cache: {}, blocks of {}", i, circumstances.ToString(),
                    Name(base.kv_cache_dtype), base.block_size);
    if (!answers.ok()) return answers.status().ToString() + where;
    std::string difference = Compare(cases, *answers, into);
    if (!difference.empty()) return difference + where;
  }
  return std::string();
}

}  // namespace

std::string RunRound(const RoundOptions& options, std::vector<Counts>* counts) {
  Result<std::string> difference = Run(options, counts);
  return difference.ok() ? *std::move(difference) : difference.status().ToString();
}

}  // namespace tokamak::invariance
