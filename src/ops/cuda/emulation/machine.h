// The emulated device: CTAs, their threads, and what threads wait for.
//
// Owner: whoever holds the runtime's lock (runtime.cc). All of it belongs to one OS thread at a
// time.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ops/cuda/emulation/sanitizers.h"
#include "ops/cuda/emulation/thread.h"

namespace tokamak::cuda::emulation {

inline constexpr unsigned kWarpLanes = 32;
inline constexpr unsigned kMaxThreads = 1024;       // of a CTA
inline constexpr size_t kDefaultShared = 48 << 10;  // bytes that every kernel may use
inline constexpr int kNumBarriers = 16;

struct BoxStores;  // the TMA stores of a thread (tensor_copies.cc)
struct Cta;
struct Fiber;
struct Warp;
class Grid;

// Ends a context: what was done in it happens before the end of the kernel.
void EndContext(Grid& grid, sanitizers::Context context);

// Copies by cp.async that have not landed.
struct AsyncCopy {
  void* to;
  const void* from;
  int valid;  // bytes; the rest of the 16 are zero
};
struct AsyncCopies {
  std::vector<AsyncCopy> open;  // in no group yet
  std::vector<std::vector<AsyncCopy>> groups;
  std::vector<AsyncCopy> for_barriers;  // all that arrivals at mbarriers waited or wait for
  size_t landed = 0;                    // of those
  sanitizers::Copies noted;
};

struct Thread {
  Cta* cta = nullptr;
  Warp* warp = nullptr;
  Fiber* fiber = nullptr;  // null: has not started, or has ended
  uint3 index = {};
  unsigned number = 0;  // in the CTA
  bool ended = false;
  std::string (*waits_for)(const Thread&) = nullptr;  // null: it can go on
  const void* waits_at = nullptr;                     // where in the code
  int barrier = 0;                                    // the barrier of its last SyncCta
  int result = 0;                                     // what that SyncCta returns
  std::shared_ptr<AsyncCopies> copies;                // null: none so far
  std::shared_ptr<BoxStores> stores;                  // null: none so far
  sanitizers::Actor actor;
};

// A barrier of a CTA at which some threads have arrived.
struct Barrier {
  int count = 0;  // how many it waits for; 0: all that have not ended
  int arrived = 0;
  int num_true = 0;
  std::vector<Thread*> waiting;
  sanitizers::Clocks clocks;
};

// Lanes of a warp that exchange values: they arrive, then each reads what the others brought.
struct Meeting {
  unsigned mask = 0;
  unsigned arrived = 0;
  int unread = 0;  // lanes that have not read the values yet
  const char* what = nullptr;
  std::array<uint64_t, kWarpLanes> values;
  std::vector<Thread*> waiting;
  sanitizers::Clocks clocks;
};

struct WarpProducts;  // what wgmma does for a warp (warpgroup.cc)

struct Warp {
  std::vector<Thread*> ready;  // lanes that can go on
  size_t place = 0;            // index among the warps that have any
  std::vector<std::unique_ptr<Meeting>> meetings;
  std::shared_ptr<WarpProducts> products;  // null: none so far
};

// Shared memory of a CTA.
struct SharedBlock {
  const void* site = nullptr;  // identifies the declaration; null: dynamic
  size_t bytes = 0;
  uint32_t address = 0;  // in the CTA's shared memory; equal to that of `memory` modulo 1024
  std::unique_ptr<void, void (*)(void*)> memory;
  std::vector<std::byte> published;  // what wgmma sees; empty: only 0xff
};

// CTAs that run at the same time and reach each other's shared memory.
struct Cluster {
  std::vector<Cta*> ctas;  // by rank
  int running = 0;         // threads that have not ended
  Barrier barrier;
};

struct Cta {
  Grid* grid = nullptr;
  std::shared_ptr<Cluster> cluster;
  uint3 index = {};
  int running = 0;         // threads that have not ended
  bool triggered = false;  // has called LaunchDependents
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::array<Barrier, kNumBarriers> barriers;
  std::vector<SharedBlock> shared;
  size_t static_shared_bytes = 0;
};

bool HasThread();  // false: the host runs
Thread& CurrentThread();

// Until the end of the scope, accesses count as those of the emulator, not of the current CUDA
// thread.
class InMachine : sanitizers::In {
 public:
  InMachine();
};

// Suspends the current thread until it is woken. `what` describes what it waits for, `at` is where
// in the code.
void WaitForWake(std::string (*what)(const Thread&), const void* at);
void WakeThread(Thread& thread);

// Gives the CTA memory of exactly this size, so that the address sanitizer sees its end.
void* AddShared(Cta& cta, const void* site, size_t bytes, size_t alignment);

// The place of an address in a CTA's shared memory. `block` is null if it lies elsewhere.
struct SharedPlace {
  SharedBlock* block = nullptr;
  size_t offset = 0;
};
SharedPlace FindShared(Cta& cta, const void* address);

// Whether the address lies in an allocation, of the device or of pinned memory.
bool IsGlobal(const void* memory);

// Lets wgmma see these bytes of the CTA's shared memory: after TMA has written them, or by a
// fence.proxy.async.
void Publish(Cta& cta, const void* shared, size_t bytes);

// Ends the process if the CTA's threads have ended before their wgmma was done.
void CheckProductsAreDone(const Cta& cta);

// Lands a copy of `bytes` bytes at once or as late as possible, as drawn; until then its
// destination is filled with 0xff. Then tells the mbarrier that the bytes have come. `copy` gets
// the context in which it reads.
void LandByDraw(void* shared, size_t bytes, uint64_t* barrier,
                std::function<void(sanitizers::Context)> copy);
// Lands a copy as late as possible.
void LandLate(std::function<void()> copy);
// Lands one of the copies that were postponed. Returns false if there are none.
bool LandLateCopy();

// Call it when a thread ends: its TMA stores land as late as possible. Ends the process if they may
// still read shared memory.
void EndStores(const Thread& thread);

// Wakes the threads that paused to let the next kernel go as far as it can. False if there are
// none.
bool WakePaused();

// A kernel's threads.
class Grid {
 public:
  explicit Grid(KernelLaunch launch);

  // Runs until all threads have ended; returns false if all remaining threads sleep.
  bool Run();

  const KernelLaunch& launch() const { return launch_; }
  sanitizers::Clock& ended() { return ended_; }  // knows what the contexts that ended have done
  // Describes for people what its threads wait for.
  std::string Waiting() const;

  // Dependent launch (dependent_launch.cc). `next` is behind it in the stream.
  void SetKernelBehind(Grid& next);
  // The kernel behind this one if it has begun, else null.
  Grid* OverlappingKernel() const;
  // Begins the kernel behind this one if it may begin now and the draw says so.
  void BeginKernelBehind();
  // Waits until the kernel ahead has ended.
  void WaitForKernelAhead(const void* at);

 private:
  // Call it when all threads have ended.
  void End();
  void StartCtas();
  void StartCluster(uint64_t number);
  void StartCta(uint64_t number, const std::shared_ptr<Cluster>& cluster);

  const KernelLaunch launch_;
  sanitizers::Clock ended_;
  std::vector<uint32_t> order_;  // of clusters that have not started; the last one is next
  size_t max_resident_ = 0;      // CTAs at a time
  std::vector<std::unique_ptr<Cta>> resident_;

  Grid* ahead_ = nullptr;   // has not ended, and this kernel depends on it
  Grid* behind_ = nullptr;  // depends on this one
  bool begins_behind_early_ = false;
  bool has_begun_ = false;
  bool has_waited_ = false;  // for the kernel ahead
  std::vector<Thread*> waiting_for_ahead_;
};

}  // namespace tokamak::cuda::emulation
