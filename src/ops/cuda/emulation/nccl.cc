// The emulated NCCL, for ranks that are threads of this process. An exchange is done once the
// streams of all ranks have come to it: until then each stream waits, and other threads must be
// able to go on.
#include "ops/cuda/nccl.h"

#include <cstring>
#include <deque>
#include <map>
#include <memory>
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

Mutex mutex;

struct Group {
  int joined GUARDED_BY(mutex) = 0;
  NcclResult error GUARDED_BY(mutex) = NcclResult::kSuccess;
  // Exchanges to which not all ranks have come, the oldest first.
  std::deque<std::shared_ptr<Exchange>> open GUARDED_BY(mutex);
  uint64_t num_done GUARDED_BY(mutex) = 0;
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

NcclResult AllGather(const void* send, void* receive, size_t count, NcclType type, NcclComm comm,
                     cudaStream_t stream) {
  const size_t bytes = count * (type == NcclType::kFloat32 ? sizeof(float) : 1);
  const Exchange::Part part = {send, receive, bytes};
  emulation::EnqueueOperation(
      [comm, part]() -> emulation::Operation {
        return {.go_on = [comm, part, exchange = std::shared_ptr<Exchange>()]() mutable {
          const MutexLock lock(mutex);
          if (comm->group->error != NcclResult::kSuccess) return true;
          if (!exchange) exchange = Arrive(*comm, part);
          return exchange->done || comm->group->error != NcclResult::kSuccess;
        }};
      },
      stream);
  return NcclResult::kSuccess;
}

}  // namespace

Result<Nccl> OpenNccl() {
  return Nccl{.get_unique_id = &GetUniqueId,
              .comm_init_rank = &InitRank,
              .comm_destroy = &Destroy,
              .comm_abort = &Abort,
              .comm_get_async_error = &GetAsyncError,
              .all_gather = &AllGather};
}

}  // namespace tokamak::cuda
