// Memory, streams and copies for all backends in main memory.
#pragma once

#include <memory>

#include "ops/ops.h"

namespace tokamak {

// Returns uninitialized memory, aligned to 256 bytes, or kResourceExhausted with the size. Large
// pieces are aligned to huge pages, and the kernel is asked to use those.
Result<Buffer> AllocateHostMemory(size_t bytes);

// Work happens when submitted: streams hold nothing, copies are plain.
class HostOps : public Ops {
 public:
  Result<Buffer> Allocate(size_t bytes, MemoryKind kind) override;
  std::unique_ptr<Stream> MakeStream() override;
  Status Synchronize(Stream& stream) override;
  void CopyToDevice(void* device, const void* host, size_t bytes, Stream& stream) override;
  void CopyToHost(void* host, const void* device, size_t bytes, Stream& stream) override;
  void Run(const ScatterElements& op, Stream& stream) override;
  void Run(const CopyRows& op, Stream& stream) override;
};

// Checks that there is a part, that parts are matrices of equal width in types that hold weights,
// and that rows are whole blocks. Errors name the part.
Status CheckWeightSpec(const WeightSpec& spec);
int64_t TotalRows(const WeightSpec& spec);

}  // namespace tokamak
