#include "local/memory_estimate.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/option_names.h"
#include "ops/count/count_ops.h"
#include "ops/cpu/activation.h"
#include "ops/cpu/isa.h"
#include "ops/cuda/check_sizes.h"
#include "ops/cuda/cuda_ops.h"

namespace tokamak {
namespace {

// The place of one of a replica's ranks, which are numbered stage by stage.
RankInfo RankOf(const EngineOptions& options, int32_t rank) {
  const int32_t size = options.tensor_parallel;
  return {size, rank % size, options.pipeline_parallel, rank / size};
}

DType KvDtype(KvCacheDtype dtype) {
  constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kQ8_0};
  CHECK(dtype != KvCacheDtype::kAuto);  // chosen before
  return kTypes[static_cast<size_t>(dtype) - 1];
}

template <bool kPrecise>
int64_t CudaBytes(const WeightSpec& spec) {
  int64_t elements = 0;
  for (const auto& part : spec.parts) elements += part->shape().elements();
  return elements * static_cast<int64_t>(RowBytes(CudaWeightType(kPrecise, spec.use), 1));
}

// Sets the rows of images that the runner keeps, and that a step encodes. A step can show about as
// many as it has tokens, so it need not encode more.
void SizeEncoderCache(const EngineOptions& options, const ImageEncoderSpec& encoder,
                      RunnerShape& shape) {
  constexpr int64_t kMostByDefault = 256 << 20;  // bytes
  const int64_t image = encoder.max_image_rows;
  const int64_t row_bytes = encoder.row_size * static_cast<int64_t>(sizeof(float));
  int64_t rows = options.image_cache_tokens;
  if (rows == 0) rows = std::min(image * options.max_images, kMostByDefault / row_bytes);
  shape.max_encoder_rows = static_cast<int32_t>(std::clamp<int64_t>(rows, image, INT32_MAX));
  shape.max_step_image_rows =
      std::min(shape.max_encoder_rows, std::max(encoder.max_image_rows, shape.max_step_tokens));
}

}  // namespace

WeightSizer CudaSizer(bool precise) { return precise ? &CudaBytes<true> : &CudaBytes<false>; }

Result<CountedBackend> CountedCpu(const EngineOptions& options, int32_t rank) {
  CountedBackend backend{.name = options.isa, .rank = RankOf(options, rank)};
  if (options.isa == "reference") return backend;
  ASSIGN_OR_RETURN(
      const cpu::IsaKernels isa,
      cpu::ChooseKernels(options.isa + (options.precise ? std::string(cpu::kPrecise) : "")));
  backend.name = cpu::BackendName(isa);
  backend.activation = [isa](const WeightSpec& spec) { return cpu::ActivationOf(spec, isa); };
  return backend;
}

CountedBackend CountedCuda(bool precise) {
  return {.name = "cuda",
          .capabilities = kCudaCapabilities,
          .inner_type = CudaWeightType(precise),
          .activation = [precise](const WeightSpec& spec) {
            return CudaWeightType(precise, spec.use);
          }};
}

CountedBackend CountedCuda(const EngineOptions& options, int32_t rank) {
  CountedBackend gpu = CountedCuda(options.precise);
  if (options.precise) gpu.name += "/precise";
  gpu.rank = RankOf(options, rank);
  return gpu;
}

CountedBackend CountedGpu(const Ops& ops, bool precise) {
  CountedBackend gpu = CountedCuda(precise);
  gpu.name = ops.name();
  gpu.capabilities = ops.capabilities();
  gpu.rank = ops.rank();
  return gpu;
}

Status CheckCudaCache(const EngineOptions& options) {
  if (options.kv_cache_dtype == KvCacheDtype::kAuto) return Status();
  if (CudaHoldsKeys(KvDtype(options.kv_cache_dtype))) return Status();
  return Unimplemented("kv_cache_dtype={}: on GPUs, a KV cache is in f32, f16, bf16 or fp8",
                       Name(options.kv_cache_dtype));
}

Status CheckCudaSizes(const ModelSpec& spec) {
  for (const nn::KvLayerSpec& layer : spec.cache.layers) {
    RETURN_IF_ERROR(CheckCudaAttention(layer.Attention()));
  }
  for (const StateLayerSpec& layer : spec.cache.state_layers) {
    RETURN_IF_ERROR(CheckCudaState(layer));
  }
  return CheckCudaVocabulary(spec.vocab_size);
}

LoadOptions MakeLoadOptions(const EngineOptions& options) {
  LoadOptions load;
  load.max_context = options.max_context;
  load.uniform_routing = options.uniform_routing;
  load.mla_form = options.mla;
  return load;
}

Result<DType> ParseDummyType(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](char c) {
    return 'a' <= c && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (Name(dtype) == name && HoldsWeights(dtype)) return dtype;
  }
  return InvalidArgument("dummy_dtype: \"{}\" is not a type that weights can have", name);
}

void ChooseForDevice(EngineOptions& options, bool gpu) {
  if (options.steps_in_flight == 0) {
    // Every stage has one while the engine takes back the oldest. A CPU in this process computes a
    // step when it is submitted.
    const int32_t stages = options.pipeline_parallel;
    const bool ahead = gpu || stages > 1 || options.workers == WorkerKind::kProcesses;
    options.steps_in_flight = ahead ? stages + 1 : 1;
  }
  if (options.max_seqs == 0) options.max_seqs = gpu ? 256 : 64;
  // A GPU needs thousands of tokens to keep its tensor cores busy; with 512, prompts take up to
  // twice as long. A CPU reaches its peak much earlier, and a longer step only delays running
  // sequences.
  if (options.max_batch_tokens == 0) options.max_batch_tokens = gpu ? 8192 : kCpuBatchTokens;
  if (options.speculate == Speculation::kAuto) {
    options.speculate = options.draft_model.empty() ? Speculation::kNgram : Speculation::kDraft;
  }
}

Status ChooseForModel(EngineOptions& options, const EngineOptions& given, const Model& model) {
  const ModelSpec& spec = model.spec();
  if (!spec.cache.keeps_states()) return Status();
  const bool wants_drafts = given.speculate == Speculation::kNgram ||
                            given.speculate == Speculation::kDraft || !given.draft_model.empty();
  if (wants_drafts) {
    return Unimplemented(
        "speculate={}: {} keeps a state per sequence, which cannot go back to where it was before "
        "refused drafts; use off or auto, without a draft model",
        Name(given.speculate), spec.architecture);
  }
  if (given.host_cache_bytes > 0) {
    return Unimplemented(
        "host_cache_bytes: the host tier would stay empty, because {} keeps a state per sequence "
        "and so uses no cached blocks; use 0",
        spec.architecture);
  }
  LogInfo("{} keeps a state per sequence: it runs without a prefix cache and without drafts",
          spec.architecture);
  options.speculate = Speculation::kOff;
  options.prefix_cache = false;
  return Status();
}

RunnerShape MakeRunnerShape(const EngineOptions& options, const Model& model) {
  RunnerShape shape;
  shape.max_seqs = options.max_seqs;
  shape.max_step_tokens = options.max_batch_tokens;
  shape.draft_min_probability = options.draft_min_probability;
  if (options.speculate != Speculation::kOff && !model.spec().cache.keeps_states()) {
    // Enough for 16 sequences with the default number of drafts. Each takes a row of logits.
    constexpr int32_t kMaxStepDrafts = 64;
    shape.max_step_drafts = std::min(options.max_seqs * options.draft_tokens, kMaxStepDrafts);
  }
  shape.synthetic_acceptance = options.synthetic_acceptance;
  shape.max_context = model.spec().max_context;
  shape.block_size = options.block_size;
  shape.depth = options.steps_in_flight;
  shape.cuda_graphs = options.cuda_graphs;
  shape.expert_loads = true;  // costs a few kilobytes per step
  shape.kv_dtype = KvDtype(options.kv_cache_dtype);
  if (model.image_encoder() != nullptr && options.max_images > 0) {
    SizeEncoderCache(options, model.image_encoder()->spec(), shape);
  }
  return shape;
}

Result<MemoryProfile> EstimateRunnerMemory(const Model& model, const EngineOptions& options,
                                           const RunnerShape& shape, int64_t available_bytes,
                                           bool on_device, const Model* draft) {
  CacheBudget budget;
  budget.available_bytes = available_bytes;
  budget.num_blocks = options.num_blocks;
  budget.kv_cache_bytes = options.kv_cache_bytes;
  budget.host_cache_bytes = options.host_cache_bytes;
  budget.host_tier_apart = on_device;
  if (on_device) {
    // A GPU that runs an engine does little else. The rest is for what the backend makes later,
    // such as graphs and the sampler's counts.
    constexpr double kRest = 1 << 30;  // bytes
    budget.default_positions = shape.max_context;
    budget.default_fraction = std::clamp(
        1 - kRest / static_cast<double>(std::max<int64_t>(1, available_bytes)), 0.5, 0.9);
  }
  const std::unique_ptr<CountOps> count = MakeCountOps();
  return ProfileMemory(model, *count, shape, budget, draft);
}

Result<int64_t> LoadedBytes(const Checkpoint& checkpoint, const EngineOptions& options, Task task) {
  LoadOptions load = MakeLoadOptions(options);
  load.task = task;
  int64_t bytes = 0;
  const int32_t ranks = options.tensor_parallel * options.pipeline_parallel;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const std::unique_ptr<CountOps> count =
        MakeCountOps(&StoredBytes, {.rank = RankOf(options, rank)});
    RETURN_IF_ERROR(LoadModel(checkpoint, *count, load).status());
    bytes += count->packed_bytes() + count->allocated_bytes(MemoryKind::kDevice);
  }
  return bytes * options.data_parallel;
}

Status SuggestCpu(const Checkpoint& checkpoint, const EngineOptions& options, Task task,
                  const Status& refusal) {
  if (refusal.code() != StatusCode::kUnimplemented ||
      !LoadedBytes(checkpoint, options, task).ok()) {
    return refusal;
  }
  return Unimplemented("{}; use device=cpu", refusal.message());
}

Status CheckFitsOnDevice(const Checkpoint& checkpoint, const EngineOptions& options, Task task,
                         int64_t free_bytes, const CountedBackend& gpu) {
  RETURN_IF_ERROR(CheckCudaCache(options));
  const std::unique_ptr<CountOps> count = MakeCountOps(CudaSizer(options.precise), gpu);
  LoadOptions load = MakeLoadOptions(options);
  load.task = task;
  ASSIGN_OR_RETURN(const std::unique_ptr<Model> model, LoadModel(checkpoint, *count, load));
  RETURN_IF_ERROR(CheckCudaSizes(model->spec()).WithContext(checkpoint.source));
  const int64_t weights = count->packed_bytes() + count->allocated_bytes(MemoryKind::kDevice);
  constexpr double kGB = 1e9;
  if (weights > free_bytes) {
    return ResourceExhausted(
        "{}: the weights need {:.2f} GB of GPU memory as {}, but only {:.2f} GB are free; use a "
        "smaller model or another GPU",
        checkpoint.source, static_cast<double>(weights) / kGB,
        options.precise ? "f32 (precise)" : "bf16", static_cast<double>(free_bytes) / kGB);
  }
  if (task == Task::kEmbed) return Status();  // ChooseEmbeddingShape fits the rest
  const RunnerShape shape = MakeRunnerShape(options, *model);
  EngineOptions of_rank = options;
  of_rank.kv_cache_bytes /= gpu.rank.size * gpu.rank.stages;
  const Status status =
      EstimateRunnerMemory(*model, of_rank, shape, free_bytes - weights, /*on_device=*/true)
          .status();
  if (status.ok()) return status;
  return status.WithContext(fmt::format(
      "{}, whose weights leave {:.2f} of {:.2f} GB of GPU memory", checkpoint.source,
      static_cast<double>(free_bytes - weights) / kGB, static_cast<double>(free_bytes) / kGB));
}

}  // namespace tokamak
