#include "local/load_workers.h"

#include <chrono>
#include <utility>

#include "base/error.h"
#include "executor/remote.h"
#include "local/load_steps.h"
#include "local/memory_estimate.h"
#include "local/worker_processes.h"
#include "ops/count/count_ops.h"
#include "ops/cpu/cpu_ops.h"
#include "rpc/endpoint.h"

namespace tokamak {
namespace {

// Options of workers that join.
Status CheckJoining(const EngineOptions& o) {
  if (o.worker_address.empty()) {
    for (const auto& [name, value] : {std::pair("worker_cert_file", &o.worker_cert_file),
                                      {"worker_key_file", &o.worker_key_file},
                                      {"worker_ca_file", &o.worker_ca_file},
                                      {"worker_folder", &o.worker_folder}}) {
      if (!value->empty()) return InvalidArgument("{}: needs worker_address=HOST:PORT", name);
    }
    return Status();
  }
  if (o.workers == WorkerKind::kThreads) {
    return InvalidArgument("worker_address: needs workers=processes");
  }
  if (!(o.worker_join_seconds > 0 && o.worker_join_seconds <= 1e6)) {
    return InvalidArgument("worker_join_seconds: must be in (0, 1e6], got {}",
                           o.worker_join_seconds);
  }
  if (o.data_parallel > 1) {
    return Unimplemented("data_parallel: workers that join are those of one replica");
  }
  const bool socket = SocketFolder(o.worker_address).has_value();
  if (socket && !o.worker_folder.empty()) {
    return InvalidArgument("worker_folder: is for HOST:PORT; a Unix socket is in a folder already");
  }
  if (!socket && o.worker_folder.empty() && RanksPerReplica(o) > 1) {
    return InvalidArgument(
        "worker_folder: must name a folder, such as /dev/shm/NAME, because there are {} ranks, "
        "which exchange values through it",
        RanksPerReplica(o));
  }
  return Status();
}

}  // namespace

Status CheckWorkers(const EngineOptions& options) {
  RETURN_IF_ERROR(CheckJoining(options));
  if (options.workers == WorkerKind::kThreads) return Status();
  if (options.worker_program.empty() && options.worker_address.empty()) {
    return InvalidArgument("worker_program: must name the tokamak program with workers=processes");
  }
  for (const auto& [field, seconds] :
       {std::pair("worker_timeout_seconds", options.worker_timeout_seconds),
        std::pair("worker_load_timeout_seconds", options.worker_load_timeout_seconds)}) {
    if (seconds >= 0.1 && seconds <= 1e6) continue;
    return InvalidArgument("{}: must be in [0.1, 1e6], got {}", field, seconds);
  }
  ASSIGN_OR_RETURN(const DeviceChoice device, ParseDevice(options.device));
  if (!device.cpu && options.mla == MlaForm::kAuto) {
    return Unimplemented(
        "mla=auto: the driver does not know what suits its workers' GPUs; choose latent or "
        "absorbed");
  }
  if (options.pin_threads || options.profile) {
    return Unimplemented("{}: does not work with workers=processes",
                         options.profile ? "profile" : "pin_threads");
  }
  if (options.speculate == Speculation::kDraft || !options.draft_model.empty()) {
    return Unimplemented("speculate=draft: is not supported with workers=processes; use ngram");
  }
  return Status();
}

Result<std::unique_ptr<Ops>> MakeCountedRank(const EngineOptions& options, int32_t rank) {
  ASSIGN_OR_RETURN(const DeviceChoice device, ParseDevice(options.device));
  if (!device.cpu) {
    return std::unique_ptr<Ops>(
        MakeCountOps(CudaSizer(options.precise), CountedCuda(options, rank)));
  }
  ASSIGN_OR_RETURN(const CountedBackend backend, CountedCpu(options, rank));
  return std::unique_ptr<Ops>(MakeCountOps(&CpuWeightBytes, backend));
}

Result<std::unique_ptr<Executor>> MakeWorkersExecutor(const Checkpoint& checkpoint,
                                                      std::vector<LoadedRank> ranks,
                                                      const EngineOptions& options, int32_t replica,
                                                      ModelInfo& info) {
  EngineOptions of_workers = options;  // who know nothing of other replicas
  of_workers.threads = ThreadsPerRank(options) * RanksPerReplica(options);
  ASSIGN_OR_RETURN(std::unique_ptr<WorkerProcesses> workers,
                   WorkerProcesses::Start(checkpoint, of_workers, replica));
  info.weight_bytes = info.expert_bytes = info.image_weight_bytes = 0;
  // Only a worker has opened CUDA, and knows which kernels its GPU runs.
  if (options.device != "cpu" && replica == 0) info.backend = workers->loaded()[0].backend;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Loaded& loaded = workers->loaded()[rank];
    if (loaded.backend != info.backend) {
      return InvalidArgument("the worker of rank {} runs {}, but {} is expected", rank,
                             loaded.backend, info.backend);
    }
    info.weight_bytes += loaded.weight_bytes;
    info.expert_bytes += loaded.expert_bytes;
    info.image_weight_bytes += loaded.image_weight_bytes;
  }
  // The weights are in memory now, so what is free is for the caches.
  const RunnerShape shape = MakeRunnerShape(options, *ranks[0].model);
  ASSIGN_OR_RETURN(const RanksMemory memory,
                   SizeCaches(ranks, options, shape, workers->FreeDeviceMemory()));
  info.token_macs = memory.token_macs;
  info.logits_macs = memory.logits_macs;
  ASSIGN_OR_RETURN(const ExecutorLimits limits, workers->Begin(memory.ranks));
  const std::chrono::duration<double> timeout(options.worker_timeout_seconds);
  workers->Keep(std::make_shared<const std::vector<LoadedRank>>(std::move(ranks)));
  return MakeRemoteExecutor(std::move(workers), limits,
                            std::chrono::duration_cast<std::chrono::milliseconds>(timeout));
}

}  // namespace tokamak
