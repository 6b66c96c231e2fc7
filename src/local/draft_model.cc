#include "local/draft_model.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/byte_count.h"
#include "base/error.h"
#include "base/log.h"
#include "local/load_embedding.h"
#include "local/load_steps.h"
#include "local/memory_estimate.h"
#include "ops/count/count_ops.h"
#include "tokenizer/load/open_tokenizer.h"
#include "weights/memory.h"

namespace tokamak {
namespace {

// The tokens without those that only fill a GGUF file's vocabulary up to the size of its embedding.
int32_t NumTokens(const Tokenizer& tokenizer) {
  int32_t count = tokenizer.vocab_size();
  while (count > 0 && tokenizer.TokenPiece(count - 1) == fmt::format("[PAD{}]", count - 1)) --count;
  return count;
}

Status CheckSameTokens(const Checkpoint& model, const Checkpoint& draft) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> expected, MakeTokenizer(model));
  ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokens, MakeTokenizer(draft));
  if (expected == nullptr && tokens == nullptr) return Status();
  if (expected == nullptr || tokens == nullptr) {
    return InvalidArgument(
        "draft_model: {} has no tokenizer, so its tokens cannot be compared with those of {}",
        tokens ? model.source : draft.source, tokens ? draft.source : model.source);
  }
  const int32_t num_tokens = NumTokens(*expected);
  if (NumTokens(*tokens) != num_tokens) {
    return InvalidArgument(
        "draft_model: {} has {} tokens, but {} has {}; a draft model must have the same ones",
        draft.source, NumTokens(*tokens), model.source, num_tokens);
  }
  for (int32_t id = 0; id < num_tokens; ++id) {
    if (tokens->TokenPiece(id) == expected->TokenPiece(id)) continue;
    return InvalidArgument(
        "draft_model: token {} is \"{}\" in {}, but \"{}\" in {}; a draft model must have the same "
        "tokens",
        id, tokens->TokenPiece(id), draft.source, expected->TokenPiece(id), model.source);
  }
  return Status();
}

}  // namespace

Result<Checkpoint> OpenDraftModel(const Checkpoint& model, const EngineOptions& options) {
  ASSIGN_OR_RETURN(const DType dummy_dtype, ParseDummyType(options.dummy_dtype));
  Result<Checkpoint> draft =
      OpenCheckpoint(options.draft_model, {.dummy_dtype = dummy_dtype, .mmproj = "none"});
  if (!draft.ok()) return draft.status().WithContext("draft_model");
  if (IsForEmbedding(options, *draft)) {
    return InvalidArgument("draft_model: {} makes embeddings and cannot generate text",
                           draft->source);
  }
  RETURN_IF_ERROR(CheckSameTokens(model, *draft));
  return draft;
}

Status CheckBothFit(const Checkpoint& model, const Checkpoint& draft, const EngineOptions& given,
                    Ops& ops) {
  const std::optional<int64_t> free_bytes = ops.FreeDeviceMemory();
  const std::unique_ptr<CountOps> count =
      free_bytes ? MakeCountOps(CudaSizer(given.precise), CountedGpu(ops, given.precise))
                 : MakeCountOps();
  EngineOptions options = given;
  RETURN_IF_ERROR(LoadModel(model, *count, MakeLoadOptions(options)).status());
  options.max_context = 0;
  const Result<std::unique_ptr<Model>> counted = LoadModel(draft, *count, MakeLoadOptions(options));
  Status status = counted.status();
  if (free_bytes && status.ok()) status = CheckCudaSizes((*counted)->spec());
  if (free_bytes) status = SuggestCpu(draft, options, Task::kGenerate, status);
  if (!status.ok()) return status.WithContext("draft_model");
  const int64_t bytes = count->packed_bytes() + count->allocated_bytes(MemoryKind::kDevice);
  const std::string what =
      fmt::format("{} and the draft model {}: weights and RoPE tables", model.source, draft.source);
  if (!free_bytes) return CheckFitsInMemory(what, static_cast<uint64_t>(bytes));
  if (bytes <= *free_bytes) return Status();
  return ResourceExhausted("{} need {} of GPU memory, but only {} are free", what, ByteCount(bytes),
                           ByteCount(*free_bytes));
}

Result<std::unique_ptr<Model>> LoadDraftModel(const Checkpoint& draft, Ops& ops,
                                              const EngineOptions& given, int32_t context) {
  EngineOptions options = given;
  options.max_context = 0;
  options.on_load_progress = nullptr;
  const std::unique_ptr<CountOps> count = MakeCountOps();
  ASSIGN_OR_RETURN(const std::unique_ptr<Model> counted,
                   LoadModel(draft, *count, MakeLoadOptions(options)));
  if (!counted->spec().cache.state_layers.empty()) {
    return Unimplemented("draft_model: {} has layers that keep a state, which refused drafts spoil",
                         draft.source);
  }
  options.max_context = std::min(context, counted->spec().max_context);
  if (options.max_context < context) {
    LogInfo("the draft model {} drafts only within its context of {} tokens", draft.source,
            options.max_context);
  }
  return LoadWeights(draft, ops, options, Task::kGenerate);
}

}  // namespace tokamak
