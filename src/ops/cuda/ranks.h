// The ranks of a group, each with a GPU of its own, exchange values through NCCL.
//
// Sums are ours: NCCL gathers the parts, and a kernel adds them in the order of the ranks for every
// element. NCCL's own sums depend on the algorithm that it chooses by the size of the message.
//
// Stages send in the stream that computes, in which NCCL's send ends when the next stage's stream
// has come to its receive. So a stage is one step ahead of the next at most. They cannot wait for
// each other in a circle: values go forward only, and streams come to the steps in order.
//
// The host's communicator stays the group's: it says how many ranks there are, hands over NCCL's
// id, and keeps the error that ended the group. A rank that waits for its GPU looks whether the
// group has ended (HasEnded), because its GPU may wait for a rank that will not come. After that
// the backend is of no use, as after any error of CUDA (calls.h).
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "ops/cuda/calls.h"
#include "ops/cuda/nccl.h"
#include "ops/host/communicator.h"
#include "ops/ops.h"

namespace tokamak::cuda {

// Owned by the backend's thread. All exchanges of a rank are in one stream at a time.
class GpuRanks {
 public:
  // Opens NCCL.
  static Result<std::unique_ptr<GpuRanks>> Make(CallGuard& guard,
                                                std::shared_ptr<Communicator> communicator);
  // No graph with exchanges may be left. Waits until NCCL has ended.
  ~GpuRanks();

  RankInfo info() const { return communicator_->info(); }
  // The first exchange connects the ranks: all of them must run it at the same time, each on a
  // thread of its own. Must not be captured. Later ones only enqueue.
  void Run(const AllReduce& op, cudaStream_t stream);
  void Run(const AllGather& op, cudaStream_t stream);
  void Run(const Send& op, cudaStream_t stream);
  void Run(const Receive& op, cudaStream_t stream);
  // Whether the group has ended with an error. If so, lets the GPU end its exchanges and has the
  // guard keep the group's error.
  bool HasEnded();
  // Ends the group with an error.
  void End(const Status& reason);

 private:
  GpuRanks(CallGuard& guard, std::shared_ptr<Communicator> communicator, const Nccl& nccl)
      : guard_(guard), communicator_(std::move(communicator)), nccl_(nccl) {}
  // Whether an exchange can run. Connects the ranks if they are not.
  bool IsReady();
  Status Connect();
  // Returns when all ranks of the group have come.
  Status AwaitAll();
  // Hands NCCL's id from the first rank of this stage to the others, or from the first stage to
  // this rank's namesakes in the others.
  Status ShareInStage(NcclId& id);
  Status ShareAlongStages(NcclId& id);
  // Hands values of the host to another stage, or takes them from it, through the communicator.
  template <typename Exchange>
  void RunOnHost(const Exchange& op);
  // Every rank's [begin, begin + bytes) into parts_, one after another.
  bool Gather(const void* part, size_t bytes, cudaStream_t stream);

  CallGuard& guard_;
  const std::shared_ptr<Communicator> communicator_;
  const Nccl nccl_;
  bool is_connected_ = false;
  NcclComm stage_ = nullptr;         // the ranks of this stage; null if there is one
  NcclComm column_ = nullptr;        // the ranks of this number in all stages; null if there is one
  std::vector<std::thread> ending_;  // communicators of a group that has ended
  Buffer parts_;                     // of all ranks of the stage, a piece of each
  Buffer own_;                       // this rank's piece, if it is not contiguous where it is
};

}  // namespace tokamak::cuda
