// CudaOps: operations that copy rows, elements and ranges, and that exchange values with other
// ranks.
#include <algorithm>

#include "ops/cuda/backend.h"
#include "ops/cuda/kernels.h"

namespace tokamak::cuda {
namespace {

GatherArgs Gather(const Tensor& source, const Tensor& rows, const Tensor& out) {
  return {.source = Data<const std::byte>(source),
          .rows = Data<const int32_t>(rows),
          .out = Data<std::byte>(out),
          .num_rows = rows.cols(),
          .row_bytes = static_cast<int64_t>(RowBytes(source.dtype, source.cols())),
          .source_stride = source.row_stride,
          .out_stride = out.row_stride};
}

}  // namespace

void CudaOps::Run(const GatherRows& op, Stream& stream) {
  CUDA_RUN(guard_, LaunchGather(Gather(op.source, op.rows, op.out), Handle(stream)));
}

void CudaOps::Run(const CopyRows& op, Stream& stream) {
  GatherArgs args = Gather(op.source, op.from, op.out);
  args.to = Data<const int32_t>(op.to);
  CUDA_RUN(guard_, LaunchGather(args, Handle(stream)));
}

void CudaOps::Run(const ScatterElements& op, Stream& stream) {
  const ScatterArgs args = {.indices = Data<const int32_t>(op.indices),
                            .values = Data<const int32_t>(op.values),
                            .out = Data<int32_t>(op.out),
                            .count = op.indices.cols()};
  CUDA_RUN(guard_, LaunchScatter(args, Handle(stream)));
}

void CudaOps::Run(const CopyRanges& op, Stream& stream) {
  for (size_t begin = 0; begin < op.ranges.size(); begin += CopyArgs::kMaxRanges) {
    CopyArgs args;
    args.bytes = static_cast<int64_t>(op.bytes);
    args.num_ranges =
        static_cast<int32_t>(std::min<size_t>(CopyArgs::kMaxRanges, op.ranges.size() - begin));
    for (int32_t i = 0; i < args.num_ranges; ++i) {
      args.source[i] = op.ranges[begin + static_cast<size_t>(i)].source;
      args.destination[i] = op.ranges[begin + static_cast<size_t>(i)].destination;
    }
    CUDA_RUN(guard_, LaunchCopyRanges(args, Handle(stream)));
  }
}

template <typename Exchange>
void CudaOps::RunOnRanks(const Exchange& op, Stream& stream) {
  CHECK(ranks_ != nullptr);
  ranks_->Run(op, Handle(stream));
}

void CudaOps::Run(const AllReduce& op, Stream& stream) { RunOnRanks(op, stream); }
void CudaOps::Run(const AllGather& op, Stream& stream) { RunOnRanks(op, stream); }
void CudaOps::Run(const Send& op, Stream& stream) { RunOnRanks(op, stream); }
void CudaOps::Run(const Receive& op, Stream& stream) { RunOnRanks(op, stream); }

}  // namespace tokamak::cuda
