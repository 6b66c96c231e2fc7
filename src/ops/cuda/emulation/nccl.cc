// The emulated NCCL. Ranks exchange values through memory that they share, so they may be threads
// of a process or processes of one machine. An exchange is done once the streams of all ranks have
// come to it, and a transfer once those of both ends have: until then each stream waits, and other
// threads must be able to go on.
#include "ops/cuda/nccl.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "ops/cuda/emulation/stream.h"

namespace tokamak::cuda {
namespace {

constexpr int kMaxRanks = 64;
constexpr size_t kPartBytes = 8 << 20;   // the most that a rank hands over to all at once
constexpr size_t kSentBytes = 32 << 20;  // the most that it sends to one rank at once

// The memory of a group; it begins as zeros. The ranks' parts follow it, each in kPartBytes, then
// what each rank sends to each other rank, in kSentBytes. Pages that nothing uses take no memory.
struct alignas(4096) Group {
  struct alignas(64) Place {
    std::atomic<uint64_t> given;  // exchanges for which this rank's part was there
    std::atomic<uint64_t> taken;  // exchanges from which it has all parts
    std::atomic<uint64_t> bytes;  // of its last part
  };
  struct alignas(64) Channel {
    std::atomic<bool> full;  // sent and not received
    std::atomic<uint64_t> bytes;
  };
  Place places[kMaxRanks];
  Channel channels[kMaxRanks][kMaxRanks];  // from, to
  std::atomic<int> joined;
  std::atomic<NcclResult> error;  // the first
};
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<bool>::is_always_lock_free &&
              std::atomic<NcclResult>::is_always_lock_free);

// The file of the group's memory, in the process that has opened it.
struct FilePlace {
  pid_t process = 0;
  int file = -1;
};

size_t GroupBytes(int size) {
  const auto ranks = static_cast<size_t>(size);
  return sizeof(Group) + ranks * kPartBytes + ranks * ranks * kSentBytes;
}

}  // namespace
}  // namespace tokamak::cuda

struct ncclComm {
  tokamak::cuda::Group& group;
  const int size, rank;
  uint64_t done = 0;  // exchanges of its stream

  std::byte* part(int of_rank) const {
    return reinterpret_cast<std::byte*>(&group + 1) +
           static_cast<size_t>(of_rank) * tokamak::cuda::kPartBytes;
  }
  std::byte* sent(int from, int to) const {
    return part(size) + static_cast<size_t>(from * size + to) * tokamak::cuda::kSentBytes;
  }
};

namespace tokamak::cuda {
namespace {

Mutex mutex;
std::vector<std::unique_ptr<ncclComm>> aborted GUARDED_BY(mutex);  // streams may still come to them
int num_connected GUARDED_BY(mutex) = 0;
std::jthread device GUARDED_BY(mutex);

// While this process has communicators, a thread advances its streams. Ranks of other processes
// wait for them, and a GPU needs no call of the host to go on.
void Connected() {
  const MutexLock lock(mutex);
  if (++num_connected > 1) return;
  device = std::jthread([](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (!emulation::AdvanceOne()) ::usleep(200);
    }
  });
}

void Disconnected() {
  std::jthread ended;  // joined without the lock
  const MutexLock lock(mutex);
  if (--num_connected == 0) ended = std::move(device);
}

NcclResult GetUniqueId(NcclId* id) {
  const FilePlace place{::getpid(), ::memfd_create("emulated-nccl", MFD_CLOEXEC)};
  if (place.file < 0) return NcclResult::kSystemError;
  std::memcpy(id->bytes, &place, sizeof(place));
  return NcclResult::kSuccess;
}

// Waits until all ranks have come. Rank 0 closes the id's file then.
NcclResult InitRank(NcclComm* comm, int size, NcclId id, int rank) {
  if (size > kMaxRanks) return NcclResult::kInvalidArgument;
  FilePlace place;
  std::memcpy(&place, id.bytes, sizeof(place));
  const std::string path =
      "/proc/" + std::to_string(place.process) + "/fd/" + std::to_string(place.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return NcclResult::kSystemError;
  const size_t bytes = GroupBytes(size);
  void* memory = MAP_FAILED;
  if (::ftruncate(file, static_cast<off_t>(bytes)) == 0) {
    memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  ::close(file);
  if (memory == MAP_FAILED) return NcclResult::kSystemError;
  auto& group = *static_cast<Group*>(memory);
  ++group.joined;
  while (group.joined < size) ::usleep(1000);
  if (rank == 0) ::close(place.file);
  *comm = new ncclComm{group, size, rank};
  Connected();
  return NcclResult::kSuccess;
}

NcclResult Destroy(NcclComm comm) {
  Disconnected();
  ::munmap(&comm->group, GroupBytes(comm->size));
  delete comm;
  return NcclResult::kSuccess;
}

void Fail(Group& group, NcclResult error) {
  NcclResult none = NcclResult::kSuccess;
  group.error.compare_exchange_strong(none, error);
}

NcclResult Abort(NcclComm comm) {
  Fail(comm->group, NcclResult::kRemoteError);
  Disconnected();
  const MutexLock lock(mutex);
  aborted.emplace_back(comm);
  return NcclResult::kSuccess;
}

NcclResult GetAsyncError(NcclComm comm, NcclResult* error) {
  *error = comm->group.error;
  return NcclResult::kSuccess;
}

// A rank's next exchange.
class Exchange {
 public:
  Exchange(ncclComm& comm, const void* send, void* receive, size_t bytes)
      : comm_(comm), send_(send), receive_(receive), bytes_(bytes) {}

  // Returns whether it is done, or will never be.
  bool GoOn() {
    const Group& group = comm_.group;
    if (group.error != NcclResult::kSuccess) return true;
    if (!given_ && !Give()) return false;
    return Take() || group.error != NcclResult::kSuccess;
  }

 private:
  bool AllHave(std::atomic<uint64_t> Group::Place::*count, uint64_t exchanges) const {
    for (int i = 0; i < comm_.size; ++i) {
      if (comm_.group.places[i].*count < exchanges) return false;
    }
    return true;
  }
  // Hands over this rank's part, when the others no longer need its last one.
  bool Give() {
    if (!AllHave(&Group::Place::taken, comm_.done)) return false;
    Group::Place& own = comm_.group.places[comm_.rank];
    std::memcpy(comm_.part(comm_.rank), send_, bytes_);
    own.bytes = bytes_;
    own.given = comm_.done + 1;
    return given_ = true;
  }
  // Takes all parts, when they are there.
  bool Take() {
    if (!AllHave(&Group::Place::given, comm_.done + 1)) return false;
    for (int i = 0; i < comm_.size; ++i) {
      if (comm_.group.places[i].bytes == bytes_) continue;
      Fail(comm_.group, NcclResult::kInvalidUsage);
      return false;
    }
    for (int i = 0; i < comm_.size; ++i) {
      std::memcpy(static_cast<std::byte*>(receive_) + static_cast<size_t>(i) * bytes_,
                  comm_.part(i), bytes_);
    }
    comm_.group.places[comm_.rank].taken = ++comm_.done;
    return true;
  }

  ncclComm& comm_;
  const void* const send_;
  void* const receive_;
  const size_t bytes_;
  bool given_ = false;
};

// One end of a rank's next transfer on a channel.
class Transfer {
 public:
  Transfer(ncclComm& comm, int from, int to, const void* send, void* receive, size_t bytes)
      : group_(comm.group),
        channel_(comm.group.channels[from][to]),
        memory_(comm.sent(from, to)),
        send_(send),
        receive_(receive),
        bytes_(bytes) {}

  // Returns whether it is done, or will never be.
  bool GoOn() {
    if (group_.error != NcclResult::kSuccess) return true;
    if (receive_ != nullptr) return channel_.full && Take();
    if (!given_) Give();
    return !channel_.full;
  }

 private:
  void Give() {
    std::memcpy(memory_, send_, bytes_);
    channel_.bytes = bytes_;
    channel_.full = true;
    given_ = true;
  }
  bool Take() {
    if (channel_.bytes != bytes_) {
      Fail(group_, NcclResult::kInvalidUsage);
      return true;
    }
    std::memcpy(receive_, memory_, bytes_);
    channel_.full = false;
    return true;
  }

  Group& group_;
  Group::Channel& channel_;
  std::byte* const memory_;
  const void* const send_;
  void* const receive_;
  const size_t bytes_;
  bool given_ = false;
};

// Puts an exchange or a transfer into the stream.
template <typename Step>
NcclResult Enqueue(const Step& step, cudaStream_t stream) {
  emulation::EnqueueOperation(
      [step]() -> emulation::Operation {
        return {.go_on = [step = step]() mutable { return step.GoOn(); }};
      },
      stream);
  return NcclResult::kSuccess;
}

NcclResult AllGather(const void* send, void* receive, size_t bytes, NcclType, NcclComm comm,
                     cudaStream_t stream) {
  if (bytes > kPartBytes) return NcclResult::kInvalidArgument;
  return Enqueue(Exchange(*comm, send, receive, bytes), stream);
}

NcclResult Send(const void* data, size_t bytes, NcclType, int to, NcclComm comm,
                cudaStream_t stream) {
  if (bytes > kSentBytes) return NcclResult::kInvalidArgument;
  return Enqueue(Transfer(*comm, comm->rank, to, data, nullptr, bytes), stream);
}

NcclResult Receive(void* data, size_t bytes, NcclType, int from, NcclComm comm,
                   cudaStream_t stream) {
  if (bytes > kSentBytes) return NcclResult::kInvalidArgument;
  return Enqueue(Transfer(*comm, from, comm->rank, nullptr, data, bytes), stream);
}

}  // namespace

Result<Nccl> OpenNccl() {
  return Nccl{.get_unique_id = &GetUniqueId,
              .comm_init_rank = &InitRank,
              .comm_destroy = &Destroy,
              .comm_abort = &Abort,
              .comm_get_async_error = &GetAsyncError,
              .all_gather = &AllGather,
              .send = &Send,
              .receive = &Receive};
}

}  // namespace tokamak::cuda
