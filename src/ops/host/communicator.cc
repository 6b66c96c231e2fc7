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

// A number that grows, and ranks that wait for it.
struct Count {
  std::atomic<uint64_t> value;
  std::atomic<uint32_t> sleepers;  // ranks that sleep until it changes
};

// The state of one rank, which alone writes `arrived` and `exchanges`.
struct alignas(64) RankState {
  // Exchanges for which this rank's values are in its slot.
  Count arrived;
  // The last two exchanges that the rank takes part in. Different values on two ranks are a bug.
  std::atomic<uint64_t> exchanges[2];
};

// Bytes on their way from one rank to another, through a ring of `channel_bytes`.
struct alignas(64) Channel {
  Count sent;
  alignas(64) Count received;
};

// Everything is valid as zeros.
struct Header {
  enum Failure : uint32_t { kNone, kWriting, kFailed };
  std::atomic<uint32_t> failure;
  uint32_t code;   // a StatusCode; this and `text` are written by one rank, before kFailed
  char text[248];  // ends with a zero
  RankState ranks[kMaxHostRanks];
  // By the rank that receives.
  Channel from_before[kMaxHostRanks];  // from the stage before
  Channel from_last[kMaxHostRanks];    // from the last stage
};
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);

// The kernel compares 32 bits: the low half of a count, which comes first in memory.
static_assert(std::endian::native == std::endian::little);
long Futex(Count& count, int operation, uint32_t value, const timespec* timeout) {
  return ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&count.value), operation, value, timeout,
                   nullptr, 0);
}

void WakeAll(Count& count) { Futex(count, FUTEX_WAKE, INT32_MAX, nullptr); }

void Set(Count& count, uint64_t value) {
  count.value.store(value, std::memory_order_seq_cst);
  if (count.sleepers.load(std::memory_order_seq_cst) > 0) WakeAll(count);
}

int32_t NumRanks(const SharedMemoryOptions& options) { return options.size * options.stages; }

// A rank spins for about 50 µs, which is longer than ranks of equal work are apart, then sleeps. It
// looks for a failed group at least this often.
constexpr int kSpins = 2000;
constexpr timespec kSleep = {.tv_sec = 0, .tv_nsec = 20'000'000};

// Ranks are numbered over all stages here. A slot is written in every second exchange of its stage.
// By then the writer has seen that all ranks take part in the exchange in between, for which they
// must have finished reading the slot. So one meeting of all ranks per exchange is enough.
class SharedMemoryCommunicator final : public Communicator {
 public:
  SharedMemoryCommunicator(const SharedMemoryOptions& options, int32_t rank, Buffer memory)
      : options_(options), rank_(rank), memory_(std::move(memory)) {
    CHECK(memory_.size() >= SharedMemoryBytes(options) && 0 <= rank && rank < NumRanks(options));
  }

  RankInfo info() const override {
    return {options_.size, rank_ % options_.size, options_.stages, rank_ / options_.size};
  }
  Status Run(const AllReduce& op) override;
  Status Run(const AllGather& op) override;
  Status Run(const Send& op) override;
  Status Run(const Receive& op) override;
  ExchangeCosts costs() const override { return costs_; }
  void Abort(const Status& reason) override {
    EndGroup(reason.code(), fmt::format("rank {}: {}", rank_, reason.message()));
  }
  Status status() const override;
  void Restart() override;

 private:
  enum Kind : uint64_t { kAllReduce = 1, kAllGather = 2 };

  Header& header() const { return *reinterpret_cast<Header*>(memory_.data()); }
  RankState& state(int32_t rank) const { return header().ranks[rank]; }
  int32_t first() const { return rank_ - rank_ % options_.size; }  // rank of this stage
  // Returns the place of the values of `rank` in the current exchange.
  float* Slot(int32_t rank) const {
    const auto index = static_cast<size_t>(rank) * 2 + exchange_ % 2;
    return reinterpret_cast<float*>(memory_.data() + sizeof(Header) + index * options_.slot_bytes);
  }
  int64_t slot_floats() const { return static_cast<int64_t>(options_.slot_bytes / sizeof(float)); }

  // Hands over what is in this rank's slot and waits until all ranks have done so.
  Status Meet(Kind kind, int64_t elements);
  // Waits until the count, which `rank` changes, is at least this.
  Status WaitFor(Count& count, uint64_t least, int32_t rank, std::chrono::milliseconds timeout) {
    if (count.value.load(std::memory_order_seq_cst) >= least) return Status();
    const Clock::time_point start = Clock::now();
    Status status = Wait(count, least, rank, timeout);
    costs_.waited += Clock::now() - start;
    return status;
  }
  Status Wait(Count& count, uint64_t least, int32_t rank, std::chrono::milliseconds timeout);

  // A channel and its ring.
  struct Way {
    Channel& channel;
    std::byte* ring;
    size_t bytes;
  };
  // From this rank's namesake in stage `from` to that in `to`.
  Way WayOf(int32_t from, int32_t to) const;
  int32_t RankIn(int32_t stage) const { return stage * options_.size + rank_ % options_.size; }
  // Moves `size` bytes into or out of a channel, in pieces: copy(piece, place in the ring).
  template <typename Copy>
  Status Transfer(const Way& way, int32_t other, bool sends, size_t size, Copy copy);
  void EndGroup(StatusCode code, std::string_view message);

  const SharedMemoryOptions options_;
  const int32_t rank_;
  const Buffer memory_;
  uint64_t exchange_ = 0;  // the current one, from 1
  ExchangeCosts costs_;
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
  state(rank_).arrived.value.store(0);
  for (Channel* const channel : {&header().from_before[rank_], &header().from_last[rank_]}) {
    channel->sent.value.store(0);
    channel->received.value.store(0);
  }
  header().failure.store(Header::kNone);
}

void SharedMemoryCommunicator::EndGroup(StatusCode code, std::string_view message) {
  Header& shared = header();
  uint32_t none = Header::kNone;
  if (!shared.failure.compare_exchange_strong(none, Header::kWriting)) return;
  shared.code = static_cast<uint32_t>(code);
  const size_t size = std::min(message.size(), sizeof(shared.text) - 1);
  *std::copy_n(message.data(), size, shared.text) = '\0';
  shared.failure.store(Header::kFailed);
  for (int32_t rank = 0; rank < NumRanks(options_); ++rank) {
    WakeAll(state(rank).arrived);
    for (Channel* const channel : {&shared.from_before[rank], &shared.from_last[rank]}) {
      WakeAll(channel->sent);
      WakeAll(channel->received);
    }
  }
}

Status SharedMemoryCommunicator::Wait(Count& count, uint64_t least, int32_t rank,
                                      std::chrono::milliseconds timeout) {
  const auto value = [&] { return count.value.load(std::memory_order_seq_cst); };
  for (int spins = 0; spins < kSpins; ++spins) {
    if (value() >= least) return Status();
    Pause();
  }
  const Clock::time_point deadline = Clock::now() + timeout;
  for (uint64_t now = value(); now < least; now = value()) {
    RETURN_IF_ERROR(status());
    if (Clock::now() >= deadline) {
      EndGroup(StatusCode::kUnavailable,
               fmt::format("rank {} did not take part in an exchange with rank {} within {} ms",
                           rank, rank_, timeout.count()));
      return status();
    }
    // Either the peer sees the sleeper, or the sleeper sees the new value.
    count.sleepers.fetch_add(1, std::memory_order_seq_cst);
    if (value() == now) Futex(count, FUTEX_WAIT, static_cast<uint32_t>(now), &kSleep);
    count.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }
  return Status();
}

Status SharedMemoryCommunicator::Meet(Kind kind, int64_t elements) {
  const uint64_t expected = static_cast<uint64_t>(elements) << 2 | kind;
  RankState& mine = state(rank_);
  mine.exchanges[exchange_ % 2].store(expected, std::memory_order_relaxed);
  Set(mine.arrived, exchange_);
  for (int32_t rank = first(); rank < first() + options_.size; ++rank) {
    if (rank == rank_) continue;
    RETURN_IF_ERROR(WaitFor(state(rank).arrived, exchange_, rank, options_.timeout));
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
    std::copy_n(Slot(first()), count, x);
    for (int32_t rank = 1; rank < options_.size; ++rank) {
      const float* const part = Slot(first() + rank);
      for (int64_t i = 0; i < count; ++i) x[i] += part[i];
    }
  }
  costs_.received_bytes += total * (options_.size - 1) * int64_t{sizeof(float)};
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
        op.columns[static_cast<size_t>(info().rank)].size() == op.x.cols() &&
        op.x.rows() == op.out.rows());
  RETURN_IF_ERROR(status());
  int64_t most = 0;  // elements of any rank
  for (const IndexRange& columns : op.columns) {
    most = std::max(most, op.out.rows() * columns.size());
    costs_.received_bytes += op.out.rows() * columns.size() * int64_t{sizeof(float)};
  }
  costs_.received_bytes -= op.x.shape.elements() * int64_t{sizeof(float)};  // its own
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
          part, begin, end(part.shape.elements()), Slot(first() + rank),
          [](float* row, const float* slot, size_t bytes) { std::memcpy(row, slot, bytes); });
    }
  }
  return status();
}

SharedMemoryCommunicator::Way SharedMemoryCommunicator::WayOf(int32_t from, int32_t to) const {
  const int32_t last = options_.stages - 1;
  CHECK(0 <= to && to <= last && (to == from + 1 || (from == last && to < last)));
  // The rings follow the slots, first those of ranks behind the first stage.
  std::byte* const rings = memory_.data() + sizeof(Header) +
                           static_cast<size_t>(NumRanks(options_)) * 2 * options_.slot_bytes;
  const auto others = static_cast<size_t>(options_.size) * static_cast<size_t>(last);
  if (to == from + 1) {
    const auto index = static_cast<size_t>(RankIn(to) - options_.size);
    return {header().from_before[RankIn(to)], rings + index * options_.channel_bytes,
            options_.channel_bytes};
  }
  const size_t offset =
      others * options_.channel_bytes + static_cast<size_t>(RankIn(to)) * options_.draws_bytes;
  return {header().from_last[RankIn(to)], rings + offset, options_.draws_bytes};
}

// The count of what the other rank has done grows meanwhile; only this rank changes its own.
template <typename Copy>
Status SharedMemoryCommunicator::Transfer(const Way& way, int32_t other, bool sends, size_t size,
                                          Copy copy) {
  Count& own = sends ? way.channel.sent : way.channel.received;
  Count& others = sends ? way.channel.received : way.channel.sent;
  // How far this rank may be ahead of the other.
  const uint64_t lead = sends ? way.bytes : 0;
  uint64_t done = own.value.load(std::memory_order_relaxed);
  while (size > 0) {
    RETURN_IF_ERROR(
        WaitFor(others, done + 1 > lead ? done + 1 - lead : 0, other, options_.stage_timeout));
    const uint64_t possible = others.value.load(std::memory_order_seq_cst) + lead - done;
    const size_t at = done % way.bytes;
    const size_t count = std::min({size, static_cast<size_t>(possible), way.bytes - at});
    copy(count, way.ring + at);
    done += count;
    size -= count;
    Set(own, done);
  }
  return Status();
}

// A message begins with its size.
Status SharedMemoryCommunicator::Run(const Send& op) {
  CHECK(op.x.contiguous() && RowBytes(op.x.dtype, 1) == sizeof(float));
  RETURN_IF_ERROR(status());
  const Way way = WayOf(info().stage, op.stage);
  const auto send = [&](const void* from, uint64_t size) {
    const auto* bytes = static_cast<const std::byte*>(from);
    return Transfer(way, RankIn(op.stage), /*sends=*/true, size,
                    [&](size_t count, std::byte* place) {
                      std::memcpy(place, bytes, count);
                      bytes += count;
                    });
  };
  const uint64_t size = static_cast<uint64_t>(op.x.shape.elements()) * sizeof(float);
  RETURN_IF_ERROR(send(&size, sizeof(size)));
  RETURN_IF_ERROR(send(op.x.data, size));
  return status();
}

Status SharedMemoryCommunicator::Run(const Receive& op) {
  CHECK(op.out.contiguous() && RowBytes(op.out.dtype, 1) == sizeof(float));
  RETURN_IF_ERROR(status());
  const int32_t other = RankIn(op.stage);
  const Way way = WayOf(op.stage, info().stage);
  const auto receive = [&](void* to, uint64_t size) {
    auto* bytes = static_cast<std::byte*>(to);
    return Transfer(way, other, /*sends=*/false, size, [&](size_t count, std::byte* place) {
      std::memcpy(bytes, place, count);
      bytes += count;
    });
  };
  uint64_t size = 0;
  RETURN_IF_ERROR(receive(&size, sizeof(size)));
  if (size != static_cast<uint64_t>(op.out.shape.elements()) * sizeof(float)) {
    EndGroup(StatusCode::kInternal,
             fmt::format("ranks {} and {} take part in different exchanges", rank_, other));
    return status();
  }
  RETURN_IF_ERROR(receive(op.out.data, size));
  costs_.received_bytes += static_cast<int64_t>(size);
  return status();
}

}  // namespace

size_t SharedMemoryBytes(const SharedMemoryOptions& options) {
  const auto ranks = static_cast<size_t>(NumRanks(options));
  const auto ways = static_cast<size_t>(options.size) * static_cast<size_t>(options.stages - 1);
  return sizeof(Header) + ranks * 2 * options.slot_bytes +
         ways * (options.channel_bytes + options.draws_bytes);
}

std::unique_ptr<Communicator> MakeSharedMemoryCommunicator(const SharedMemoryOptions& options,
                                                           int32_t rank, Buffer memory) {
  return std::make_unique<SharedMemoryCommunicator>(options, rank, std::move(memory));
}

Result<std::vector<std::unique_ptr<Communicator>>> MakeThreadGroup(
    const SharedMemoryOptions& options) {
  if (options.size < 1 || options.stages < 1 ||
      int64_t{options.size} * options.stages > kMaxHostRanks) {
    return InvalidArgument("{} ranks in {} stages: at least 1 and at most {} ranks are supported",
                           options.size, options.stages, kMaxHostRanks);
  }
  CHECK(options.slot_bytes > 0 && options.slot_bytes % sizeof(float) == 0);
  CHECK(options.channel_bytes > 0 && options.draws_bytes > 0);
  ASSIGN_OR_RETURN(const Buffer memory, AllocateHostMemory(SharedMemoryBytes(options)));
  std::memset(memory.data(), 0, sizeof(Header));
  std::vector<std::unique_ptr<Communicator>> group;
  for (int32_t rank = 0; rank < NumRanks(options); ++rank) {
    group.push_back(MakeSharedMemoryCommunicator(options, rank, memory));
  }
  return group;
}

}  // namespace tokamak
