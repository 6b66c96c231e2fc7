// Checkpoint → tokenizer → ops → model → runner → engine.
#include "local/load_embedding.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/thread_pool.h"
#include "local/fingerprint.h"
#include "local/load_ranks.h"
#include "local/load_steps.h"
#include "local/memory_estimate.h"
#include "tokenizer/load/open_tokenizer.h"
#include "weights/memory.h"

namespace tokamak {
namespace {

Status CheckSpec(const EmbeddingSpec& spec, const ModelSpec& model, const std::string& source) {
  if (spec.hidden_size != 0 && spec.hidden_size != model.hidden_size) {
    return DataLoss("{}: the pooling is for hidden states of size {}, but the model's have size {}",
                    source, spec.hidden_size, model.hidden_size);
  }
  if (!spec.dimensions.empty() && spec.dimensions.back() > model.hidden_size) {
    return DataLoss("{}: matryoshka_dimensions: {} is more than the model's {}", source,
                    spec.dimensions.back(), model.hidden_size);
  }
  return Status();
}

EmbeddingInfo DescribeEmbedding(const EmbeddingSpec& spec, const ModelSpec& model) {
  EmbeddingInfo info;
  info.dimensions = model.hidden_size;
  info.pooling = spec.pooling;
  info.normalized = spec.normalize;
  for (const auto& [name, prompt] : spec.prompts) info.prompts.push_back(name);
  info.cut_dimensions = spec.dimensions;
  info.any_dimensions = spec.any_dimensions;
  return info;
}

}  // namespace

bool IsForEmbedding(const EngineOptions& options, const Checkpoint& checkpoint) {
  return options.pooling != Pooling::kAuto || checkpoint.embedding ||
         IsEncoder(checkpoint.architecture);
}

// The cache lasts for a batch only, so f32 costs little beside the matrix products. On a GPU,
// tensor cores need bf16.
KvCacheDtype EmbeddingCacheType(const EngineOptions& options, bool gpu) {
  return gpu && !options.precise ? KvCacheDtype::kBF16 : KvCacheDtype::kF32;
}

Result<EmbeddingSpec> ChooseEmbeddingSpec(const EngineOptions& options,
                                          const Checkpoint& checkpoint) {
  for (const auto& [field, value] : ParallelOptions(options)) {
    if (value == 1) continue;
    return Unimplemented("{}: models that embed run on one rank, got {}", field, value);
  }
  if (options.workers == WorkerKind::kProcesses) {
    return Unimplemented("workers=processes: models that embed run in this process");
  }
  const std::optional<EmbeddingSpec>& stored = checkpoint.embedding;
  if (options.pooling == Pooling::kAuto && !stored) {
    return InvalidArgument(
        "{}: there is no modules.json, which says how hidden states become a vector; choose with "
        "pooling=mean, cls or last",
        checkpoint.source);
  }
  EmbeddingSpec spec = stored.value_or(EmbeddingSpec());
  if (options.pooling != Pooling::kAuto) spec.pooling = options.pooling;
  return spec;
}

Result<EmbeddingShape> ChooseEmbeddingShape(const EngineOptions& options, const EmbeddingSpec& spec,
                                            const Model& model, const std::string& source,
                                            int64_t available_bytes) {
  RETURN_IF_ERROR(CheckSpec(spec, model.spec(), source));
  EmbeddingShape shape;
  shape.pooling = spec.pooling;
  shape.normalize = spec.normalize;
  shape.max_texts = options.max_seqs;
  shape.block_size = options.block_size;
  shape.max_length = model.spec().max_context;
  if (spec.max_tokens > 0) shape.max_length = std::min(shape.max_length, spec.max_tokens);
  shape.kv_dtype = MakeRunnerShape(options, model).kv_dtype;
  const auto& layers = model.spec().cache.layers;
  const bool causal =
      std::all_of(layers.begin(), layers.end(), [](const auto& layer) { return layer.causal; });
  for (;; shape.max_length /= 2) {
    shape.max_tokens = options.max_batch_tokens;
    if (!causal) shape.max_tokens = std::max(shape.max_tokens, shape.max_length);
    ASSIGN_OR_RETURN(const EmbeddingMemory memory, ProfileEmbedding(model, shape));
    const int64_t bytes = memory.arena_bytes + memory.cache_bytes + 2 * memory.staging_bytes;
    if (bytes <= available_bytes / 2) break;
    if (options.max_context > 0 || shape.max_length <= shape.block_size) {
      return ResourceExhausted(
          "texts of {} tokens need {:.2f} GB for cache and activations, but only {:.2f} GB of "
          "memory are free; lower max_context, max_batch_tokens or max_seqs",
          shape.max_length, static_cast<double>(bytes) / 1e9,
          static_cast<double>(available_bytes) / 1e9);
    }
  }
  return shape;
}

Result<EmbeddingParts> LoadEmbeddingParts(const EngineOptions& given,
                                          const Checkpoint& checkpoint) {
  const auto start = std::chrono::steady_clock::now();
  EmbeddingParts parts;
  EngineOptions& options = parts.options;
  options = given;
  ASSIGN_OR_RETURN(EmbeddingSpec spec, ChooseEmbeddingSpec(options, checkpoint));
  if (!options.record_path.empty()) {
    return InvalidArgument("record_path: embedding models have no steps to record");
  }
  parts.pool = MakePool(options);
  ASSIGN_OR_RETURN(std::unique_ptr<Ops> ops,
                   MakeOpsFor(checkpoint, options, Task::kEmbed, *parts.pool, &parts.take_profile));
  const bool gpu = options.device != "cpu";
  if (given.kv_cache_dtype == KvCacheDtype::kAuto)
    options.kv_cache_dtype = EmbeddingCacheType(options, gpu);
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model,
                   LoadWeights(checkpoint, *ops, options, Task::kEmbed));
  std::optional<int64_t> available = ops->FreeDeviceMemory();
  if (!available) {
    ASSIGN_OR_RETURN(const MemoryBudget memory, AvailableMemory());
    available = static_cast<int64_t>(memory.available_bytes);
  }
  ASSIGN_OR_RETURN(const EmbeddingShape shape,
                   ChooseEmbeddingShape(options, spec, *model, checkpoint.source, *available));

  parts.model = Describe(checkpoint, *model, *ops);
  parts.model.task = Task::kEmbed;
  parts.model.embedding = DescribeEmbedding(spec, model->spec());
  parts.model.device = options.device;
  parts.model.threads = options.isa == "reference" ? 1 : parts.pool->num_threads();
  parts.model.max_context = shape.max_length;
  parts.model.max_seqs = shape.max_texts;
  parts.prompts = std::move(spec.prompts);
  parts.default_prompt = std::move(spec.default_prompt);
  ASSIGN_OR_RETURN(parts.system_fingerprint, SystemFingerprint(checkpoint, options, parts.model));
  ASSIGN_OR_RETURN(parts.tokenizer, MakeTokenizer(checkpoint));
  if (parts.tokenizer != nullptr && parts.tokenizer->vocab_size() > parts.model.vocab_size) {
    return DataLoss("{}: the tokenizer has {} tokens, but the model only {}", checkpoint.source,
                    parts.tokenizer->vocab_size(), parts.model.vocab_size);
  }
  ASSIGN_OR_RETURN(parts.runner, EmbeddingRunner::Create(std::move(ops), std::move(model), shape));
  parts.model.load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return parts;
}

}  // namespace tokamak
