// Checkpoint → tokenizer → ops → model → runner → executor → engine.
#include "local/load.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>

#include "base/error.h"
#include "base/log.h"
#include "base/option_names.h"
#include "base/thread_pool.h"
#include "local/draft_model.h"
#include "local/embedding_engine.h"
#include "local/fingerprint.h"
#include "local/load_embedding.h"
#include "local/load_images.h"
#include "local/load_ranks.h"
#include "local/load_steps.h"
#include "local/load_workers.h"
#include "local/local_engine.h"
#include "local/memory_estimate.h"
#include "local/replay_file.h"
#include "models/registry.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/roofline.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/profile/profiled_ops.h"
#include "ops/reference/reference_ops.h"
#include "tokenizer/load/chat_source.h"
#include "tokenizer/load/open_tokenizer.h"
#include "weights/checkpoint.h"
#include "weights/memory.h"

namespace tokamak {
namespace {

constexpr int32_t kMaxSeqs = 4096;
constexpr int32_t kMaxBatchTokens = 1 << 16;
constexpr int32_t kMaxBlockSize = 1024;
constexpr int32_t kMaxStepsInFlight = 4;
constexpr int32_t kMaxDraftTokens = 16;
constexpr int32_t kMaxLookup = 16;
constexpr int32_t kMaxImages = 1024;
constexpr int32_t kMaxImagePixels = 1 << 28;

template <typename Number>
Status CheckRange(const char* field, Number value, Number low, Number high) {
  if (value >= low && value <= high) return Status();
  return InvalidArgument("{}: must be in [{}, {}], got {}", field, low, high, value);
}

}  // namespace

Result<DeviceChoice> ParseDevice(const std::string& name) {
  DeviceChoice choice;
  if (name == "auto") return choice;
  choice.gpu = name != "cpu";
  choice.cpu = !choice.gpu;
  char rest = 0;
  if (name == "cpu" || name == "cuda" ||
      (std::sscanf(name.c_str(), "cuda:%d%c", &choice.index, &rest) == 1 && choice.index >= 0)) {
    return choice;
  }
  return InvalidArgument("device: must be cpu, cuda, cuda:N or auto, got \"{}\"", name);
}

Status CheckOptions(const EngineOptions& o) {
  RETURN_IF_ERROR(ParseDevice(o.device).status());
  RETURN_IF_ERROR(CheckRange("threads", o.threads, 0, 1024));
  RETURN_IF_ERROR(CheckRanks(o));
  RETURN_IF_ERROR(CheckRange("max_seqs", o.max_seqs, 0, kMaxSeqs));
  // Zero stands for the device's default.
  RETURN_IF_ERROR(CheckRange("max_batch_tokens", o.max_batch_tokens == 0 ? 2 : o.max_batch_tokens,
                             2, kMaxBatchTokens));
  RETURN_IF_ERROR(CheckRange("max_context", o.max_context, 0, INT32_MAX));
  RETURN_IF_ERROR(CheckRange("max_queue", o.max_queue, 1, INT32_MAX));
  RETURN_IF_ERROR(CheckRange("max_logprobs", o.max_logprobs, -1, INT32_MAX));
  RETURN_IF_ERROR(CheckRange("max_images", o.max_images, 0, kMaxImages));
  RETURN_IF_ERROR(CheckRange("max_image_bytes", o.max_image_bytes, int64_t{1}, INT64_MAX));
  RETURN_IF_ERROR(CheckRange("max_image_pixels", o.max_image_pixels, 1, kMaxImagePixels));
  RETURN_IF_ERROR(CheckRange("image_cache_tokens", o.image_cache_tokens, 0, INT32_MAX));
  RETURN_IF_ERROR(CheckRange("draft_tokens", o.draft_tokens, 1, kMaxDraftTokens));
  RETURN_IF_ERROR(CheckRange("draft_tokens_min", o.draft_tokens_min, 0, o.draft_tokens));
  RETURN_IF_ERROR(CheckRange("prompt_lookup_min", o.prompt_lookup_min, 1, kMaxLookup));
  RETURN_IF_ERROR(
      CheckRange("prompt_lookup_max", o.prompt_lookup_max, o.prompt_lookup_min, kMaxLookup));
  RETURN_IF_ERROR(
      CheckRange("synthetic_acceptance", o.synthetic_acceptance.value_or(0), 0.0f, 1.0f));
  RETURN_IF_ERROR(CheckRange("draft_min_probability", o.draft_min_probability, 0.0f, 1.0f));
  if (o.speculate == Speculation::kDraft && o.draft_model.empty()) {
    return InvalidArgument(
        "draft_model: must be given with speculate=draft: a second, smaller model with the same "
        "tokens");
  }
  RETURN_IF_ERROR(CheckRange("block_size", o.block_size, 1, kMaxBlockSize));
  RETURN_IF_ERROR(CheckRange("steps_in_flight", o.steps_in_flight, 0,
                             std::max(kMaxStepsInFlight, o.pipeline_parallel + 1)));
  RETURN_IF_ERROR(CheckRange("num_blocks", o.num_blocks, 0, INT32_MAX));
  RETURN_IF_ERROR(CheckRange("kv_cache_bytes", o.kv_cache_bytes, int64_t{0}, INT64_MAX));
  RETURN_IF_ERROR(CheckRange("host_cache_bytes", o.host_cache_bytes, int64_t{0}, INT64_MAX));
  RETURN_IF_ERROR(CheckRange("step_timeout_seconds", o.step_timeout_seconds, 0.0, 1e6));
  SamplingParams by_default;
  o.sampling.ApplyTo(by_default);
  RETURN_IF_ERROR(Validate(by_default, INT32_MAX));  // no default names a token
  RETURN_IF_ERROR(CheckRange("target_itl_ms", o.target_itl_ms, 0.0, 1e6));
  return Status();
}

std::string NameOf(const Checkpoint& checkpoint) {
  const std::string& path = checkpoint.directory.empty() ? checkpoint.source : checkpoint.directory;
  std::string name = path.substr(path.find_last_of('/') + 1);
  for (const std::string_view end : {".gguf", ".json"}) {
    if (name.ends_with(end)) name.resize(name.size() - end.size());
  }
  return name;
}

namespace {

// Null: use the CPU.
Result<std::unique_ptr<Ops>> MakeGpu(const EngineOptions& options, int threads,
                                     const std::shared_ptr<Communicator>& communicator) {
  ASSIGN_OR_RETURN(const DeviceChoice choice, ParseDevice(options.device));
  // With an ISA, several ranks, replicas or workers, "auto" means the CPU.
  if (!choice.gpu || (choice.cpu && (options.isa != "auto" || NumRanks(options) > 1 ||
                                     options.workers == WorkerKind::kProcesses))) {
    return std::unique_ptr<Ops>();
  }
  if (options.workers == WorkerKind::kProcesses) return MakeCountedRank(options, 0);
  Result<std::unique_ptr<Ops>> cuda =
      MakeGpuOps(options, choice.index, NumRanks(options), threads, communicator);
  // "auto" never chooses the emulated GPU.
  if (cuda.ok() && (!choice.cpu || !(*cuda)->name().starts_with(kCudaEmulated))) return cuda;
  if (cuda.ok()) return std::unique_ptr<Ops>();
  if (!choice.cpu) return cuda.status().WithContext("device=" + options.device);
  // An option that this build of the library lacks is a mistake on any device.
  if (cuda.status().code() == StatusCode::kInvalidArgument) return cuda;
  // No log line if the program was built without the backend.
  if (cuda.status().code() != StatusCode::kNotFound) {
    LogInfo("running on the CPU: {}", cuda.status().message());
  }
  return std::unique_ptr<Ops>();
}

// Makes the backend of the device that the options request, or one that stands for the workers'.
// Sets `options.device` to it, and other options left open to the best values for it.
Result<std::unique_ptr<Ops>> MakeOps(EngineOptions& options, ThreadPool& pool,
                                     std::function<Profile()>* take_profile,
                                     const std::shared_ptr<Communicator>& communicator) {
  ASSIGN_OR_RETURN(std::unique_ptr<Ops> ops, MakeGpu(options, pool.num_threads(), communicator));
  const bool gpu = ops != nullptr;
  if (gpu) {
    options.device = fmt::format("cuda:{}", ParseDevice(options.device)->index);
    // Without tensor cores, decompressing latents is slower there for any number of tokens.
    if (options.mla == MlaForm::kAuto && !ops->capabilities().Has(Capability::kLatentScratch)) {
      options.mla = MlaForm::kAbsorbed;
    }
  } else {
    if (options.attention != AttentionKernels::kOwn) {
      return InvalidArgument("attention={}: needs an NVIDIA GPU that this build can use",
                             Name(options.attention));
    }
    options.device = "cpu";
    ASSIGN_OR_RETURN(ops, MakeRankOps(options, 0, communicator, &pool));
  }
  if (options.profile) {
    std::unique_ptr<ProfiledOps> profiled = MakeProfiledOps(std::move(ops), options.profile_events);
    *take_profile = [raw = profiled.get()] { return raw->Take(); };
    ops = std::move(profiled);
  }
  if (options.kv_cache_dtype == KvCacheDtype::kAuto) {
    // If activations are rounded anyway, a cache of half the size costs no visible accuracy.
    const bool rounds = ops->name() != "reference" && !ops->name().ends_with("/precise");
    options.kv_cache_dtype = !rounds ? KvCacheDtype::kF32
                             : gpu   ? KvCacheDtype::kBF16
                                     : KvCacheDtype::kF16;
  }
  ChooseForDevice(options, gpu);
  return ops;
}

// The tokenizer, and its tokens as constraints need them; null if the checkpoint has no vocabulary.
struct LoadedTokens {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ConstraintTokens> constraints;
};

Result<LoadedTokens> LoadTokens(const Checkpoint& checkpoint) {
  LoadedTokens tokens;
  ASSIGN_OR_RETURN(tokens.tokenizer, MakeTokenizer(checkpoint));
  if (tokens.tokenizer) tokens.constraints = MakeConstraintTokens(tokens.tokenizer);
  return tokens;
}

// Checks the memory before anything is read.
Status CheckFits(const Checkpoint& checkpoint, const EngineOptions& options, Task task, Ops& ops) {
  std::optional<int64_t> free_bytes = ops.FreeDeviceMemory();
  const bool has_workers = options.workers == WorkerKind::kProcesses;
  if (has_workers && options.device != "cpu") free_bytes = INT64_MAX / 2;  // they check their own
  if (free_bytes) {
    RETURN_IF_ERROR(CheckFitsInMemory("host_cache_bytes: the KV blocks",
                                      static_cast<uint64_t>(options.host_cache_bytes)));
    CountedBackend gpu = CountedGpu(ops, options.precise);
    for (gpu.rank.stage = 0; gpu.rank.stage < gpu.rank.stages; ++gpu.rank.stage) {
      RETURN_IF_ERROR(CheckFitsOnDevice(checkpoint, options, task, *free_bytes, gpu));
    }
    return Status();
  }
  ASSIGN_OR_RETURN(const int64_t bytes, LoadedBytes(checkpoint, options, task));
  return CheckFitsInMemory(checkpoint.source + ": weights and RoPE table",
                           static_cast<uint64_t>(bytes));
}

// Returns why the GPU cannot run the model; if the CPU can, says so.
Status GpuRefusal(const Checkpoint& checkpoint, const EngineOptions& options, Task task,
                  const Status& fits) {
  if (options.attention != AttentionKernels::kOwn && fits.code() == StatusCode::kUnimplemented) {
    return Unimplemented("{}; attention={} supports {}", fits.message(), Name(options.attention),
                         kFlashInferSupports);
  }
  return SuggestCpu(checkpoint, options, task, fits);
}

}  // namespace

std::unique_ptr<ThreadPool> MakePool(const EngineOptions& options) {
  return std::make_unique<ThreadPool>(ThreadsPerRank(options), options.pin_threads);
}

Result<std::unique_ptr<Ops>> MakeOpsFor(const Checkpoint& checkpoint, EngineOptions& options,
                                        Task task, ThreadPool& pool,
                                        std::function<Profile()>* take_profile,
                                        const std::shared_ptr<Communicator>& communicator) {
  const EngineOptions given = options;
  ASSIGN_OR_RETURN(std::unique_ptr<Ops> ops, MakeOps(options, pool, take_profile, communicator));
  Status fits = CheckFits(checkpoint, options, task, *ops);
  if (fits.code() == StatusCode::kResourceExhausted && options.device != "cpu" &&
      given.max_batch_tokens == 0) {
    options.max_batch_tokens = kCpuBatchTokens;  // shorter steps, rather than none on the GPU
    fits = CheckFits(checkpoint, options, task, *ops);
  }
  if (fits.ok()) return ops;
  if (options.device == "cpu") return fits;
  if (given.device != "auto" || given.attention != AttentionKernels::kOwn) {
    return GpuRefusal(checkpoint, given, task, fits);
  }
  options = given;
  options.device = "cpu";
  ASSIGN_OR_RETURN(ops, MakeOps(options, pool, take_profile, communicator));
  RETURN_IF_ERROR(CheckFits(checkpoint, options, task, *ops));
  LogWarning("running on the CPU, because the GPU cannot run this model: {}", fits.message());
  return ops;
}

Result<std::unique_ptr<Model>> LoadWeights(const Checkpoint& checkpoint, Ops& ops,
                                           const EngineOptions& options, Task task) {
  LoadOptions load = MakeLoadOptions(options);
  load.task = task;
  // A model without its weights is loaded at once.
  const bool counted = options.workers == WorkerKind::kProcesses;
  if (options.on_load_progress && !counted) {
    load.progress = [&](int64_t bytes) {
      const auto all = static_cast<double>(checkpoint.weight_bytes);  // 0: not known
      options.on_load_progress(all > 0 ? std::min(static_cast<double>(bytes) / all, 1.0) : 0);
    };
  }
  return LoadModel(checkpoint, ops, load);
}

ModelInfo Describe(const Checkpoint& checkpoint, const Model& model, const Ops& ops) {
  const ModelSpec& spec = model.spec();
  ModelInfo info;
  info.name = NameOf(checkpoint);
  info.architecture = spec.architecture;
  info.num_parameters = spec.num_parameters;
  info.vocab_size = spec.vocab_size;
  info.max_context = spec.max_context;
  info.backend = ops.name();
  info.weight_bytes = spec.weight_bytes;
  info.expert_bytes = spec.expert_bytes;
  info.expert_share = spec.expert_share;
  info.image_weight_bytes = spec.image_weight_bytes;
  info.sampling = checkpoint.generation.sampling;
  return info;
}

namespace {

Status DescribeChat(const Checkpoint& checkpoint, const Tokenizer& tokenizer, ModelInfo& info) {
  ASSIGN_OR_RETURN(ChatSource chat, MakeChatSource(checkpoint, tokenizer));
  info.chat_template = std::move(chat.chat_template);
  info.tool_template = std::move(chat.tool_template);
  info.bos_token = std::move(chat.bos_token);
  info.eos_token = std::move(chat.eos_token);
  return Status();
}

EngineCoreOptions CoreOptions(const EngineOptions& options) {
  EngineCoreOptions core;
  core.max_seqs = options.max_seqs;
  core.max_step_tokens = options.max_batch_tokens;
  // LocalEngine admits at most this many requests, running and waiting together. The core limits
  // only the waiting ones, so with the same number it never refuses a request.
  core.max_queue = static_cast<int32_t>(
      std::min<int64_t>(int64_t{options.max_queue} + options.max_seqs, INT32_MAX));
  core.target_itl_ms = options.target_itl_ms;
  core.prefix_cache = options.prefix_cache;
  core.drafts.most = options.speculate != Speculation::kOff ? options.draft_tokens : 0;
  core.drafts.least = options.draft_tokens_min;
  core.drafts.min_probability = options.draft_min_probability;
  core.drafts.min_match = options.prompt_lookup_min;
  core.drafts.max_match = options.prompt_lookup_max;
  core.drafts.always = options.synthetic_acceptance.has_value();
  core.drafts.from_model = options.speculate == Speculation::kDraft;
  return core;
}

// The measurement uses half a gigabyte and must not exhaust memory.
constexpr uint64_t kSpareBytes = uint64_t{2} << 30;

std::optional<double> MeasureReadGbS(const ModelInfo& model) {
  const Result<MemoryBudget> budget = AvailableMemory();
  if (!budget.ok() || budget.value().available_bytes < kSpareBytes) return std::nullopt;
  const double gb_s =
      MeasureCpuRoofline(model.threads, model.backend, model.weight_bytes).weights_gb_s;
  return gb_s > 0 ? std::optional(gb_s) : std::nullopt;
}

Result<Checkpoint> Open(const EngineOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  RETURN_IF_ERROR(CheckWorkers(options));
  ASSIGN_OR_RETURN(const DType dummy_dtype, ParseDummyType(options.dummy_dtype));
  return OpenCheckpoint(options.model, {.dummy_dtype = dummy_dtype, .mmproj = options.mmproj});
}

// The threads of one replica, and its part of the memory and the model.
struct LoadedReplica {
  std::unique_ptr<ThreadPool> pool;
  std::vector<LoadedRank> ranks;
};

// Loads one more replica. On GPUs, it has those behind the earlier ones.
Result<LoadedReplica> LoadOtherReplica(const Checkpoint& checkpoint,
                                       const std::optional<Checkpoint>& draft,
                                       EngineOptions options, int32_t number) {
  ASSIGN_OR_RETURN(const DeviceChoice device, ParseDevice(options.device));
  if (!device.cpu) {
    options.device = fmt::format("cuda:{}", device.index + number * RanksPerReplica(options));
  }
  LoadedReplica replica;
  replica.pool = MakePool(options);
  ASSIGN_OR_RETURN(const auto communicators, MakeCommunicators(options));
  RETURN_IF_ERROR(LoadOtherRanks(checkpoint, options, communicators, *replica.pool, replica.ranks));
  if (draft) {
    LoadedRank& first = replica.ranks.front();
    ASSIGN_OR_RETURN(first.draft,
                     LoadDraftModel(*draft, *first.ops, options, first.model->spec().max_context));
  }
  return replica;
}

// Makes the executors of all replicas. Their caches take what memory is left by all weights.
Status AddReplicas(const Checkpoint& checkpoint, std::vector<LoadedReplica> replicas,
                   EngineParts& parts) {
  for (LoadedReplica& replica : replicas) {
    ModelInfo of_other = parts.model;
    ModelInfo& info = parts.replicas.empty() ? parts.model : of_other;
    const auto number = static_cast<int32_t>(parts.replicas.size());
    ReplicaParts& made = parts.replicas.emplace_back();
    made.pool = std::move(replica.pool);
    ASSIGN_OR_RETURN(made.executor, MakeExecutor(checkpoint, std::move(replica.ranks),
                                                 parts.options, number, info));
  }
  return Status();
}

Status AddTokens(const Checkpoint& checkpoint, LoadedTokens tokens, EngineParts& parts) {
  parts.tokenizer = std::move(tokens.tokenizer);
  parts.constraint_tokens = std::move(tokens.constraints);
  if (parts.tokenizer == nullptr) return Status();
  parts.model.mask_table_seconds = parts.constraint_tokens->seconds;
  parts.model.mask_table_bytes = parts.constraint_tokens->memory;
  if (parts.tokenizer->vocab_size() > parts.model.vocab_size) {
    return DataLoss("{}: vocab_size: the tokenizer has {} tokens, but the model only {}",
                    checkpoint.source, parts.tokenizer->vocab_size(), parts.model.vocab_size);
  }
  return DescribeChat(checkpoint, *parts.tokenizer, parts.model);
}

}  // namespace

Result<EngineParts> LoadParts(const EngineOptions& options) {
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Open(options));
  return LoadParts(options, checkpoint);
}

Result<EngineParts> LoadParts(const EngineOptions& given, const Checkpoint& checkpoint) {
  const auto start = std::chrono::steady_clock::now();
  EngineParts parts;
  EngineOptions& options = parts.options;
  options = given;
  std::vector<LoadedReplica> replicas(1);
  ThreadPool& pool = *(replicas[0].pool = MakePool(options));
  ASSIGN_OR_RETURN(const auto communicators, MakeCommunicators(options));
  ASSIGN_OR_RETURN(std::unique_ptr<Ops> ops,
                   MakeOpsFor(checkpoint, options, Task::kGenerate, pool, &parts.take_profile,
                              communicators.front()));
  Ops& device = *ops;  // the executor will own it
  std::optional<Checkpoint> draft_checkpoint;
  if (options.speculate == Speculation::kDraft) {
    ASSIGN_OR_RETURN(draft_checkpoint, OpenDraftModel(checkpoint, options));
    RETURN_IF_ERROR(CheckBothFit(checkpoint, *draft_checkpoint, options, *ops));
  }
  const std::optional<int64_t> free_before = device.FreeDeviceMemory();
  // Reading the weights takes longer.
  std::future<Result<LoadedTokens>> loading_tokens =
      std::async(std::launch::async, [&checkpoint] { return LoadTokens(checkpoint); });
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model,
                   LoadWeights(checkpoint, *ops, OptionsOfRank(options, 0), Task::kGenerate));
  const Model& main_model = *model;  // the executor will own it
  RETURN_IF_ERROR(ChooseForModel(options, given, main_model));
  ASSIGN_OR_RETURN(auto image_processor, OpenImageProcessor(checkpoint, *model, options));
  if (!image_processor) options.max_images = 0;
  std::unique_ptr<Model> draft;
  if (draft_checkpoint) {
    ASSIGN_OR_RETURN(draft,
                     LoadDraftModel(*draft_checkpoint, *ops, options, model->spec().max_context));
  }

  parts.model = Describe(checkpoint, *model, *ops);
  parts.model.sampling.Override(options.sampling);
  if (draft) {
    parts.model.draft_model = Describe(*draft_checkpoint, *draft, *ops).name;
    parts.model.draft_weight_bytes = draft->spec().weight_bytes;
  }
  parts.model.device = options.device;
  parts.model.threads = options.isa == "reference" ? 1 : pool.num_threads();
  parts.model.threads *= NumRanks(options);
  parts.model.max_seqs = options.max_seqs;
  const bool any_logprobs = options.max_logprobs == -1;
  parts.model.max_logprobs = any_logprobs ? parts.model.vocab_size : options.max_logprobs;
  replicas[0].ranks.push_back(
      {std::move(ops), std::move(model), std::move(draft), communicators.front()});
  RETURN_IF_ERROR(LoadOtherRanks(checkpoint, options, communicators, pool, replicas[0].ranks));
  for (int32_t i = 1; i < options.data_parallel; ++i) {
    ASSIGN_OR_RETURN(LoadedReplica replica,
                     LoadOtherReplica(checkpoint, draft_checkpoint, options, i));
    replicas.push_back(std::move(replica));
  }
  RETURN_IF_ERROR(AddReplicas(checkpoint, std::move(replicas), parts));
  // Only now is the backend of workers on GPUs known.
  ASSIGN_OR_RETURN(parts.system_fingerprint, SystemFingerprint(checkpoint, options, parts.model));
  if (free_before) {
    parts.model.device_bytes = *free_before - device.FreeDeviceMemory().value_or(*free_before);
  }
  const CacheSpec& cache = parts.replicas[0].executor->limits().cache;
  parts.model.kv_token_bytes =
      cache.block_bytes * static_cast<int64_t>(cache.groups.size()) / options.block_size;
  ASSIGN_OR_RETURN(LoadedTokens tokens, loading_tokens.get());
  RETURN_IF_ERROR(AddTokens(checkpoint, std::move(tokens), parts));
  if (image_processor) {
    ASSIGN_OR_RETURN(parts.images, MakeImageInput(std::move(image_processor), main_model,
                                                  parts.tokenizer.get(), options));
    parts.model.images = parts.images->info();
  }
  if (parts.model.device == "cpu") {
    parts.measure_read_gb_s = [model = parts.model] { return MeasureReadGbS(model); };
  }
  parts.core = CoreOptions(options);
  parts.model.load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return parts;
}

Result<Task> FindTask(const EngineOptions& options) {
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Open(options));
  return IsForEmbedding(options, checkpoint) ? Task::kEmbed : Task::kGenerate;
}

Result<std::unique_ptr<Engine>> Engine::Load(const EngineOptions& options) {
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Open(options));
  if (IsForEmbedding(options, checkpoint)) {
    return Unimplemented(
        "{}: this model makes embeddings and cannot generate text: use Embedder, /v1/embeddings or "
        "`tokamak embed`",
        checkpoint.source);
  }
  ASSIGN_OR_RETURN(EngineParts parts, LoadParts(options, checkpoint));
  if (!options.record_path.empty()) {
    const std::string& backend = parts.model.backend;  // "cpu/avx512" or "reference"
    for (size_t i = 0; i < parts.replicas.size(); ++i) {
      ReplicaParts& replica = parts.replicas[i];
      const RecordHeader header =
          MakeRecordHeader(parts.options, backend.substr(backend.find('/') + 1),
                           parts.system_fingerprint, parts.core, replica.executor->limits());
      // Each replica has a record, because it schedules by itself.
      std::string path = options.record_path;
      if (parts.replicas.size() > 1) path += fmt::format(".{}", i);
      ASSIGN_OR_RETURN(replica.record, RecordWriter::Create(path, header));
    }
  }
  return LocalEngine::Create(std::move(parts));
}

Result<std::unique_ptr<Embedder>> Embedder::Load(const EngineOptions& options) {
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Open(options));
  if (!IsForEmbedding(options, checkpoint)) {
    return Unimplemented(
        "{}: this model generates text and cannot make embeddings, unless pooling=mean, cls or "
        "last says how",
        checkpoint.source);
  }
  ASSIGN_OR_RETURN(EmbeddingParts parts, LoadEmbeddingParts(options, checkpoint));
  return std::unique_ptr<Embedder>(std::make_unique<EmbeddingEngine>(std::move(parts)));
}

}  // namespace tokamak
