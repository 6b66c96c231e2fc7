#include "ops/host/communicator.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/pause.h"
#include "ops/host/host_ops.h"

namespace tokamak {
namespace {

using Clock = std::chrono::steady_clock;

// The state of one rank, which alone writes `arrived` and `exchanges`.
struct alignas(64) RankState {
  // Exchanges for which this rank's values are in its slot.
  std::atomic<uint64_t> arrived;
  // Ranks that sleep until `arrived` changes.
  std::atomic<uint32_t> sleepers;
  // The last two exchanges that the rank takes part in. Different values on two ranks are a bug.
  std::atomic<uint64_t> exchanges[2];
};

// Everything is valid as zeros.
struct Header {
  enum Failure : uint32_t { kNone, kWriting, kFailed };
  std::atomic<uint32_t> failure;
  uint32_t code;   // a StatusCode; this and `text` are written once, before kFailed
  char text[248];  // ends with a zero
  RankState ranks[kMaxHostRanks];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);

// The kernel compares 32 bits: the low half of a count, which comes first in memory.
static_assert(std::endian::native == std::endian::little);
long Futex(std::atomic<uint64_t>& count, int operation, uint32_t value, const timespec* timeout) {
  return ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&count), operation, value, timeout,
                   nullptr, 0);
}

// A rank spins for about 50 µs, which is longer than ranks of equal work are apart, then sleeps. It
// looks for a failed group at least this often.
constexpr int kSpins = 2000;
constexpr timespec kSleep = {.tv_sec = 0, .tv_nsec = 20'000'000};

// A slot is written in every second exchange. Its writer has then seen that all ranks take part in
// the exchange in between, for which they must have finished reading it. So one meeting of all
// ranks per exchange is enough.
class SharedMemoryCommunicator final : public Communicator {
 public:
  SharedMemoryCommunicator(const SharedMemoryOptions& options, int32_t rank, Buffer memory)
      : options_(options), rank_(rank), memory_(std::move(memory)) {
    CHECK(memory_.size() >= SharedMemoryBytes(options) && 0 <= rank && rank < options.size);
  }

  RankInfo info() const override { return {options_.size, rank_}; }
  Status Run(const AllReduce& op) override;
  Status Run(const AllGather& op) override;
  void Abort(const Status& reason) override {
    EndGroup(reason.code(), fmt::format("rank {}: {}", rank_, reason.message()));
  }
  Status status() const override;
  void Restart() override;

 private:
  enum Kind : uint64_t { kAllReduce = 1, kAllGather = 2 };

  Header& header() const { return *reinterpret_cast<Header*>(memory_.data()); }
  RankState& state(int32_t rank) const { return header().ranks[rank]; }
  // Returns the place of the values of `rank` in the current exchange.
  float* Slot(int32_t rank) const {
    const auto index = static_cast<size_t>(rank) * 2 + exchange_ % 2;
    return reinterpret_cast<float*>(memory_.data() + sizeof(Header) + index * options_.slot_bytes);
  }
  int64_t slot_floats() const { return static_cast<int64_t>(options_.slot_bytes / sizeof(float)); }

  // Hands over what is in this rank's slot and waits until all ranks have done so.
  Status Meet(Kind kind, int64_t elements);
  Status WaitFor(int32_t rank);
  void EndGroup(StatusCode code, std::string_view message);

  const SharedMemoryOptions options_;
  const int32_t rank_;
  const Buffer memory_;
  uint64_t exchange_ = 0;  // the current one, from 1
};

Status SharedMemoryCommunicator::status() const {
  uint32_t failure = header().failure.load(std::memory_order_acquire);
  if (failure == Header::kNone) return Status();
  for (int i = 0; failure == Header::kWriting && i < kSpins; ++i) {  // its writer may have died
    std::this_thread::yield();
    failure = header().failure.load(std::memory_order_acquire);
  }
  if (failure != Header::kFailed) return Unavailable("another rank failed");
  return Status(static_cast<StatusCode>(header().code), header().text);
}

void SharedMemoryCommunicator::Restart() {
  exchange_ = 0;
  state(rank_).arrived.store(0);
  std::fill(std::begin(header().text), std::end(header().text), '\0');
  header().failure.store(Header::kNone);
}

void SharedMemoryCommunicator::EndGroup(StatusCode code, std::string_view message) {
  Header& shared = header();
  uint32_t none = Header::kNone;
  if (!shared.failure.compare_exchange_strong(none, Header::kWriting)) return;
  shared.code = static_cast<uint32_t>(code);
  const size_t size = std::min(message.size(), sizeof(shared.text) - 1);
  std::copy_n(message.data(), size, shared.text);
  shared.failure.store(Header::kFailed);
  for (int32_t rank = 0; rank < options_.size; ++rank) {
    Futex(state(rank).arrived, FUTEX_WAKE, INT32_MAX, nullptr);
  }
}

Status SharedMemoryCommunicator::WaitFor(int32_t rank) {
  RankState& peer = state(rank);
  const auto arrived = [&] { return peer.arrived.load(std::memory_order_seq_cst); };
  for (int spins = 0; spins < kSpins; ++spins) {
    if (arrived() >= exchange_) return Status();
    Pause();
  }
  const Clock::time_point deadline = Clock::now() + options_.timeout;
  for (uint64_t now = arrived(); now < exchange_; now = arrived()) {
    RETURN_IF_ERROR(status());
    if (Clock::now() >= deadline) {
      EndGroup(StatusCode::kUnavailable,
               fmt::format("rank {} did not take part in an exchange with rank {} within {} ms",
                           rank, rank_, options_.timeout.count()));
      return status();
    }
    // Either the peer sees the sleeper, or the sleeper sees that it has arrived.
    peer.sleepers.fetch_add(1, std::memory_order_seq_cst);
    if (arrived() == now) {
      Futex(peer.arrived, FUTEX_WAIT, static_cast<uint32_t>(now), &kSleep);
    }
    peer.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }
  return Status();
}

Status SharedMemoryCommunicator::Meet(Kind kind, int64_t elements) {
  const uint64_t expected = static_cast<uint64_t>(elements) << 2 | kind;
  RankState& mine = state(rank_);
  mine.exchanges[exchange_ % 2].store(expected, std::memory_order_relaxed);
  mine.arrived.store(exchange_, std::memory_order_seq_cst);
  if (mine.sleepers.load(std::memory_order_seq_cst) > 0) {
    Futex(mine.arrived, FUTEX_WAKE, INT32_MAX, nullptr);
  }
  for (int32_t rank = 0; rank < options_.size; ++rank) {
    if (rank == rank_) continue;
    RETURN_IF_ERROR(WaitFor(rank));
    if (state(rank).exchanges[exchange_ % 2].load(std::memory_order_relaxed) != expected) {
      EndGroup(StatusCode::kInternal,
               fmt::format("ranks {} and {} take part in different exchanges", rank_, rank));
    }
  }
  return status();
}

Status SharedMemoryCommunicator::Run(const AllReduce& op) {
  CHECK(op.x.dtype == DType::kF32 && op.x.contiguous());
  RETURN_IF_ERROR(status());
  const int64_t total = op.x.shape.elements();
  for (int64_t begin = 0; begin < total; begin += slot_floats()) {
    const int64_t count = std::min(slot_floats(), total - begin);
    float* const x = static_cast<float*>(op.x.data) + begin;
    ++exchange_;
    std::copy_n(x, count, Slot(rank_));
    RETURN_IF_ERROR(Meet(kAllReduce, total));
    std::copy_n(Slot(0), count, x);
    for (int32_t rank = 1; rank < options_.size; ++rank) {
      const float* const part = Slot(rank);
      for (int64_t i = 0; i < count; ++i) x[i] += part[i];
    }
  }
  return status();
}

// Copies elements [begin, end) of a tensor, counted row by row, to or from `flat`.
template <typename Copy>
void ForEachRun(const Tensor& tensor, int64_t begin, int64_t end, float* flat, Copy copy) {
  while (begin < end) {
    const int64_t row = begin / tensor.cols(), col = begin % tensor.cols();
    const int64_t count = std::min(end - begin, tensor.cols() - col);
    copy(tensor.Row<float>(row) + col, flat, static_cast<size_t>(count) * sizeof(float));
    begin += count;
    flat += count;
  }
}

Status SharedMemoryCommunicator::Run(const AllGather& op) {
  CHECK(op.x.dtype == DType::kF32 && op.out.dtype == DType::kF32);
  CHECK(static_cast<int32_t>(op.columns.size()) == options_.size &&
        op.columns[static_cast<size_t>(rank_)].size() == op.x.cols() &&
        op.x.rows() == op.out.rows());
  RETURN_IF_ERROR(status());
  int64_t most = 0;  // elements of any rank
  for (const IndexRange& columns : op.columns) {
    most = std::max(most, op.out.rows() * columns.size());
  }
  for (int64_t begin = 0; begin < most; begin += slot_floats()) {
    // The elements of a rank in this exchange.
    const auto end = [&](int64_t total) { return std::min(begin + slot_floats(), total); };
    ++exchange_;
    ForEachRun(op.x, begin, end(op.x.shape.elements()), Slot(rank_),
               [](const float* row, float* slot, size_t bytes) { std::memcpy(slot, row, bytes); });
    RETURN_IF_ERROR(Meet(kAllGather, op.out.shape.elements()));
    for (int32_t rank = 0; rank < options_.size; ++rank) {
      const IndexRange& columns = op.columns[static_cast<size_t>(rank)];
      const Tensor part = op.out.Cols(columns.begin, columns.end);
      ForEachRun(
          part, begin, end(part.shape.elements()), Slot(rank),
          [](float* row, const float* slot, size_t bytes) { std::memcpy(row, slot, bytes); });
    }
  }
  return status();
}

}  // namespace

size_t SharedMemoryBytes(const SharedMemoryOptions& options) {
  return sizeof(Header) + static_cast<size_t>(options.size) * 2 * options.slot_bytes;
}

std::unique_ptr<Communicator> MakeSharedMemoryCommunicator(const SharedMemoryOptions& options,
                                                           int32_t rank, Buffer memory) {
  return std::make_unique<SharedMemoryCommunicator>(options, rank, std::move(memory));
}

Result<std::vector<std::unique_ptr<Communicator>>> MakeThreadGroup(
    const SharedMemoryOptions& options) {
  if (options.size < 1 || options.size > kMaxHostRanks) {
    return InvalidArgument("{} ranks: at least 1 and at most {} are supported", options.size,
                           kMaxHostRanks);
  }
  CHECK(options.slot_bytes > 0 && options.slot_bytes % sizeof(float) == 0);
  ASSIGN_OR_RETURN(const Buffer memory, AllocateHostMemory(SharedMemoryBytes(options)));
  std::memset(memory.data(), 0, memory.size());
  std::vector<std::unique_ptr<Communicator>> group;
  for (int32_t rank = 0; rank < options.size; ++rank) {
    group.push_back(MakeSharedMemoryCommunicator(options, rank, memory));
  }
  return group;
}

}  // namespace tokamak
