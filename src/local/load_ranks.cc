#include "local/load_ranks.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/ceil_div.h"
#include "base/error.h"
#include "base/option_names.h"
#include "base/thread_pool.h"
#include "executor/driver.h"
#include "executor/in_process.h"
#include "executor/measured.h"
#include "local/load_steps.h"
#include "local/load_workers.h"
#include "local/memory_estimate.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/reference/reference_ops.h"
#include "runner/joined_cache.h"
#include "runner/kv_pool.h"
#include "weights/memory.h"

namespace tokamak {
namespace {

int64_t BlockBytes(const LoadedRank& rank, const RunnerShape& shape) {
  const nn::CacheLayout* const draft = rank.draft ? &rank.draft->spec().cache : nullptr;
  return KvBlockLayout::Make(JoinCaches(rank.model->spec().cache, draft).cache, shape.block_size,
                             shape.kv_dtype)
      .block_bytes;
}

// Bytes that a rank's runner needs besides its caches.
Result<int64_t> FixedBytes(const LoadedRank& rank, EngineOptions options, const RunnerShape& shape,
                           bool on_device) {
  options.num_blocks = static_cast<int32_t>(rank.model->spec().cache.groups.size());  // the minimum
  options.host_cache_bytes = 0;
  ASSIGN_OR_RETURN(const MemoryProfile profile,
                   EstimateRunnerMemory(*rank.model, options, shape, INT64_MAX / 2, on_device,
                                        rank.draft.get()));
  return profile.arena_bytes + profile.staging_bytes + profile.encoder_bytes + profile.state_bytes;
}

// "tensor_parallel=2 and data_parallel=2": those that are not 1.
std::string Layout(const EngineOptions& options) {
  std::string layout;
  for (const auto& [field, value] : ParallelOptions(options)) {
    if (value > 1) layout += fmt::format("{}{}={}", layout.empty() ? "" : " and ", field, value);
  }
  return layout;
}

// Calls run(i) for each rank, at the same time, because ranks on GPUs wait for each other. Returns
// the first error.
template <typename Run>
Status OnEachRank(const std::vector<LoadedRank>& ranks, const Run& run) {
  std::vector<Status> statuses(ranks.size());
  const auto run_one = [&](size_t i) {
    statuses[i] = run(i);
    if (!statuses[i].ok() && ranks[i].communicator) ranks[i].communicator->Abort(statuses[i]);
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < ranks.size(); ++i) threads.emplace_back(run_one, i);
  run_one(0);
  for (std::thread& thread : threads) thread.join();
  for (Status& status : statuses) RETURN_IF_ERROR(std::move(status));
  return Status();
}

// Tries what the ranks' devices exchange, with a row and with as much as they exchange at once.
class Trial {
 public:
  static Status Run(Ops& ops, int64_t rows, int64_t cols) {
    constexpr int64_t kAtOnce = (8 << 20) / sizeof(float);  // elements
    const int64_t most = std::min(rows, CeilDiv(kAtOnce, cols)) * cols;
    ASSIGN_OR_RETURN(const Buffer host, ops.Allocate(Bytes(most), MemoryKind::kHostPinned));
    ASSIGN_OR_RETURN(const Buffer device, ops.Allocate(Bytes(most), MemoryKind::kDevice));
    Trial trial(ops, host, device);
    for (const int64_t count : {cols, most}) {
      RETURN_IF_ERROR(trial.Add(count));
      RETURN_IF_ERROR(trial.HandOn(count));
    }
    return Status();
  }

 private:
  Trial(Ops& ops, const Buffer& host, const Buffer& device)
      : ops_(ops), stream_(ops.MakeStream()), host_(host), device_(device) {}

  // All ranks of a stage.
  Status Add(int64_t count) {
    const RankInfo place = ops_.rank();
    Fill(place.rank + 1, count);
    ops_.Run(AllReduce{.x = Values(count)}, *stream_);
    return Expect(place.size * (place.size + 1) / 2, count);
  }
  // From stage to stage.
  Status HandOn(int64_t count) {
    const RankInfo place = ops_.rank();
    if (place.stage > 0) {
      ops_.Run(Receive{.out = Values(count), .stage = place.stage - 1}, *stream_);
      RETURN_IF_ERROR(Expect(place.stage, count));
    }
    if (place.stage + 1 == place.stages) return Status();
    Fill(place.stage + 1, count);
    ops_.Run(Send{.x = Values(count), .stage = place.stage + 1}, *stream_);
    return ops_.Synchronize(*stream_);
  }

  static size_t Bytes(int64_t count) { return static_cast<size_t>(count) * sizeof(float); }
  Tensor Values(int64_t count) const { return Tensor(device_.data(), DType::kF32, {1, count}); }
  void Fill(int32_t value, int64_t count) {
    std::fill_n(reinterpret_cast<float*>(host_.data()), count, static_cast<float>(value));
    ops_.CopyToDevice(device_.data(), host_.data(), Bytes(count), *stream_);
  }
  Status Expect(int32_t value, int64_t count) {
    ops_.CopyToHost(host_.data(), device_.data(), Bytes(count), *stream_);
    RETURN_IF_ERROR(ops_.Synchronize(*stream_));
    const auto* const values = reinterpret_cast<const float*>(host_.data());
    if (std::count(values, values + count, static_cast<float>(value)) == count) return Status();
    return Internal("{}: the ranks' devices exchange wrong values", ops_.name());
  }

  Ops& ops_;
  const std::unique_ptr<Stream> stream_;
  const Buffer& host_;
  const Buffer& device_;
};

// The free memory of each rank's device; empty on the CPU.
std::vector<int64_t> FreeDeviceMemory(const std::vector<LoadedRank>& ranks) {
  std::vector<int64_t> free_bytes;
  for (const LoadedRank& rank : ranks) {
    if (const auto bytes = rank.ops->FreeDeviceMemory()) free_bytes.push_back(*bytes);
  }
  return free_bytes;
}

}  // namespace

Status TryExchanges(const LoadedRank& rank, const RunnerShape& shape) {
  const RankInfo place = rank.ops->rank();
  if (place.size * place.stages == 1 || !rank.ops->FreeDeviceMemory()) return Status();
  return Trial::Run(*rank.ops, shape.max_step_tokens, rank.model->spec().hidden_size);
}

Result<RanksMemory> SizeCaches(const std::vector<LoadedRank>& ranks, const EngineOptions& options,
                               const RunnerShape& shape, const std::vector<int64_t>& free_bytes) {
  const bool on_device = !free_bytes.empty();
  int64_t available = 0;  // to all ranks together, in main memory
  if (!on_device) {
    ASSIGN_OR_RETURN(const MemoryBudget budget, AvailableMemory());
    available = static_cast<int64_t>(budget.available_bytes) / options.data_parallel;
  }
  int64_t all = 0;        // bytes of a block on all ranks
  int64_t all_fixed = 0;  // of all ranks together
  std::vector<int64_t> fixed;
  for (const LoadedRank& rank : ranks) {
    all += BlockBytes(rank, shape);
    fixed.push_back(0);
    if (ranks.size() == 1) continue;
    ASSIGN_OR_RETURN(fixed.back(), FixedBytes(rank, options, shape, on_device));
    all_fixed += fixed.back();
  }
  RanksMemory memory;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const LoadedRank& rank = ranks[i];
    // A rank with fewer heads or layers needs less memory for the same number of blocks.
    const auto share = [&](int64_t bytes) {
      return ranks.size() == 1 ? bytes : bytes / all * BlockBytes(rank, shape);
    };
    EngineOptions of_rank = options;
    of_rank.kv_cache_bytes = share(options.kv_cache_bytes / options.data_parallel);
    of_rank.host_cache_bytes = share(options.host_cache_bytes / options.data_parallel);
    ASSIGN_OR_RETURN(
        const MemoryProfile profile,
        EstimateRunnerMemory(*rank.model, of_rank, shape,
                             on_device ? free_bytes[i] : fixed[i] + share(available - all_fixed),
                             on_device, rank.draft.get()));
    memory.ranks.push_back(profile.memory());
    memory.token_macs += profile.token_macs;
    memory.logits_macs += profile.logits_macs;
  }
  const RunnerMemory first = memory.ranks.front();
  int32_t device_blocks = first.num_device_blocks, host_blocks = first.num_host_blocks;
  for (const RunnerMemory& rank : memory.ranks) {
    device_blocks = std::min(device_blocks, rank.num_device_blocks);
    host_blocks = std::min(host_blocks, rank.num_host_blocks);
  }
  for (RunnerMemory& rank : memory.ranks) {
    rank.num_device_blocks = device_blocks;
    rank.num_host_blocks = host_blocks;
  }
  return memory;
}

std::array<std::pair<const char*, int32_t>, 3> ParallelOptions(const EngineOptions& options) {
  return {{{"tensor_parallel", options.tensor_parallel},
           {"pipeline_parallel", options.pipeline_parallel},
           {"data_parallel", options.data_parallel}}};
}

Status CheckNumRanks(const EngineOptions& options) {
  for (const auto& [field, value] : ParallelOptions(options)) {
    if (value < 1 || value > kMaxHostRanks) {
      return InvalidArgument("{}: must be in [1, {}], got {}", field, kMaxHostRanks, value);
    }
  }
  if (RanksPerReplica(options) <= kMaxHostRanks) return Status();
  return InvalidArgument(
      "pipeline_parallel: {} stages of {} ranks are {}; at most {} are supported",
      options.pipeline_parallel, options.tensor_parallel, RanksPerReplica(options), kMaxHostRanks);
}

Status CheckRanks(const EngineOptions& options) {
  RETURN_IF_ERROR(CheckNumRanks(options));
  const int32_t ranks = NumRanks(options);
  if (ranks == 1) return Status();
  const std::string layout = Layout(options);
  if (options.pipeline_parallel > 1 && options.cuda_graphs == CudaGraphs::kOn) {
    return Unimplemented("cuda_graphs=on: is not supported with {}; use auto", layout);
  }
  if (options.pin_threads) {
    return InvalidArgument(
        "pin_threads: with {} the ranks' threads would be pinned to the same cores", layout);
  }
  if (options.speculate == Speculation::kDraft && RanksPerReplica(options) > 1) {
    return Unimplemented("speculate=draft: is not supported with {}; use ngram", layout);
  }
  if (options.threads > 0 && options.threads < ranks) {
    return InvalidArgument("threads: {} are not enough for {}", options.threads, layout);
  }
  return Status();
}

SharedMemoryOptions GroupOptions(const EngineOptions& options) {
  SharedMemoryOptions group = {.size = options.tensor_parallel,
                               .stages = options.pipeline_parallel};
  // The draws of a step are at most as many as its tokens, and come with their size.
  EngineOptions chosen = options;
  const Result<DeviceChoice> device = ParseDevice(options.device);
  ChooseForDevice(chosen, /*gpu=*/device.ok() && !device->cpu);
  const int64_t draws = int64_t{chosen.steps_in_flight} *
                        ((int64_t{chosen.max_batch_tokens} + 2) * int64_t{sizeof(TokenId)});
  group.draws_bytes = std::max(group.draws_bytes, static_cast<size_t>(draws));
  return group;
}

Result<std::vector<std::shared_ptr<Communicator>>> MakeCommunicators(const EngineOptions& options) {
  std::vector<std::shared_ptr<Communicator>> communicators;
  const auto ranks = static_cast<size_t>(RanksPerReplica(options));
  if (ranks == 1 || options.workers == WorkerKind::kProcesses) {
    communicators.resize(ranks);
    return communicators;
  }
  ASSIGN_OR_RETURN(auto group, MakeThreadGroup(GroupOptions(options)));
  for (auto& communicator : group) communicators.push_back(std::move(communicator));
  return communicators;
}

int ThreadsPerRank(const EngineOptions& options) {
  const int all = options.threads > 0 ? options.threads : ThreadPool::PhysicalCores();
  return std::max(1, all / NumRanks(options));
}

EngineOptions OptionsOfRank(const EngineOptions& options, int32_t rank) {
  EngineOptions of_rank = options;
  if (options.on_load_progress) {
    of_rank.on_load_progress = [report = options.on_load_progress, rank,
                                size = RanksPerReplica(options)](double fraction) {
      report((rank + fraction) / size);
    };
  }
  return of_rank;
}

Result<std::unique_ptr<Ops>> MakeGpuOps(const EngineOptions& options, int gpu, int num_gpus,
                                        int threads, std::shared_ptr<Communicator> communicator) {
  return MakeCudaOps({.device = gpu,
                      .num_devices = num_gpus,
                      .threads = threads,
                      .precise = options.precise,
                      .kernels = options.kernels,
                      .flashinfer = options.attention == AttentionKernels::kFlashInfer,
                      .step_timeout_seconds = options.step_timeout_seconds,
                      .communicator = std::move(communicator)});
}

Result<std::unique_ptr<Ops>> MakeRankOps(const EngineOptions& options, int32_t rank,
                                         std::shared_ptr<Communicator> communicator,
                                         ThreadPool* pool) {
  if (options.workers == WorkerKind::kProcesses) return MakeCountedRank(options, rank);
  ASSIGN_OR_RETURN(const DeviceChoice device, ParseDevice(options.device));
  if (!device.cpu) {
    return MakeGpuOps(options, device.index + rank, /*num_gpus=*/1, ThreadsPerRank(options),
                      std::move(communicator));
  }
  if (options.isa == "reference") return MakeReferenceOps(std::move(communicator));
  return MakeCpuOps({.threads = ThreadsPerRank(options),
                     .isa = options.isa + (options.precise ? "/precise" : ""),
                     .pool = pool,
                     .communicator = std::move(communicator)});
}

Status LoadOtherRanks(const Checkpoint& checkpoint, const EngineOptions& options,
                      const std::vector<std::shared_ptr<Communicator>>& communicators,
                      ThreadPool& pool, std::vector<LoadedRank>& ranks) {
  while (ranks.size() < communicators.size()) {
    const auto index = static_cast<int32_t>(ranks.size());
    LoadedRank rank = {
        .ops = nullptr, .model = nullptr, .communicator = communicators[ranks.size()]};
    ASSIGN_OR_RETURN(rank.ops,
                     MakeRankOps(options, index, rank.communicator, index == 0 ? &pool : nullptr));
    ASSIGN_OR_RETURN(rank.model, LoadWeights(checkpoint, *rank.ops, OptionsOfRank(options, index),
                                             Task::kGenerate));
    ranks.push_back(std::move(rank));
  }
  return Status();
}

Result<std::unique_ptr<Executor>> MakeExecutor(const Checkpoint& checkpoint,
                                               std::vector<LoadedRank> ranks,
                                               const EngineOptions& options, int32_t replica,
                                               ModelInfo& info) {
  if (options.workers == WorkerKind::kProcesses) {
    return MakeWorkersExecutor(checkpoint, std::move(ranks), options, replica, info);
  }
  const RunnerShape shape = MakeRunnerShape(options, *ranks[0].model);
  // Before the caches take the rest of the memory.
  RETURN_IF_ERROR(OnEachRank(ranks, [&](size_t i) { return TryExchanges(ranks[i], shape); }));
  ASSIGN_OR_RETURN(const RanksMemory memory,
                   SizeCaches(ranks, options, shape, FreeDeviceMemory(ranks)));
  info.token_macs = memory.token_macs;
  info.logits_macs = memory.logits_macs;
  if (ranks[0].draft) {
    info.draft_kv_token_bytes = ranks[0].draft->spec().cache.TokenBytes(shape.kv_dtype);
  }
  for (size_t i = 1; i < ranks.size(); ++i) {
    const ModelSpec& spec = ranks[i].model->spec();
    info.weight_bytes += spec.weight_bytes;
    info.expert_bytes += spec.expert_bytes;
    info.image_weight_bytes += spec.image_weight_bytes;
  }
  std::vector<Rank> executors(ranks.size());
  RETURN_IF_ERROR(OnEachRank(ranks, [&](size_t i) {
    LoadedRank& rank = ranks[i];
    Result<std::unique_ptr<Executor>> executor = MakeInProcessExecutor(
        std::move(rank.ops), std::move(rank.model), shape, memory.ranks[i], std::move(rank.draft));
    // Only now are the backend's own needs known.
    if (executor.status().code() == StatusCode::kResourceExhausted) {
      return ResourceExhausted(
          "{}: lower kv_cache_bytes, max_batch_tokens, max_seqs or max_context",
          executor.status().message());
    }
    RETURN_IF_ERROR(executor.status());
    if (NumRanks(options) > 1) executor = MeasureRank(*std::move(executor), rank.communicator);
    executors[i] = {*std::move(executor), rank.communicator};
    return Status();
  }));
  if (executors.size() == 1) return std::move(executors.front().executor);
  return MakeDriverExecutor(std::move(executors));
}

}  // namespace tokamak
