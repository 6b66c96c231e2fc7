#include "local/model_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/ceil_div.h"
#include "base/error.h"
#include "base/option_names.h"
#include "local/draft_model.h"
#include "local/load_embedding.h"
#include "local/load_ranks.h"
#include "local/memory_estimate.h"
#include "models/registry.h"
#include "ops/count/count_ops.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"
#include "runner/counting_pass.h"
#include "runner/joined_cache.h"
#include "runner/kv_pool.h"

namespace tokamak {
namespace {

constexpr int32_t kDefaultContext = 2048;

// A backend with all features that rounds activations like the one in `options`.
Result<CountedBackend> PlannedBackend(const EngineOptions& options, bool gpu, int32_t stage) {
  CountedBackend backend;
  if (gpu) {
    backend = CountedCuda(options.precise);
    backend.capabilities = Capabilities::All();
  } else {
    ASSIGN_OR_RETURN(backend, CountedCpu(options, 0));
  }
  backend.rank = {options.tensor_parallel, 0, options.pipeline_parallel, stage};
  return backend;
}

// Records the type of every tensor that a model requests.
class TypedTensors final : public TensorSource {
 public:
  explicit TypedTensors(std::shared_ptr<TensorSource> inner) : inner_(std::move(inner)) {}

  bool Has(std::string_view name) const override { return inner_->Has(name); }
  Result<std::shared_ptr<const WeightSource>> Find(std::string_view name, const Shape& expected,
                                                   std::string_view meaning) override {
    auto found = inner_->Find(name, expected, meaning);
    // Ranks that share a weight look it up more than once.
    if (found.ok() && counted_.emplace(name).second) {
      const Shape& shape = (*found)->shape();
      bytes_[(*found)->dtype()] +=
          static_cast<int64_t>(RowBytes((*found)->dtype(), shape.cols())) * shape.rows();
    }
    return found;
  }
  void Skip(std::string_view prefix) override { inner_->Skip(prefix); }
  Status CheckAllUsed() const override { return inner_->CheckAllUsed(); }

  const std::map<DType, int64_t>& bytes() const { return bytes_; }

 private:
  const std::shared_ptr<TensorSource> inner_;
  std::set<std::string, std::less<>> counted_;
  std::map<DType, int64_t> bytes_;
};

// The roofline of a pass over `batch` sequences. Each has `length` positions, the last `queries` of
// them new. Generation needs the logits of one position, embedding all hidden states.
Result<Roofline> CountRoofline(const Model& model, CountOps& count, const RunnerShape& shape,
                               const ModelPlan& plan, int32_t batch, int32_t queries,
                               int32_t length) {
  const int64_t tokens = int64_t{batch} * queries;
  const bool embeds = plan.task == Task::kEmbed;
  ASSIGN_OR_RETURN(
      const std::unique_ptr<CountingPass> counting,
      CountingPass::Make(model.spec().cache, count, shape, tokens, embeds ? tokens : batch));
  std::vector<int32_t> query_start_loc, seq_lens(static_cast<size_t>(batch), length);
  for (int32_t i = 0; i <= batch; ++i) query_start_loc.push_back(i * queries);
  counting->Fill(query_start_loc, seq_lens);
  counting->AddHidden(model.spec());
  count.Reset();
  const Tensor hidden = model.Forward(counting->pass());
  if (!embeds && model.spec().stage.last()) (void)model.Logits(counting->pass(), hidden);
  const OpCount total = count.counts().Total();
  count.Reset();
  return Roofline{
      .memory_seconds = static_cast<double>(total.weight_bytes + total.cache_bytes) /
                        (plan.hardware.memory_gb_s * 1e9),
      .compute_seconds = static_cast<double>(total.flops) / 2 / (plan.hardware.gmac_s * 1e9)};
}

void DescribeCache(const nn::CacheLayout& cache, const RunnerShape& shape, ModelPlan& plan) {
  for (const nn::CacheLayout::Group& group : cache.groups) {
    plan.cache_groups.push_back({.kind = group.kind == CacheGroupKind::kWindow ? "window" : "full",
                                 .window = group.window});
  }
  for (const nn::KvLayerSpec& layer : cache.layers) {
    ModelPlan::CacheGroup& group = plan.cache_groups[static_cast<size_t>(layer.group)];
    ++group.layers;
    if (layer.values_in_keys) group.kind = "latent";
    group.token_bytes += layer.TokenBytes(shape.kv_dtype);
  }
  for (const ModelPlan::CacheGroup& group : plan.cache_groups) {
    int64_t blocks = CeilDiv(plan.context, shape.block_size);
    // The window's first key may be anywhere in its block.
    if (group.window > 0) {
      blocks = std::min<int64_t>(blocks, CeilDiv(group.window - 1, shape.block_size) + 1);
    }
    plan.sequence_blocks += blocks;
  }
}

Result<std::unique_ptr<Model>> PlanDraftModel(const Checkpoint& checkpoint,
                                              const EngineOptions& options, CountOps& count,
                                              int32_t context, ModelPlan& plan) {
  ASSIGN_OR_RETURN(const Checkpoint draft, OpenDraftModel(checkpoint, options));
  const auto counted = [&count] {
    return count.packed_bytes() + count.allocated_bytes(MemoryKind::kDevice);
  };
  const int64_t before = counted();
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model, LoadDraftModel(draft, count, options, context));
  plan.draft_model = options.draft_model;
  plan.draft_bytes = counted() - before;
  return model;
}

// The batch sizes to report: powers of two, and `concurrency`.
std::vector<int32_t> Batches(int32_t concurrency) {
  std::vector<int32_t> batches;
  for (int32_t batch = 1; batch < concurrency; batch *= 2) batches.push_back(batch);
  batches.push_back(concurrency);
  return batches;
}

// Plans cache, activations and speed for generation. `draft`: the draft model, or null.
Status PlanGeneration(EngineOptions options, const Model& model, const Model* draft,
                      CountOps& count, int32_t concurrency, ModelPlan& plan) {
  const bool gpu = plan.hardware.gpu;
  if (options.kv_cache_dtype == KvCacheDtype::kAuto) {
    options.kv_cache_dtype = options.precise ? KvCacheDtype::kF32
                             : gpu           ? KvCacheDtype::kBF16
                                             : KvCacheDtype::kF16;
  }
  options.num_blocks = static_cast<int32_t>(model.spec().cache.groups.size());  // the minimum
  const RunnerShape shape = MakeRunnerShape(options, model);
  ASSIGN_OR_RETURN(
      const MemoryProfile memory,
      EstimateRunnerMemory(model, options, shape, INT64_MAX / 2, /*on_device=*/true, draft));
  plan.kv_dtype = Name(options.kv_cache_dtype);
  plan.block_size = shape.block_size;
  plan.block_bytes = memory.block_bytes;
  plan.activation_bytes = memory.arena_bytes;
  plan.staging_bytes = memory.staging_bytes;
  plan.encoder_bytes = memory.encoder_bytes;
  plan.state_bytes = memory.state_bytes;
  plan.sequence_state_bytes = model.spec().cache.StateBytes();
  plan.cache_blocks =
      std::max<int64_t>(0, plan.hardware.memory_bytes - plan.needed_bytes()) / plan.block_bytes;
  const nn::CacheLayout* const draft_cache = draft ? &draft->spec().cache : nullptr;
  DescribeCache(JoinCaches(model.spec().cache, draft_cache).cache, shape, plan);
  if (draft_cache) plan.draft_token_bytes = draft_cache->TokenBytes(shape.kv_dtype);
  plan.sequences = plan.cache_blocks / plan.sequence_blocks;
  if (plan.state_bytes > 0) plan.sequences = std::min<int64_t>(plan.sequences, shape.max_seqs);

  plan.prefill_tokens = std::min(plan.context, shape.max_step_tokens);
  ASSIGN_OR_RETURN(plan.prefill, CountRoofline(model, count, shape, plan, 1, plan.prefill_tokens,
                                               plan.prefill_tokens));
  for (const int32_t batch : Batches(concurrency)) {
    const int32_t stages = model.spec().stage.count;
    ASSIGN_OR_RETURN(Roofline step, CountRoofline(model, count, shape, plan, CeilDiv(batch, stages),
                                                  1, plan.context));
    step.memory_seconds *= stages;
    step.compute_seconds *= stages;
    plan.decode.push_back({batch, batch <= plan.sequences, step});
  }
  return Status();
}

// The same for embedding: a step of texts of plan.context tokens each.
Status PlanTexts(EngineOptions options, const EmbeddingSpec& spec, const Model& model,
                 CountOps& count, int32_t context, ModelPlan& plan) {
  if (options.kv_cache_dtype == KvCacheDtype::kAuto) {
    options.kv_cache_dtype = EmbeddingCacheType(options, plan.hardware.gpu);
  }
  ASSIGN_OR_RETURN(const EmbeddingShape texts,
                   ChooseEmbeddingShape(options, spec, model, options.model,
                                        plan.hardware.memory_bytes - plan.needed_bytes()));
  ASSIGN_OR_RETURN(const EmbeddingMemory memory, ProfileEmbedding(model, texts));
  plan.max_context = texts.max_length;
  if (context == 0) plan.context = std::min(plan.context, plan.max_context);
  if (plan.context > plan.max_context) {
    return InvalidArgument(
        "context: must be at most {}, the tokens of the longest text that the model takes; got "
        "{}",
        plan.max_context, plan.context);
  }
  plan.kv_dtype = Name(options.kv_cache_dtype);
  plan.block_size = texts.block_size;
  plan.block_bytes = memory.cache_bytes / memory.num_blocks;
  plan.activation_bytes = memory.arena_bytes;
  plan.staging_bytes = 2 * memory.staging_bytes;  // on the device and in staging memory
  plan.batch_cache_bytes = memory.cache_bytes;
  plan.cache_blocks = memory.num_blocks;
  const RunnerShape shape = ToRunnerShape(texts);
  DescribeCache(model.spec().cache, shape, plan);
  plan.sequences = std::clamp(texts.max_tokens / plan.context, 1, texts.max_texts);
  const int32_t tokens = std::min(plan.context, texts.max_tokens);  // per text, in one step
  plan.prefill_tokens = static_cast<int32_t>(plan.sequences) * tokens;
  ASSIGN_OR_RETURN(plan.prefill,
                   CountRoofline(model, count, shape, plan, static_cast<int32_t>(plan.sequences),
                                 tokens, tokens));
  return Status();
}

Result<Hardware> HardwareOfRank(const EngineOptions& options, bool quantized,
                                int64_t weight_bytes) {
  ASSIGN_OR_RETURN(Hardware hardware, FindHardware(options, quantized, weight_bytes));
  if (!hardware.gpu) {  // the ranks of all replicas share this machine
    hardware.memory_bytes /= NumRanks(options);
    hardware.memory_gb_s /= NumRanks(options);
    hardware.gmac_s /= NumRanks(options);
  }
  return hardware;
}

ModelPlan::Stage DescribeStage(const StageSpec& stage, const ModelPlan& plan) {
  ModelPlan::Stage described = {.first_layer = stage.first_layer,
                                .end_layer = stage.end_layer,
                                .weight_bytes = plan.weight_bytes,
                                .token_bytes = 0,
                                .needed_bytes = plan.needed_bytes(),
                                .cache_blocks = plan.cache_blocks};
  for (const ModelPlan::CacheGroup& group : plan.cache_groups) {
    described.token_bytes += group.token_bytes;
  }
  return described;
}

// Plans the first rank of a stage. `hardware`: of the stage before, if there is one.
Result<ModelPlan> PlanStage(EngineOptions options, int32_t stage, int32_t context,
                            int32_t concurrency, const Hardware* hardware) {
  ASSIGN_OR_RETURN(const DType dummy_dtype, ParseDummyType(options.dummy_dtype));
  ASSIGN_OR_RETURN(
      Checkpoint checkpoint,
      OpenCheckpoint(options.model, {.dummy_dtype = dummy_dtype, .mmproj = options.mmproj}));
  const auto tensors = std::make_shared<TypedTensors>(checkpoint.tensors);
  checkpoint.tensors = tensors;
  ModelPlan plan;
  LoadOptions load = MakeLoadOptions(options);
  EmbeddingSpec embedding;
  if (IsForEmbedding(options, checkpoint)) {
    plan.task = Task::kEmbed;
    load.task = Task::kEmbed;
    ASSIGN_OR_RETURN(embedding, ChooseEmbeddingSpec(options, checkpoint));
  }
  const bool gpu = options.device != "auto" && options.device != "cpu";
  const EngineOptions given = options;
  ChooseForDevice(options, gpu);
  options.max_seqs = std::max(options.max_seqs, concurrency);
  ASSIGN_OR_RETURN(const CountedBackend backend, PlannedBackend(options, gpu, stage));
  const WeightSizer gpu_bytes = CudaSizer(options.precise);
  const std::unique_ptr<CountOps> count = MakeCountOps(gpu ? gpu_bytes : &CpuWeightBytes, backend);
  ASSIGN_OR_RETURN(const std::unique_ptr<Model> model, LoadModel(checkpoint, *count, load));
  const ModelSpec& spec = model->spec();

  plan.model = options.model;
  plan.ranks = RanksPerReplica(options);
  plan.replicas = options.data_parallel;
  plan.architecture = spec.architecture;
  plan.num_parameters = spec.num_parameters;
  plan.active_parameters =
      spec.num_parameters -
      static_cast<int64_t>(static_cast<double>(spec.expert_parameters) * (1 - spec.expert_share));
  plan.max_context = spec.max_context;
  plan.weight_bytes = spec.weight_bytes;
  plan.table_bytes =
      count->packed_bytes() + count->allocated_bytes(MemoryKind::kDevice) - spec.weight_bytes;
  int64_t quantized = 0, stored = 0;
  for (const auto& [dtype, bytes] : tensors->bytes()) {
    plan.stored_bytes.emplace_back(Name(dtype), bytes);
    stored += bytes;
    if (IsBlockType(dtype)) quantized += bytes;
  }
  if (gpu) {
    CountedBackend real = CountedCuda(options.precise);
    real.rank = backend.rank;
    Status loaded = LoadModel(checkpoint, *MakeCountOps(gpu_bytes, real), load).status();
    if (loaded.ok()) loaded = CheckCudaCache(options);
    if (loaded.ok()) loaded = CheckCudaSizes(spec);
    plan.refusal = loaded.message();
  }
  plan.context = context > 0 ? context : std::min(kDefaultContext, spec.max_context);
  if (plan.context > spec.max_context) {
    return InvalidArgument("context: must be at most the model's {} positions, got {}",
                           spec.max_context, plan.context);
  }
  if (hardware != nullptr) {
    plan.hardware = *hardware;
  } else {
    ASSIGN_OR_RETURN(plan.hardware,
                     HardwareOfRank(options, 2 * quantized > stored, spec.weight_bytes));
  }
  RETURN_IF_ERROR(ChooseForModel(options, given, *model));
  if (plan.task == Task::kEmbed) {
    RETURN_IF_ERROR(PlanTexts(options, embedding, *model, *count, context, plan));
  } else {
    std::unique_ptr<Model> draft;
    if (options.speculate == Speculation::kDraft) {
      ASSIGN_OR_RETURN(draft, PlanDraftModel(checkpoint, options, *count, spec.max_context, plan));
      if (gpu && plan.refusal.empty()) {
        plan.refusal = CheckCudaSizes(draft->spec()).WithContext("draft_model").message();
      }
    }
    RETURN_IF_ERROR(PlanGeneration(options, *model, draft.get(), *count, concurrency, plan));
  }
  plan.stages = {DescribeStage(spec.stage, plan)};
  return plan;
}

Roofline Slower(const Roofline& a, const Roofline& b) { return a.seconds() < b.seconds() ? b : a; }

// The plan of a pipeline: the fullest stage's, as slow as the slowest one.
ModelPlan Join(std::vector<ModelPlan> plans) {
  const auto fullest = std::min_element(
      plans.begin(), plans.end(),
      [](const ModelPlan& a, const ModelPlan& b) { return a.cache_blocks < b.cache_blocks; });
  ModelPlan joined = *fullest;
  joined.fullest_stage = static_cast<size_t>(fullest - plans.begin());
  joined.stages.clear();
  for (const ModelPlan& plan : plans) {
    joined.stages.push_back(plan.stages[0]);
    joined.prefill = Slower(joined.prefill, plan.prefill);
    for (size_t i = 0; i < joined.decode.size(); ++i) {
      joined.decode[i].step = Slower(joined.decode[i].step, plan.decode[i].step);
    }
  }
  return joined;
}

Result<ModelPlan> PlanLayout(const EngineOptions& options, int32_t context, int32_t concurrency) {
  std::vector<ModelPlan> plans;
  for (int32_t stage = 0; stage < options.pipeline_parallel; ++stage) {
    const Hardware* const hardware = plans.empty() ? nullptr : &plans.front().hardware;
    ASSIGN_OR_RETURN(ModelPlan plan, PlanStage(options, stage, context, concurrency, hardware));
    plans.push_back(std::move(plan));
  }
  if (plans.size() > 1) return Join(std::move(plans));
  plans[0].stages.clear();
  return std::move(plans[0]);
}

// Larger layouts give each GPU less. Ranks on CPUs share one memory, where only fewer replicas
// help.
std::string FindLayoutThatFits(EngineOptions options, const ModelPlan& plan, int32_t concurrency) {
  struct Layout {
    int32_t tp, pp, dp;
  };
  const int32_t dp = options.data_parallel;
  std::vector<Layout> layouts;
  if (plan.hardware.gpu) {
    for (const int32_t tp : {2, 4, 8}) layouts.push_back({tp, 1, dp});
    for (const int32_t pp : {2, 4}) layouts.push_back({8, pp, dp});  // 8 GPUs in a host
  } else {
    for (int32_t fewer = dp - 1; fewer > 0; --fewer) {
      layouts.push_back({options.tensor_parallel, options.pipeline_parallel, fewer});
    }
  }
  for (const auto& [tp, pp, replicas] : layouts) {
    options.tensor_parallel = tp;
    options.pipeline_parallel = pp;
    options.data_parallel = replicas;
    const Result<ModelPlan> other = PlanLayout(options, plan.context, concurrency);
    if (!other.ok() || !other->fits()) continue;
    std::string found;
    if (tp > 1) found += fmt::format(" --tp {}", tp);
    if (pp > 1) found += fmt::format(" --pp {}", pp);
    if (replicas > 1 || found.empty()) found += fmt::format(" --dp {}", replicas);
    return found.substr(1);
  }
  return "";
}

}  // namespace

Result<ModelPlan> PlanModel(const EngineOptions& options, int32_t context, int32_t concurrency) {
  RETURN_IF_ERROR(CheckNumRanks(options));
  ASSIGN_OR_RETURN(ModelPlan plan, PlanLayout(options, context, concurrency));
  if (!plan.fits()) plan.layout_that_fits = FindLayoutThatFits(options, plan, concurrency);
  return plan;
}

}  // namespace tokamak
