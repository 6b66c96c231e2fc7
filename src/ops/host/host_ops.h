// Memory, streams and copies for all backends in main memory.
#pragma once

#include <memory>
#include <utility>

#include "ops/host/communicator.h"
#include "ops/ops.h"

namespace tokamak {

// Returns uninitialized memory, aligned to 256 bytes, or kResourceExhausted with the size. Large
// pieces are aligned to huge pages, and the kernel is asked to use those.
Result<Buffer> AllocateHostMemory(size_t bytes);

// Work happens when submitted: streams hold nothing, copies are plain.
class HostOps : public Ops {
 public:
  // `communicator`: for a backend that is one of several ranks; null for a single one.
  explicit HostOps(std::shared_ptr<Communicator> communicator = nullptr)
      : communicator_(std::move(communicator)) {}

  RankInfo rank() const override { return communicator_ ? communicator_->info() : RankInfo(); }
  Result<Buffer> Allocate(size_t bytes, MemoryKind kind) override;
  std::unique_ptr<Stream> MakeStream() override;
  Status Synchronize(Stream& stream) override;
  Status Await(Event& event) override;
  void CopyToDevice(void* device, const void* host, size_t bytes, Stream& stream) override;
  void CopyToHost(void* host, const void* device, size_t bytes, Stream& stream) override;
  void Run(const ScatterElements& op, Stream& stream) override;
  void Run(const CopyRows& op, Stream& stream) override;
  void Run(const AllReduce& op, Stream& stream) override;
  void Run(const AllGather& op, Stream& stream) override;
  void Run(const Send& op, Stream& stream) override;
  void Run(const Receive& op, Stream& stream) override;

 private:
  // Synchronize and Await return its errors.
  template <typename Exchange>
  void RunOnRanks(const Exchange& op);

  const std::shared_ptr<Communicator> communicator_;
};

// Checks that there is a part, that parts are matrices of equal width in types that hold weights,
// and that rows are whole blocks. Errors name the part.
Status CheckWeightSpec(const WeightSpec& spec);
int64_t TotalRows(const WeightSpec& spec);

}  // namespace tokamak
