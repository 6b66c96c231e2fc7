// The worker processes of a replica: those that this process starts, or that join it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/child_process.h"
#include "base/mutex.h"
#include "executor/remote.h"
#include "local/load_ranks.h"
#include "local/worker_folder.h"
#include "rpc/message_stream.h"
#include "rpc/worker_messages.h"
#include "runner/runner.h"
#include "tokamak/engine_options.h"
#include "weights/checkpoint.h"

namespace tokamak {

// Owned by one thread at a time.
class WorkerProcesses final : public WorkerGroup {
 public:
  // Starts a worker for each rank and waits until all have loaded the model. The error of one is
  // that of all. With worker_address, waits until a worker for each rank has joined, and refuses
  // those that do not fit. `options` are those of the engine, with nothing left open. Workers that
  // this process starts have NUMA nodes of their own, as far as there are enough. On GPUs, the
  // ranks have those from options.device on, behind those of earlier replicas.
  static Result<std::unique_ptr<WorkerProcesses>> Start(const Checkpoint& checkpoint,
                                                        const EngineOptions& options,
                                                        int32_t replica);
  ~WorkerProcesses() override;

  // By rank.
  const std::vector<Loaded>& loaded() const { return loaded_; }
  // The free memory of each rank's GPU once all had loaded; empty for ranks on the CPU.
  std::vector<int64_t> FreeDeviceMemory() const;
  // Keeps what must live as long as the group.
  void Keep(std::shared_ptr<const void> kept) { kept_ = std::move(kept); }
  // Gives the ranks their memory. Returns the limits of all together.
  Result<ExecutorLimits> Begin(const std::vector<RunnerMemory>& memory);

  int32_t size() const override { return RanksPerReplica(options_); }
  void Send(int32_t rank, std::string message) override;
  Result<std::optional<Message>> Receive(std::chrono::steady_clock::time_point deadline) override;
  // An error of CUDA or NCCL is for ever.
  bool CanReset() const override { return options_.device == "cpu"; }
  Status Restart() override;
  void OnLost(const std::function<void()>& wake) override;

 private:
  // Calls a function that may change, from any thread.
  class Alarm {
   public:
    void Set(std::function<void()> wake) EXCLUDES(mutex_) {
      const MutexLock lock(mutex_);
      wake_ = std::move(wake);
    }
    void Ring() EXCLUDES(mutex_) {
      const MutexLock lock(mutex_);
      if (wake_) wake_();
    }

   private:
    Mutex mutex_;
    std::function<void()> wake_ GUARDED_BY(mutex_);
  };

  WorkerProcesses(const EngineOptions& options, int32_t replica, Hello expected);

  Status Launch();
  Status StartProcesses(const std::string& address);
  // Takes a worker's greeting and says which rank it is.
  Status Welcome(const Incoming& incoming);
  Status CheckHello(const Hello& hello) const;
  Status AwaitHellos();
  LoadRank LoadOf(int32_t rank) const;
  // Whether workers that others start join this process.
  bool joined() const { return !options_.worker_address.empty(); }
  Status AwaitJoins();
  // Waits until each rank has answered and returns the answers, by rank. A rank that makes no
  // progress for options_.worker_load_timeout_seconds is an error.
  template <typename Answer>
  Result<std::vector<Answer>> AwaitAll();
  void EndProcesses();
  // Why a rank's worker is lost.
  Status Lost(int32_t rank);

  std::shared_ptr<const void> kept_;
  EngineOptions options_;
  const int32_t replica_;
  const Hello expected_;  // but for the rank
  std::vector<Loaded> loaded_;
  std::vector<Connected> connected_;  // the first, or those that started again
  std::vector<RunnerMemory> memory_;
  ExecutorLimits limits_;
  // The present workers. Destroyed in reverse order.
  std::unique_ptr<WorkerFolder> folder_;
  std::atomic<bool> ending_{false};  // the engine
  Alarm alarm_;
  std::vector<ChildProcess> processes_;
  std::unique_ptr<Inbox> inbox_;
  std::unique_ptr<MessageServer> server_;
  std::vector<int32_t> streams_;  // by rank; -1: not connected
};

}  // namespace tokamak
