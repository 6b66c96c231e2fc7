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

// Owned by its rank's thread; Abort and status may be called from any. An error of a collective is
// the error of the group: every call on every rank returns it from then on.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual RankInfo info() const = 0;
  virtual Status Run(const AllReduce& op) = 0;
  virtual Status Run(const AllGather& op) = 0;
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
  int32_t size = 1;               // ranks
  size_t slot_bytes = 256 << 10;  // what a rank hands over at once; a multiple of 4
  // How long a rank waits for the others to take part in an exchange. The group ends after that.
  std::chrono::milliseconds timeout{60'000};
};
inline constexpr int32_t kMaxHostRanks = 64;

// Bytes of the memory through which ranks exchange values.
size_t SharedMemoryBytes(const SharedMemoryOptions& options);
// One rank's communicator over `memory`, which is aligned to 64 bytes and was zero before the first
// rank used it. It holds no addresses, so every rank may see it at another one. The options must be
// the same on all ranks.
std::unique_ptr<Communicator> MakeSharedMemoryCommunicator(const SharedMemoryOptions& options,
                                                           int32_t rank, Buffer memory);
// The communicators of a group whose ranks are threads of this process, by rank. kInvalidArgument
// for bad options.
Result<std::vector<std::unique_ptr<Communicator>>> MakeThreadGroup(
    const SharedMemoryOptions& options);

}  // namespace tokamak
