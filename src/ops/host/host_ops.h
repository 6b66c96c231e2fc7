// HostOps: what every backend in main memory does alike: memory, streams, copies.
#pragma once

#include <memory>

#include "ops/ops.h"

namespace tokamak {

// Uninitialized memory aligned to 256 bytes; large pieces to huge pages, which the kernel is asked
// to use. kResourceExhausted with the size when there is none.
Result<Buffer> AllocateHostMemory(size_t bytes);

// Work happens when it is given: streams hold nothing and copies are plain.
class HostOps : public Ops {
 public:
  Result<Buffer> Allocate(size_t bytes, MemoryKind kind) override;
  std::unique_ptr<Stream> MakeStream() override;
  Status Synchronize(Stream& stream) override;
  void CopyToDevice(void* device, const void* host, size_t bytes, Stream& stream) override;
  void CopyToHost(void* host, const void* device, size_t bytes, Stream& stream) override;
  void Run(const ScatterElements& op, Stream& stream) override;
};

// Checks what any backend needs of a weight's parts: at least one, matrices of equal width, types
// that hold weights, rows of whole blocks. Errors name the part.
Status CheckWeightSpec(const WeightSpec& spec);
// Sum of the parts' rows.
int64_t TotalRows(const WeightSpec& spec);

}  // namespace tokamak
