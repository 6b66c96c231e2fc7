#include "ops/cuda/weight.h"

#include <algorithm>
#include <vector>

#include "base/ceil_div.h"
#include "base/error.h"
#include "ops/cuda/kernels.h"
#include "ops/host/host_ops.h"
#include "quant/quantize.h"

namespace tokamak::cuda {
namespace {

constexpr int64_t kItemElements = 256 << 10;  // what a thread converts at once

// Rows [begin, end) of the source as `dtype`.
Status ReadAs(DType dtype, const WeightSource& source, int64_t begin, int64_t end, std::byte* to) {
  if (source.dtype() == dtype) return source.ReadRows(begin, end, to);
  const int64_t cols = source.shape().cols();
  const size_t row_bytes = RowBytes(source.dtype(), cols);
  std::vector<std::byte> stored(row_bytes * static_cast<size_t>(end - begin));
  RETURN_IF_ERROR(source.ReadRows(begin, end, stored.data()));
  std::vector<float> values(static_cast<size_t>(cols));
  for (int64_t row = begin; row < end; ++row) {
    DequantizeRow(source.dtype(), stored.data() + static_cast<size_t>(row - begin) * row_bytes,
                  cols, values.data());
    QuantizeRow(dtype, values.data(), cols, to);
    to += RowBytes(dtype, cols);
  }
  return Status();
}

int64_t Cols(const WeightSpec& spec) { return spec.parts.front()->shape().cols(); }

}  // namespace

WeightLoader::~WeightLoader() {
  for (const Half& half : halves_) {
    if (half.copied != nullptr) (void)cudaEventDestroy(half.copied);
  }
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
}

Status WeightLoader::Start() {
  if (stream_ != nullptr) return Status();
  for (Half& half : halves_) {
    ASSIGN_OR_RETURN(half.staging, AllocateMemory(guard_, kStagingBytes, MemoryKind::kHostPinned));
    if (half.copied == nullptr) {
      RETURN_IF_ERROR(
          CUDA_TRY(guard_, cudaEventCreateWithFlags(&half.copied, cudaEventDisableTiming)));
    }
  }
  return CUDA_TRY(guard_, cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}

Status WeightLoader::ConvertRows(const WeightSource& source, DType dtype, int64_t begin,
                                 int64_t end, std::byte* to) {
  const int64_t cols = source.shape().cols();
  const int64_t step = std::max<int64_t>(1, kItemElements / std::max<int64_t>(1, cols));
  std::vector<Status> statuses(static_cast<size_t>(CeilDiv(end - begin, step)));
  pool_.ParallelFor(static_cast<int64_t>(statuses.size()), [&](int64_t item, int) {
    const int64_t first = begin + item * step;
    const size_t offset = RowBytes(dtype, cols) * static_cast<size_t>(first - begin);
    statuses[static_cast<size_t>(item)] =
        ReadAs(dtype, source, first, std::min(end, first + step), to + offset);
  });
  for (Status& status : statuses) RETURN_IF_ERROR(std::move(status));
  return Status();
}

Status WeightLoader::LoadPart(const WeightSource& source, DType dtype, std::byte* destination) {
  const int64_t rows = source.shape().rows();
  if (const std::optional<RandomWeight> random = source.random();
      random && source.dtype() == DType::kBF16 && dtype == DType::kBF16) {
    return CUDA_TRY(guard_, LaunchRandomWeight(*random, rows, source.shape().cols(),
                                               reinterpret_cast<uint16_t*>(destination), stream_));
  }
  const auto row_bytes = static_cast<int64_t>(RowBytes(dtype, source.shape().cols()));
  const int64_t step = static_cast<int64_t>(kStagingBytes) / std::max<int64_t>(1, row_bytes);
  if (step == 0) return Unimplemented("{}: rows of {} bytes", source.name(), row_bytes);
  for (int64_t begin = 0; begin < rows; begin += step) {
    const int64_t end = std::min(rows, begin + step);
    const Half& half = halves_[next_++ % halves_.size()];
    RETURN_IF_ERROR(CUDA_TRY(guard_, cudaEventSynchronize(half.copied)));
    RETURN_IF_ERROR(ConvertRows(source, dtype, begin, end, half.staging.data()));
    RETURN_IF_ERROR(
        CUDA_TRY(guard_, cudaMemcpyAsync(destination + begin * row_bytes, half.staging.data(),
                                         static_cast<size_t>((end - begin) * row_bytes),
                                         cudaMemcpyHostToDevice, stream_)));
    RETURN_IF_ERROR(CUDA_TRY(guard_, cudaEventRecord(half.copied, stream_)));
  }
  return Status();
}

Result<Buffer> WeightLoader::LoadAll(std::span<const WeightSpec> specs, DType dtype) {
  RETURN_IF_ERROR(Start());
  size_t bytes = 0;
  for (const WeightSpec& spec : specs) {
    bytes += RowBytes(dtype, Cols(spec)) * static_cast<size_t>(TotalRows(spec));
  }
  ASSIGN_OR_RETURN(Buffer data, AllocateMemory(guard_, bytes, MemoryKind::kDevice));
  std::byte* destination = data.data();
  Status status;
  for (const WeightSpec& spec : specs) {
    for (const auto& part : spec.parts) {
      if (status.ok()) status = LoadPart(*part, dtype, destination);
      destination += RowBytes(dtype, Cols(spec)) * static_cast<size_t>(part->shape().rows());
    }
  }
  // Waits even before giving up: copies in flight write to memory that would be freed.
  const Status copied = CUDA_TRY(guard_, cudaStreamSynchronize(stream_));
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(copied);
  return data;
}

Result<std::unique_ptr<CudaWeight>> WeightLoader::Load(const WeightSpec& spec) {
  RETURN_IF_ERROR(CheckWeightSpec(spec));
  const DType dtype = CudaWeightType(precise_, spec.use);
  ASSIGN_OR_RETURN(Buffer data, LoadAll({&spec, 1}, dtype));
  auto weight = std::make_unique<CudaWeight>(TotalRows(spec), Cols(spec), dtype, std::move(data),
                                             LinearOutput(spec, CudaWeightType(precise_)));
  weight->is_router = spec.use == WeightUse::kRouter;
  return weight;
}

Result<std::unique_ptr<CudaStack>> WeightLoader::LoadStack(std::span<const WeightSpec> members) {
  const WeightSpec& first = members.front();
  for (const WeightSpec& spec : members) {
    RETURN_IF_ERROR(CheckWeightSpec(spec));
    if (TotalRows(spec) != TotalRows(first) || Cols(spec) != Cols(first)) {
      return InvalidArgument("{}: does not have the shape of {}", spec.parts.front()->name(),
                             first.parts.front()->name());
    }
  }
  const DType dtype = CudaWeightType(precise_, first.use);
  ASSIGN_OR_RETURN(Buffer data, LoadAll(members, dtype));
  return std::make_unique<CudaStack>(static_cast<int64_t>(members.size()), TotalRows(first),
                                     Cols(first), dtype, std::move(data),
                                     LinearOutput(first, CudaWeightType(precise_)));
}

}  // namespace tokamak::cuda
