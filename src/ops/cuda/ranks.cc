#include "ops/cuda/ranks.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "ops/cuda/memory.h"
#include "ops/cuda/rank_kernels.h"

namespace tokamak::cuda {
namespace {

// A rank hands over so much at once, which is enough for the full bandwidth between GPUs.
constexpr int64_t kPieceBytes = 8 << 20;
// An id as the group's communicator hands it over.
constexpr int64_t kIdFloats = sizeof(NcclId) / sizeof(float);

size_t SizeOf(const Tensor& x) {
  CHECK(x.contiguous() && RowBytes(x.dtype, 1) == sizeof(float));
  return static_cast<size_t>(x.shape.elements()) * sizeof(float);
}

}  // namespace

Result<std::unique_ptr<GpuRanks>> GpuRanks::Make(CallGuard& guard,
                                                 std::shared_ptr<Communicator> communicator) {
  ASSIGN_OR_RETURN(const Nccl nccl, OpenNccl());
  std::unique_ptr<GpuRanks> ranks(new GpuRanks(guard, std::move(communicator), nccl));
  const auto size = static_cast<size_t>(ranks->info().size);
  if (size == 1) return ranks;
  ASSIGN_OR_RETURN(ranks->parts_, AllocateMemory(guard, size * kPieceBytes, MemoryKind::kDevice));
  ASSIGN_OR_RETURN(ranks->own_, AllocateMemory(guard, kPieceBytes, MemoryKind::kDevice));
  return ranks;
}

GpuRanks::~GpuRanks() {
  const bool ended = *guard_.lost() || HasEnded();
  for (std::thread& ending : ending_) *guard_.lost() ? ending.detach() : ending.join();
  if (ended) return;
  guard_.SelectDevice();
  for (NcclComm comm : {stage_, column_}) {
    if (comm != nullptr) (void)nccl_.comm_destroy(comm);
  }
}

Status GpuRanks::ShareInStage(NcclId& id) {
  const int64_t size = info().size;
  std::vector<NcclId> ids(static_cast<size_t>(size));
  std::vector<IndexRange> columns;
  for (int64_t i = 0; i < size; ++i) columns.push_back({i * kIdFloats, (i + 1) * kIdFloats});
  RETURN_IF_ERROR(
      communicator_->Run(AllGather{.x = Tensor(&id, DType::kF32, {1, kIdFloats}),
                                   .out = Tensor(ids.data(), DType::kF32, {1, size * kIdFloats}),
                                   .columns = columns}));
  id = ids[0];
  return Status();
}

Status GpuRanks::ShareAlongStages(NcclId& id) {
  const RankInfo place = info();
  const Tensor value(&id, DType::kF32, {1, kIdFloats});
  if (place.stage > 0) RETURN_IF_ERROR(communicator_->Run(Receive{value, place.stage - 1}));
  if (place.stage + 1 == place.stages) return Status();
  return communicator_->Run(Send{value, place.stage + 1});
}

Status GpuRanks::AwaitAll() {
  NcclId none = {};
  RETURN_IF_ERROR(ShareInStage(none));
  RETURN_IF_ERROR(ShareAlongStages(none));  // the last stage now knows that all have come
  const Tensor value(&none, DType::kF32, {1, kIdFloats});
  const int32_t last = info().stages - 1;
  if (info().stage < last) return communicator_->Run(Receive{value, last});
  for (int32_t stage = 0; stage < last; ++stage) {
    RETURN_IF_ERROR(communicator_->Run(Send{value, stage}));
  }
  return Status();
}

Status GpuRanks::Connect() {
  const RankInfo place = info();
  const auto join = [&](NcclComm* comm, int size, int rank, auto share) -> Status {
    if (size == 1) return Status();
    NcclId id = {};
    if (rank == 0) {
      RETURN_IF_ERROR(guard_.Try("ncclGetUniqueId", [&] { return nccl_.get_unique_id(&id); }));
    }
    RETURN_IF_ERROR((this->*share)(id));
    return guard_.Try("ncclCommInitRank",
                      [&] { return nccl_.comm_init_rank(comm, size, id, rank); });
  };
  RETURN_IF_ERROR(join(&stage_, place.size, place.rank, &GpuRanks::ShareInStage));
  // If a stage could not join, the others must not wait for it in NCCL, which has no time limit.
  RETURN_IF_ERROR(AwaitAll());
  RETURN_IF_ERROR(join(&column_, place.stages, place.stage, &GpuRanks::ShareAlongStages));
  // Joining allocates memory, which could wait for the exchanges of ranks that have joined.
  RETURN_IF_ERROR(AwaitAll());
  is_connected_ = true;
  return Status();
}

bool GpuRanks::IsReady() {
  if (!guard_.ok() || HasEnded()) return false;
  if (is_connected_) return true;
  const Status status = Connect();
  if (status.ok()) return true;
  communicator_->Abort(status);  // the other ranks may wait for this one
  return guard_.Fail(status);
}

bool GpuRanks::HasEnded() {
  Status status = communicator_->status();
  for (NcclComm comm : {stage_, column_}) {
    if (!status.ok() || comm == nullptr) continue;
    NcclResult error = NcclResult::kSuccess;
    const NcclResult asked = nccl_.comm_get_async_error(comm, &error);
    if (asked != NcclResult::kSuccess) error = asked;
    if (error == NcclResult::kSuccess || error == NcclResult::kInProgress) continue;
    communicator_->Abort(Internal("NCCL: {} (NCCL_DEBUG=WARN says more)", Describe(error)));
    status = communicator_->status();
  }
  if (status.ok()) return false;
  guard_.Fail(std::move(status));
  for (NcclComm* const comm : {&stage_, &column_}) {
    if (*comm == nullptr) continue;
    // At once lets what the GPU runs end, then waits until no graph refers to the communicator.
    ending_.emplace_back(
        [abort = nccl_.comm_abort, ended = std::exchange(*comm, nullptr)] { (void)abort(ended); });
  }
  return true;
}

void GpuRanks::End(const Status& reason) {
  communicator_->Abort(reason);
  (void)HasEnded();
}

bool GpuRanks::Gather(const void* part, size_t bytes, cudaStream_t stream) {
  return guard_.Run("ncclAllGather", [&] {
    return nccl_.all_gather(part, parts_.data(), bytes, NcclType::kInt8, stage_, stream);
  });
}

void GpuRanks::Run(const AllReduce& op, cudaStream_t stream) {
  CHECK(op.x.dtype == DType::kF32 && op.x.contiguous());
  if (!IsReady() || info().size == 1) return;
  constexpr int64_t kPiece = kPieceBytes / int64_t{sizeof(float)};
  const int64_t total = op.x.shape.elements();
  for (int64_t begin = 0; begin < total; begin += kPiece) {
    const AddPartsArgs args = {.parts = reinterpret_cast<const float*>(parts_.data()),
                               .sum = static_cast<float*>(op.x.data) + begin,
                               .count = std::min(kPiece, total - begin),
                               .num_parts = info().size};
    if (!Gather(args.sum, static_cast<size_t>(args.count) * sizeof(float), stream)) return;
    CUDA_RUN(guard_, LaunchAddParts(args, stream));
  }
}

// Every rank hands over rows as wide as the widest.
void GpuRanks::Run(const AllGather& op, cudaStream_t stream) {
  const size_t bytes = Info(op.x.dtype).block_bytes;
  CHECK(op.x.dtype == op.out.dtype && (bytes == 2 || bytes == 4));
  CHECK(std::ssize(op.columns) == info().size && info().size <= ColumnsArgs::kMaxRanks &&
        op.x.rows() == op.out.rows());
  if (!IsReady()) return;
  ColumnsArgs args = {.x = op.x.data,
                      .out = op.out.data,
                      .own = own_.data(),
                      .parts = parts_.data(),
                      .element_bytes = bytes,
                      .x_stride = op.x.row_stride / static_cast<int64_t>(bytes),
                      .out_stride = op.out.row_stride / static_cast<int64_t>(bytes),
                      .rank = info().rank,
                      .num_ranks = info().size};
  for (size_t i = 0; i < op.columns.size(); ++i) {
    args.columns[i] = op.columns[i];
    args.widest = std::max(args.widest, op.columns[i].size());
  }
  CHECK(args.columns[args.rank].size() == op.x.cols());
  const bool as_it_is = op.x.contiguous() && op.x.cols() == args.widest;
  const int64_t total = op.x.rows() * args.widest;
  const int64_t piece = kPieceBytes / static_cast<int64_t>(bytes);
  for (args.begin = 0; args.begin < total; args.begin += piece) {
    args.count = std::min(piece, total - args.begin);
    const void* part = args.own;
    if (as_it_is) {
      part = static_cast<const std::byte*>(args.x) + args.begin * static_cast<int64_t>(bytes);
    } else if (!CUDA_RUN(guard_, LaunchPackColumns(args, stream))) {
      return;
    }
    if (!Gather(part, static_cast<size_t>(args.count) * bytes, stream)) return;
    CUDA_RUN(guard_, LaunchUnpackColumns(args, stream));
  }
}

// The communicator keeps an error, and the next wait for the stream returns it.
template <typename Exchange>
void GpuRanks::RunOnHost(const Exchange& op) {
  if (guard_.ok()) (void)communicator_->Run(op);
}

void GpuRanks::Run(const Send& op, cudaStream_t stream) {
  if (op.stage < info().stage) return RunOnHost(op);
  const size_t bytes = SizeOf(op.x);
  if (bytes == 0 || !IsReady()) return;
  guard_.Run("ncclSend", [&] {
    return nccl_.send(op.x.data, bytes, NcclType::kInt8, op.stage, column_, stream);
  });
}

void GpuRanks::Run(const Receive& op, cudaStream_t stream) {
  if (op.stage > info().stage) return RunOnHost(op);
  const size_t bytes = SizeOf(op.out);
  if (bytes == 0 || !IsReady()) return;
  guard_.Run("ncclRecv", [&] {
    return nccl_.receive(op.out.data, bytes, NcclType::kInt8, op.stage, column_, stream);
  });
}

}  // namespace tokamak::cuda
