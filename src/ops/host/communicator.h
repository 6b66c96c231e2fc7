// Exchanges values with the other ranks of a group. MPI and NCCL call such a handle a communicator.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "ops/collectives.h"
#include "tensor/device.h"
#include "tokamak/status.h"

namespace tokamak {

// The costs of a rank's exchanges so far.
struct ExchangeCosts {
  std::chrono::nanoseconds waited{0};  // for other ranks
  int64_t received_bytes = 0;          // from other ranks
};

// Owned by its rank's thread; Abort and status may be called from any. An error of a collective is
// the error of the group: every call on every rank returns it from then on.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual RankInfo info() const = 0;
  virtual Status Run(const AllReduce& op) = 0;
  virtual Status Run(const AllGather& op) = 0;
  virtual Status Run(const Send& op) = 0;
  virtual Status Run(const Receive& op) = 0;
  virtual ExchangeCosts costs() const = 0;
  // Ends the group with an error, which the other ranks get with this rank's number. Does nothing
  // if it has ended.
  virtual void Abort(const Status& reason) = 0;
  // The error that ended the group.
  virtual Status status() const = 0;
  // Makes the group usable again. Must be called for every rank, while none runs a collective and
  // before any does.
  virtual void Restart() = 0;
};

struct SharedMemoryOptions {
  int32_t size = 1;  // ranks of a stage
  int32_t stages = 1;
  size_t slot_bytes = 256 << 10;  // what a rank hands over at once; a multiple of 4
  // Room for what a rank has sent to the next stage that has not received it.
  size_t channel_bytes = 8 << 20;
  // The same for what comes back from the last stage: enough for the draws of all steps in flight,
  // or the stages could wait for each other.
  size_t draws_bytes = 1 << 16;
  // How long a rank waits for the others to take part in an exchange, and for another stage, which
  // computes a whole step meanwhile. The group ends after that.
  std::chrono::milliseconds timeout{60'000};
  std::chrono::milliseconds stage_timeout{600'000};
};
inline constexpr int32_t kMaxHostRanks = 64;  // of all stages

// Bytes of the memory through which ranks exchange values.
size_t SharedMemoryBytes(const SharedMemoryOptions& options);
// One rank's communicator over `memory`, which is aligned to 64 bytes and was zero before the first
// rank used it. It holds no addresses, so every rank may see it at another one. The options must be
// the same on all ranks. `rank` counts those of all stages, one stage after another.
std::unique_ptr<Communicator> MakeSharedMemoryCommunicator(const SharedMemoryOptions& options,
                                                           int32_t rank, Buffer memory);
// The communicators of a group whose ranks are threads of this process, one stage after another.
// kInvalidArgument for bad options.
Result<std::vector<std::unique_ptr<Communicator>>> MakeThreadGroup(
    const SharedMemoryOptions& options);

}  // namespace tokamak
