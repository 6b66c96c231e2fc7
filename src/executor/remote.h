// An executor whose ranks are worker processes.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "executor/executor.h"

namespace tokamak {

// The worker processes of a group, by rank.
class WorkerGroup {
 public:
  virtual ~WorkerGroup() = default;  // ends them

  virtual int32_t size() const = 0;
  // Does not wait.
  virtual void Send(int32_t rank, std::string message) = 0;

  struct Message {
    int32_t rank = 0;
    std::string bytes;
  };
  // Returns the next message of any rank, and waits for it until the deadline. An error says which
  // worker is lost, and why.
  virtual Result<std::optional<Message>> Receive(
      std::chrono::steady_clock::time_point deadline) = 0;
  // Whether the workers can go on after an error of a step.
  virtual bool CanReset() const { return true; }
  // Ends all workers and starts new ones, which are ready for steps with the same limits.
  virtual Status Restart() = 0;
  // From now on `wake` is called, on any thread, when a worker may be lost. An empty one means that
  // the engine ends: Restart, which may run on another thread, waits for no worker any more.
  virtual void OnLost(const std::function<void()>& wake) = 0;
};

// Sends each step to all ranks. Those of a pipeline's last stage draw the same tokens; the output
// is that of the first of them, and an error if another's differs. If one worker is lost, so is the
// group, and Reset starts it again. A worker counts as lost if it takes ten times as long for a
// step as Expect said, and longer than `patience`; if that is not known, ten minutes. After an
// error of a step alone the workers go on, if they can.
std::unique_ptr<Executor> MakeRemoteExecutor(std::unique_ptr<WorkerGroup> group,
                                             const ExecutorLimits& limits,
                                             std::chrono::milliseconds patience);

}  // namespace tokamak
