// The emulated NCCL, for ranks that are threads of this process. An exchange is done once the
// streams of all ranks have come to it, and a transfer once those of both ends have: until then
// each stream waits, and other threads must be able to go on.
#include "ops/cuda/nccl.h"

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "ops/cuda/emulation/stream.h"

namespace tokamak::cuda {
namespace {

struct Exchange {
  struct Part {
    const void* send = nullptr;
    void* receive = nullptr;
    size_t bytes = 0;
  };
  std::vector<Part> parts;  // by rank
  int arrived = 0;
  bool done = false;
};

struct Transfer {
  const void* send = nullptr;
  void* receive = nullptr;
  size_t bytes = 0;
  bool done = false;
};

Mutex mutex;

struct Group {
  int joined GUARDED_BY(mutex) = 0;
  NcclResult error GUARDED_BY(mutex) = NcclResult::kSuccess;
  // Exchanges to which not all ranks have come, the oldest first.
  std::deque<std::shared_ptr<Exchange>> open GUARDED_BY(mutex);
  uint64_t num_done GUARDED_BY(mutex) = 0;
  // What one end has come to and the other has not, by the ranks from and to which it goes.
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Transfer>>> transfers GUARDED_BY(mutex);
};

std::map<uint64_t, std::shared_ptr<Group>> groups GUARDED_BY(mutex);  // by id
uint64_t last_id GUARDED_BY(mutex) = 0;
CondVar joined;

}  // namespace
}  // namespace tokamak::cuda

struct ncclComm {
  const std::shared_ptr<tokamak::cuda::Group> group;
  const int size, rank;
  uint64_t next = 0;  // number of the next exchange that its stream comes to
};

namespace tokamak::cuda {
namespace {

std::vector<std::unique_ptr<ncclComm>> aborted GUARDED_BY(mutex);  // streams may still come to them

NcclResult GetUniqueId(NcclId* id) {
  const MutexLock lock(mutex);
  ++last_id;
  std::memcpy(id->bytes, &last_id, sizeof(last_id));
  return NcclResult::kSuccess;
}

NcclResult InitRank(NcclComm* comm, int size, NcclId id, int rank) {
  uint64_t number = 0;
  std::memcpy(&number, id.bytes, sizeof(number));
  const MutexLock lock(mutex);
  std::shared_ptr<Group>& place = groups[number];
  if (!place) place = std::make_shared<Group>();
  const std::shared_ptr<Group> group = place;
  if (++group->joined == size) groups.erase(number);
  joined.NotifyAll();
  while (group->joined < size) joined.Wait(mutex);
  *comm = new ncclComm{group, size, rank};
  return NcclResult::kSuccess;
}

NcclResult Destroy(NcclComm comm) {
  delete comm;
  return NcclResult::kSuccess;
}

NcclResult Abort(NcclComm comm) {
  const MutexLock lock(mutex);
  comm->group->error = NcclResult::kRemoteError;
  aborted.emplace_back(comm);
  return NcclResult::kSuccess;
}

NcclResult GetAsyncError(NcclComm comm, NcclResult* error) {
  const MutexLock lock(mutex);
  *error = comm->group->error;
  return NcclResult::kSuccess;
}

// Notes that a rank's stream has come to its next exchange.
std::shared_ptr<Exchange> Arrive(ncclComm& comm, const Exchange::Part& part) REQUIRES(mutex) {
  Group& group = *comm.group;
  const uint64_t index = comm.next++ - group.num_done;
  if (index == group.open.size()) group.open.push_back(std::make_shared<Exchange>());
  const std::shared_ptr<Exchange> exchange = group.open[index];
  exchange->parts.resize(static_cast<size_t>(comm.size));
  exchange->parts[static_cast<size_t>(comm.rank)] = part;
  if (++exchange->arrived < comm.size) return exchange;
  for (const Exchange::Part& from : exchange->parts) {
    if (from.bytes != part.bytes) group.error = NcclResult::kInvalidUsage;
  }
  if (group.error != NcclResult::kSuccess) return exchange;
  for (const Exchange::Part& to : exchange->parts) {
    auto* place = static_cast<std::byte*>(to.receive);
    for (const Exchange::Part& from : exchange->parts) {
      std::memcpy(place, from.send, from.bytes);
      place += from.bytes;
    }
  }
  exchange->done = true;
  group.open.pop_front();  // all ranks have come to all earlier ones
  ++group.num_done;
  return exchange;
}

// Notes that one end of a transfer has come to it; `end` has its memory.
std::shared_ptr<Transfer> Meet(Group& group, int from, int to, const Transfer& end)
    REQUIRES(mutex) {
  std::deque<std::shared_ptr<Transfer>>& waiting = group.transfers[{from, to}];
  const bool sends = end.send != nullptr;
  if (waiting.empty() || (waiting.front()->send != nullptr) == sends) {
    waiting.push_back(std::make_shared<Transfer>(end));
    return waiting.back();
  }
  const std::shared_ptr<Transfer> transfer = waiting.front();
  waiting.pop_front();
  if (transfer->bytes != end.bytes) {
    group.error = NcclResult::kInvalidUsage;
    return transfer;
  }
  (sends ? std::memcpy(transfer->receive, end.send, end.bytes)
         : std::memcpy(end.receive, transfer->send, end.bytes));
  transfer->done = true;
  return transfer;
}

// Puts an exchange into the stream. `arrive` notes that the stream has come to it, and returns its
// state.
template <typename Arrive>
NcclResult Enqueue(NcclComm comm, cudaStream_t stream, Arrive arrive) {
  emulation::EnqueueOperation(
      [comm, arrive]() -> emulation::Operation {
        return {.go_on = [comm, arrive, exchange = decltype(arrive())()]() mutable {
          const MutexLock lock(mutex);
          if (comm->group->error != NcclResult::kSuccess) return true;
          if (!exchange) exchange = arrive();
          return exchange->done || comm->group->error != NcclResult::kSuccess;
        }};
      },
      stream);
  return NcclResult::kSuccess;
}

size_t SizeOf(size_t count, NcclType type) {
  return count * (type == NcclType::kFloat32 ? sizeof(float) : 1);
}

NcclResult AllGather(const void* send, void* receive, size_t count, NcclType type, NcclComm comm,
                     cudaStream_t stream) {
  const Exchange::Part part = {send, receive, SizeOf(count, type)};
  return Enqueue(comm, stream, [comm, part]() REQUIRES(mutex) { return Arrive(*comm, part); });
}

NcclResult Send(const void* data, size_t count, NcclType type, int to, NcclComm comm,
                cudaStream_t stream) {
  const Transfer end = {.send = data, .bytes = SizeOf(count, type)};
  return Enqueue(comm, stream, [comm, to, end]() REQUIRES(mutex) {
    return Meet(*comm->group, comm->rank, to, end);
  });
}

NcclResult Receive(void* data, size_t count, NcclType type, int from, NcclComm comm,
                   cudaStream_t stream) {
  const Transfer end = {.receive = data, .bytes = SizeOf(count, type)};
  return Enqueue(comm, stream, [comm, from, end]() REQUIRES(mutex) {
    return Meet(*comm->group, from, comm->rank, end);
  });
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
