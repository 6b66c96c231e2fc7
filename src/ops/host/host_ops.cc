#include "ops/host/host_ops.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "base/error.h"

namespace tokamak {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kHugePage = 2u << 20;

}  // namespace

Result<Buffer> AllocateHostMemory(size_t bytes) {
  const size_t alignment = bytes >= 2 * kHugePage ? kHugePage : kAlignment;
  void* memory = nullptr;
  // At least one byte, so that an empty buffer has an address too.
  if (::posix_memalign(&memory, alignment, bytes == 0 ? 1 : bytes) != 0) {
    return ResourceExhausted("{} bytes of memory could not be allocated", bytes);
  }
  if (alignment == kHugePage) ::madvise(memory, bytes, MADV_HUGEPAGE);  // may be refused
  return Buffer(std::shared_ptr<void>(memory, &std::free), bytes);
}

Result<Buffer> HostOps::Allocate(size_t bytes, MemoryKind) { return AllocateHostMemory(bytes); }

std::unique_ptr<Stream> HostOps::MakeStream() { return std::make_unique<Stream>(); }

Status HostOps::Synchronize(Stream&) { return communicator_ ? communicator_->status() : Status(); }

Status HostOps::Await(Event&) { return communicator_ ? communicator_->status() : Status(); }

void HostOps::CopyToDevice(void* device, const void* host, size_t bytes, Stream&) {
  if (bytes > 0) std::memcpy(device, host, bytes);
}

void HostOps::CopyToHost(void* host, const void* device, size_t bytes, Stream&) {
  if (bytes > 0) std::memcpy(host, device, bytes);
}

void HostOps::Run(const ScatterElements& op, Stream&) {
  const auto* indices = static_cast<const int32_t*>(op.indices.data);
  const auto* values = static_cast<const int32_t*>(op.values.data);
  auto* out = static_cast<int32_t*>(op.out.data);
  for (int64_t i = 0; i < op.indices.cols(); ++i) out[indices[i]] = values[i];
}

void HostOps::Run(const CopyRows& op, Stream&) {
  const auto* from = static_cast<const int32_t*>(op.from.data);
  const auto* to = static_cast<const int32_t*>(op.to.data);
  const size_t bytes = RowBytes(op.source.dtype, op.source.cols());
  for (int64_t i = 0; i < op.from.cols(); ++i) {
    if (from[i] < 0) continue;
    CHECK(from[i] < op.source.rows() && 0 <= to[i] && to[i] < op.out.rows());
    std::memcpy(op.out.RowData(to[i]), op.source.RowData(from[i]), bytes);
  }
}

template <typename Exchange>
void HostOps::RunOnRanks(const Exchange& op) {
  CHECK(communicator_ != nullptr);
  (void)communicator_->Run(op);
}

void HostOps::Run(const AllReduce& op, Stream&) { RunOnRanks(op); }
void HostOps::Run(const AllGather& op, Stream&) { RunOnRanks(op); }
void HostOps::Run(const Send& op, Stream&) { RunOnRanks(op); }
void HostOps::Run(const Receive& op, Stream&) { RunOnRanks(op); }

Status CheckWeightSpec(const WeightSpec& spec) {
  if (spec.parts.empty()) return InvalidArgument("a weight needs at least one part");
  const int64_t cols = spec.parts.front()->shape().cols();
  for (const auto& part : spec.parts) {
    if (!HoldsWeights(part->dtype())) {
      return InvalidArgument("{}: type {} cannot hold a weight", part->name(), Name(part->dtype()));
    }
    if (part->shape().cols() != cols) {
      return InvalidArgument("{}: shape {} cannot be stacked with {} of shape {}", part->name(),
                             part->shape().ToString(), spec.parts.front()->name(),
                             spec.parts.front()->shape().ToString());
    }
    const int block = Info(part->dtype()).block_elements;
    if (cols % block != 0) {
      return InvalidArgument("{}: rows of {} elements are not whole blocks of {} ({})",
                             part->name(), cols, block, Name(part->dtype()));
    }
  }
  return Status();
}

int64_t TotalRows(const WeightSpec& spec) {
  int64_t rows = 0;
  for (const auto& part : spec.parts) rows += part->shape().rows();
  return rows;
}

}  // namespace tokamak
