// TMA with tensor maps. A load reads global memory when it lands. A store reads shared memory when
// it is issued or when its read is waited for, as drawn. Then it writes at once or when its
// completion is waited for.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <span>
#include <utility>
#include <vector>

#include "ops/cuda/emulation/capability.h"
#include "ops/cuda/emulation/choice.h"
#include "ops/cuda/emulation/machine.h"
#include "ops/cuda/emulation/primitives.h"
#include "ops/cuda/emulation/tensor_map.h"

namespace tokamak::cuda::emulation {
namespace {

// A box, with the map as it was when the copy was issued.
struct Box {
  TensorMap map;
  Coordinates at;
};

struct BoxStore {
  Box box;
  const void* shared;
  std::vector<std::byte> bytes;        // empty: not read yet
  bool is_late;                        // writes when its completion is waited for
  sanitizers::Context reader, writer;  // two, because a thread may wait only for the read

  void Read() {
    if (!bytes.empty()) return;
    sanitizers::NoteRead(reader, shared, box.map.BoxBytes());
    bytes = ReadSwizzled(box.map, shared);
    if (!is_late) Write();
  }
  void Write() const { WriteBox(box.map, box.at, bytes, writer); }
  // Writes, unless Read has, and ends the store.
  void Finish(Grid& grid) const {
    if (is_late) Write();
    EndContext(grid, reader);
    EndContext(grid, writer);
  }
};

struct StoreGroup {
  std::vector<BoxStore> stores;
  bool has_read = false;  // and the thread has waited for it
};

Box MakeBox(const char* what, const CUtensorMap* map, const int* at, int rank, const void* shared) {
  Box box = {};
  RequireHopper(what);
  CheckAligned(what, map, 64);
  CheckAligned(what, shared, 128);
  if (!ReadTensorMap(*map, box.map)) Fail(fmt::format("{}: no tensor map", what));
  if (box.map.rank != rank) {
    Fail(fmt::format("{}: {} coordinates for a tensor of {} dimensions", what, rank, box.map.rank));
  }
  if (at[0] * box.map.element_bytes % 16 != 0) {  // an H200 reports an illegal instruction
    Fail(fmt::format("{}: a box begins at element {} of a row, which is no multiple of 16 bytes",
                     what, at[0]));
  }
  std::copy_n(at, rank, box.at.begin());
  return box;
}

}  // namespace

struct BoxStores {
  std::vector<BoxStore> open;  // in no group yet
  std::vector<StoreGroup> groups;
};

namespace {

BoxStores& StoresOfThread() {
  Thread& thread = CurrentThread();
  if (thread.stores == nullptr) thread.stores = std::make_shared<BoxStores>();
  return *thread.stores;
}

// Returns all groups except the last `pending`, which may stay under way.
std::span<StoreGroup> GroupsToWaitFor(BoxStores& stores, int pending) {
  const auto count = std::max<ptrdiff_t>(std::ssize(stores.groups) - pending, 0);
  return std::span(stores.groups).first(static_cast<size_t>(count));
}

}  // namespace

void EndStores(const Thread& thread) {
  BoxStores& stores = *thread.stores;
  const auto has_read = [](const StoreGroup& group) { return group.has_read; };
  if (!stores.open.empty() || !std::all_of(stores.groups.begin(), stores.groups.end(), has_read)) {
    Fail(
        "a thread ends while its TMA stores may still read shared memory: CommitStores and "
        "WaitForStoreReads<0> are missing");
  }
  for (StoreGroup& group : stores.groups) {
    for (BoxStore& store : group.stores) {
      LandLate([store = std::move(store), grid = thread.cta->grid] { store.Finish(*grid); });
    }
  }
}

void LoadBox(void* shared, const CUtensorMap* map, const int* at, int rank, uint64_t* barrier) {
  const InMachine in;
  const Box box = MakeBox("a TMA load", map, at, rank, shared);
  LandByDraw(shared, box.map.BoxBytes(), barrier, [=](sanitizers::Context context) {
    WriteSwizzled(box.map, shared, ReadBox(box.map, box.at, context));
  });
}

void LoadBoxToCtas(void* shared, const CUtensorMap* map, const int* at, int rank, uint64_t* barrier,
                   uint16_t ctas) {
  for (uint16_t rest = ctas; rest != 0; rest &= static_cast<uint16_t>(rest - 1)) {
    const int cta = std::countr_zero(rest);
    LoadBox(MapShared(shared, cta), map, at, rank, static_cast<uint64_t*>(MapShared(barrier, cta)));
  }
}

void StoreBox(const CUtensorMap* map, const int* at, int rank, const void* shared) {
  const InMachine in;
  if (std::any_of(at, at + rank, [](int x) { return x < 0; })) {  // illegal too
    Fail("a TMA store: a box begins at a negative coordinate");
  }
  const sanitizers::Context issuer = CurrentThread().actor.Fenced();
  BoxStore store = {.box = MakeBox("a TMA store", map, at, rank, shared),
                    .shared = shared,
                    .bytes = {},
                    .is_late = Choose(2) != 0,
                    .reader = sanitizers::Fork(issuer),
                    .writer = sanitizers::Fork(issuer)};
  if (Choose(2) == 0) store.Read();
  StoresOfThread().open.push_back(std::move(store));
}

void CommitStores() {
  const InMachine in;
  BoxStores& stores = StoresOfThread();
  stores.groups.push_back({.stores = std::exchange(stores.open, {})});
}

void WaitForStoreReads(int pending) {
  const InMachine in;
  for (StoreGroup& group : GroupsToWaitFor(StoresOfThread(), pending)) {
    for (BoxStore& store : group.stores) {
      store.Read();
      sanitizers::Order(store.reader, CurrentThread().actor);
    }
    group.has_read = true;
  }
}

void WaitForStores(int pending) {
  const InMachine in;
  WaitForStoreReads(pending);
  BoxStores& stores = StoresOfThread();
  const auto done = GroupsToWaitFor(stores, pending);
  Thread& thread = CurrentThread();
  for (const StoreGroup& group : done) {
    for (const BoxStore& store : group.stores) {
      store.Finish(*thread.cta->grid);
      sanitizers::Order(store.writer, thread.actor);
    }
  }
  stores.groups.erase(stores.groups.begin(), stores.groups.begin() + std::ssize(done));
}

void PrefetchMap(const CUtensorMap* map) {
  TensorMap read;
  if (!ReadTensorMap(*map, read)) Fail("prefetch.tensormap: no tensor map");
}

}  // namespace tokamak::cuda::emulation
