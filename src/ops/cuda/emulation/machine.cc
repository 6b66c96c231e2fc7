#include "ops/cuda/emulation/machine.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <boost/context/fiber.hpp>
#include <boost/context/preallocated.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <utility>

#include "base/check.h"
#include "ops/cuda/emulation/choice.h"
#include "ops/cuda/emulation/memory_trace.h"
#include "ops/cuda/emulation/primitives.h"
#include "ops/cuda/emulation/sanitizers.h"

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace tokamak::cuda::emulation {
namespace {

namespace context = boost::context;

constexpr size_t kStackBytes = 256 << 10;
constexpr size_t kGuardBytes = 4096;
// The tops of stacks are shifted against each other. Otherwise equal low bits of their addresses
// would make all of them compete for a few sets of the cache.
constexpr size_t kColors = 64;
constexpr size_t kColorBytes = 9 * 64;

// Frees nothing: fibers, and so their stacks, are used again until the process ends.
struct KeptStack {
  void deallocate(context::stack_context&) {}
};

}  // namespace

// A stack with what runs on it. One OS thread runs many fibers.
struct alignas(64) Fiber {
  context::fiber rest;  // where it continues; empty while it runs
  const std::byte* bottom = nullptr;
  size_t bytes = 0;
  void* fake_stack = nullptr;  // kept for the address sanitizer
};

namespace {

Fiber host;                   // the stack that called into the emulator
sanitizers::Context machine;  // the context in which the emulator acts
Fiber* leaving = nullptr;     // the fiber that ran before the present one
Fiber* entering = nullptr;    // the present one

// Every fiber calls this first when it begins or resumes.
void FinishSwitch(context::fiber before) {
  const sanitizers::Stack left = sanitizers::FinishSwitch(entering->fake_stack);
  if (leaving == &host) {  // only the sanitizer knows the host's stack
    host.bottom = static_cast<const std::byte*>(left.bottom);
    host.bytes = left.bytes;
  }
  leaving->rest = std::move(before);
}

// Makes a fiber that will run body(), which must never return.
Fiber* MakeFiber(void (*body)()) {
  static size_t number = 0;
  void* const memory = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK_MSG(memory != MAP_FAILED, "no memory for the stack of another CUDA thread");
  CHECK(::mprotect(memory, kGuardBytes, PROT_NONE) == 0);
  // The Fiber lies directly above its stack, mostly in the same page.
  std::byte* const top = static_cast<std::byte*>(memory) + kStackBytes -
                         number++ % kColors * kColorBytes - sizeof(Fiber);
  auto* const fiber = new (top) Fiber;
  fiber->bottom = static_cast<std::byte*>(memory) + kGuardBytes;
  fiber->bytes = static_cast<size_t>(top - fiber->bottom);
  context::stack_context stack;
  stack.sp = top;
  stack.size = fiber->bytes;
  fiber->rest =
      context::fiber(std::allocator_arg, context::preallocated(stack.sp, stack.size, stack),
                     KeptStack(), [body](context::fiber&& before) {
                       FinishSwitch(std::move(before));
                       body();
                       return context::fiber();
                     });
  return fiber;
}

// Leaves the running fiber `from` and runs `to`. Returns when something switches back to `from`.
// Inlined, because the processor mispredicts a return that follows a switch.
[[gnu::always_inline]] inline void SwitchFiber(Fiber* from, Fiber* to) {
  leaving = from;
  entering = to;
  sanitizers::StartSwitch(&leaving->fake_stack, entering->bottom, entering->bytes);
  FinishSwitch(std::move(entering->rest).resume());
}

// A thread that waits for a counter in memory.
struct Poller {
  Thread* thread;
  const uint32_t* counter;
  uint32_t value;
};

std::vector<Warp*> ready;       // warps with threads that can go on
Warp* running = nullptr;        // the warp whose thread was picked last
std::vector<Thread*> sleeping;  // until the host runs the kernel again
std::vector<Poller> pollers;
std::vector<Fiber*> idle;   // fibers without a thread
Thread* current = nullptr;  // null: the host

std::string Describe(uint3 index) { return fmt::format("({}, {}, {})", index.x, index.y, index.z); }

// Returns an address in the form that addr2line and gdb take: "libtokamak_cuda.so+0x1234".
std::string Place(const void* address) {
  Dl_info info = {};
  if (::dladdr(address, &info) == 0) return fmt::format("{}", address);
  const std::string_view file = info.dli_fname;
  return fmt::format("{}+{:#x}", file.substr(file.rfind('/') + 1),
                     static_cast<const char*>(address) - static_cast<const char*>(info.dli_fbase));
}

[[noreturn]] void Stop(const std::string& what) {
  std::fprintf(stderr, "emulation: %s\n", what.c_str());
  std::abort();
}

void Wake(Thread& thread) {
  Warp& warp = *thread.warp;
  thread.waits_for = nullptr;
  if (warp.ready.empty()) {
    warp.place = ready.size();
    ready.push_back(&warp);
  }
  warp.ready.push_back(&thread);
}

// Wakes the threads whose counter has reached its value. Returns false if there are none.
bool WakePollers() {
  const size_t before = pollers.size();
  std::erase_if(pollers, [](const Poller& poller) {
    const bool reached = std::atomic_ref<const uint32_t>(*poller.counter).load() >= poller.value;
    if (reached) Wake(*poller.thread);
    return reached;
  });
  return pollers.size() < before;
}

// Takes one of the threads that can go on; returns null if there is none. Mostly picks a lane of
// the same warp as before, because the stacks of that warp are in the caches.
Thread* Pick() {
  constexpr uint64_t kStay = 16;
  while (ready.empty()) {
    if (!LandLateCopy() && !WakePollers() && !WakePaused()) return nullptr;
  }
  if (running == nullptr || running->ready.empty() || Choose(kStay) == 0) {
    running = ready[Choose(ready.size())];
  }
  std::vector<Thread*>& lanes = running->ready;
  std::swap(lanes[Choose(lanes.size())], lanes.back());
  Thread* const thread = lanes.back();
  lanes.pop_back();
  if (lanes.empty()) {
    ready[running->place] = ready.back();
    ready[running->place]->place = running->place;
    ready.pop_back();
  }
  return thread;
}

void RunThreads();

// Makes `thread` the current one and returns its fiber.
Fiber* Enter(Thread& thread) {
  current = &thread;
  threadIdx = thread.index;
  blockIdx = thread.cta->index;
  const KernelLaunch& launch = thread.cta->grid->launch();
  gridDim = launch.grid;
  blockDim = launch.block;
  if (thread.fiber != nullptr) return thread.fiber;
  if (idle.empty()) {
    thread.fiber = MakeFiber(&RunThreads);
  } else {
    thread.fiber = idle.back();
    idle.pop_back();
  }
  return thread.fiber;
}

Fiber* EnterHost() {
  current = nullptr;
  return &host;
}

// Notes what the current thread waits for, before somebody may wake it.
void NoteWait(std::string (*what)(const Thread&), const void* at) {
  Thread& thread = *current;
  thread.waits_for = what;
  thread.waits_at = at;
}

// Lets others run until the current thread has been woken and picked.
[[gnu::always_inline]] inline void Yield() {
  Thread& thread = *current;
  Thread* const next = Pick();
  if (next == &thread) return;
  SwitchFiber(thread.fiber, next != nullptr ? Enter(*next) : EnterHost());
}

// Notes that the thread has arrived; it goes on once the barrier is open.
void Arrive(Barrier& barrier, Thread& thread) {
  barrier.clocks.Release(thread.actor, barrier.arrived++ == 0);
  barrier.waiting.push_back(&thread);
}

void Open(Barrier& barrier) {
  for (Thread* thread : barrier.waiting) {
    barrier.clocks.Acquire(thread->actor);
    thread->result = barrier.num_true;
    Wake(*thread);
  }
  barrier.waiting.clear();
  barrier.arrived = barrier.num_true = 0;
}

bool IsComplete(const Barrier& barrier, const Cta& cta) {
  return barrier.arrived > 0 &&
         barrier.arrived >= (barrier.count == 0 ? cta.running : barrier.count);
}

// Ends a thread, and opens the barriers that waited for it alone.
void End(Thread& thread) {
  if (thread.stores != nullptr) EndStores(thread);
  thread.ended = true;
  thread.fiber = nullptr;
  Cta& cta = *thread.cta;
  Cluster& cluster = *cta.cluster;
  --cta.running;
  --cluster.running;
  if (cta.running == 0) {
    CheckProductsAreDone(cta);
    MemoryTrace::NoteEnd(cta);
  }
  if (cluster.barrier.arrived > 0 && cluster.barrier.arrived >= cluster.running) {
    Open(cluster.barrier);
  }
  for (Barrier& barrier : cta.barriers) {
    if (barrier.count == 0 && IsComplete(barrier, cta)) Open(barrier);
  }
}

void RunThread(Thread& thread) {
  sanitizers::ForgetStack();
  thread.actor.context = sanitizers::BeginContext();
  sanitizers::Enter(thread.actor.context);
  thread.cta->grid->launch().thread();
  sanitizers::Enter(machine);
  Grid& grid = *thread.cta->grid;
  EndContext(grid, thread.actor.context);
  thread.actor.End();
  if (thread.copies != nullptr) thread.copies->noted.Release(grid.ended());
}

// The body of every fiber: runs one thread after the other.
void RunThreads() {
  for (;;) {
    Thread& thread = *current;
    Fiber* const mine = thread.fiber;
    RunThread(thread);
    End(thread);
    // The host clears up after the last thread of a cluster.
    Thread* const next = thread.cta->cluster->running == 0 ? nullptr : Pick();
    if (next != nullptr && next->fiber == nullptr) {
      next->fiber = mine;
      Enter(*next);
      continue;
    }
    idle.push_back(mine);
    SwitchFiber(mine, next != nullptr ? Enter(*next) : EnterHost());
  }
}

std::string DescribeBarrier(const Thread& thread) {
  const Barrier& barrier = thread.cta->barriers[static_cast<size_t>(thread.barrier)];
  const int count = barrier.count == 0 ? thread.cta->running : barrier.count;
  return fmt::format("barrier {}, to which {} of {} have come", thread.barrier, barrier.arrived,
                     count);
}

std::string DescribeMeeting(const Thread& thread) {
  for (const auto& meeting : thread.warp->meetings) {
    if ((meeting->arrived >> thread.number % kWarpLanes & 1) == 0 || meeting->unread > 0) continue;
    return fmt::format("{} with mask {:08x}, of which {:08x} have come", meeting->what,
                       meeting->mask, meeting->arrived);
  }
  return "the lanes of its warp";
}

std::string DescribeCluster(const Thread& thread) {
  const Cluster& cluster = *thread.cta->cluster;
  return fmt::format("the cluster's barrier, to which {} of {} have come", cluster.barrier.arrived,
                     cluster.running);
}

std::string DescribePoll(const Thread& thread) {
  const auto poller = std::find_if(pollers.begin(), pollers.end(),
                                   [&](const Poller& p) { return p.thread == &thread; });
  return fmt::format("a counter to be {}; it is {}", poller->value, *poller->counter);
}

std::string DescribeSleep(const Thread&) { return "time to pass (__nanosleep)"; }

// "0-31, 64" of an ascending list.
std::string Ranges(const std::vector<unsigned>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", numbers[i]);
    if (end - i > 1) text += fmt::format("-{}", numbers[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace

Grid::Grid(KernelLaunch launch) : launch_(std::move(launch)) {
  const dim3& grid = launch_.grid;
  const size_t ctas = size_t{grid.x} * grid.y * grid.z;
  order_.resize(ctas / launch_.cluster);
  for (size_t i = 0; i < order_.size(); ++i)
    order_[i] = static_cast<uint32_t>(order_.size() - 1 - i);
  for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[Choose(i)]);
  max_resident_ = launch_.cooperative ? ctas : Choose(4) == 0 ? 2 + Choose(3) : 1;
}

void Grid::StartCluster(uint64_t number) {
  const auto cluster = std::make_shared<Cluster>();
  for (unsigned rank = 0; rank < launch_.cluster; ++rank) {
    StartCta(number * launch_.cluster + rank, cluster);
  }
}

void Grid::StartCta(uint64_t number, const std::shared_ptr<Cluster>& cluster) {
  const dim3& grid = launch_.grid;
  const dim3& block = launch_.block;
  Cta& cta = *resident_.emplace_back(std::make_unique<Cta>());
  cta.grid = this;
  cta.cluster = cluster;
  cluster->ctas.push_back(&cta);
  cta.index = {static_cast<unsigned>(number % grid.x),
               static_cast<unsigned>(number / grid.x % grid.y),
               static_cast<unsigned>(number / grid.x / grid.y)};
  cta.threads.resize(size_t{block.x} * block.y * block.z);
  cta.running = static_cast<int>(cta.threads.size());
  cluster->running += cta.running;
  cta.warps.resize((cta.threads.size() + kWarpLanes - 1) / kWarpLanes);
  unsigned next = 0;
  for (Thread& thread : cta.threads) {
    thread.cta = &cta;
    thread.warp = &cta.warps[next / kWarpLanes];
    thread.number = next++;
    thread.index = {thread.number % block.x, thread.number / block.x % block.y,
                    thread.number / block.x / block.y};
    Wake(thread);
  }
  AddShared(cta, nullptr, launch_.shared_bytes, 1024);
  MemoryTrace::NoteBegin(cta);
}

void Grid::StartCtas() {
  running = nullptr;
  has_begun_ = true;
  const auto has_ended = [](const auto& cta) { return cta->cluster->running == 0; };
  if (std::any_of(resident_.begin(), resident_.end(), has_ended)) {
    while (LandLateCopy()) {  // before their destinations are destroyed
    }
  }
  std::erase_if(resident_, has_ended);
  while (resident_.size() < max_resident_ && !order_.empty()) {
    const uint32_t number = order_.back();
    order_.pop_back();
    StartCluster(number);
  }
}

bool Grid::Run() {
  const sanitizers::Unrecorded unrecorded;
  machine = sanitizers::CurrentContext();
  for (Thread* thread : std::exchange(sleeping, {})) Wake(*thread);
  for (;;) {
    StartCtas();
    if (resident_.empty()) {
      ended_.Acquire(machine);
      End();
      return true;
    }
    BeginKernelBehind();
    if (Thread* const next = Pick(); next != nullptr) {
      SwitchFiber(&host, Enter(*next));
    } else if (!sleeping.empty()) {
      return false;
    } else {
      Stop("deadlock: no thread of the kernel can go on\n" + Waiting());
    }
  }
}

std::string Grid::Waiting() const {
  std::string text = fmt::format("  the kernel is {}\n", Place(launch_.kernel));
  for (const auto& cta : resident_) {
    std::map<std::string, std::vector<unsigned>> reasons;
    for (const Thread& thread : cta->threads) {
      std::string reason = "have ended";
      if (!thread.ended) {
        reason = thread.waits_for == nullptr
                     ? "can go on"
                     : "wait for " + thread.waits_for(thread) + ", at " + Place(thread.waits_at);
      }
      reasons[reason].push_back(thread.number);
    }
    for (const auto& [reason, numbers] : reasons) {
      text +=
          fmt::format("  CTA {}: threads {} {}\n", Describe(cta->index), Ranges(numbers), reason);
    }
  }
  return text;
}

void Fail(const std::string& what) {
  if (current == nullptr) Stop(what);
  Stop(fmt::format("{}; in thread {} of CTA {} of kernel {}", what, current->number,
                   Describe(current->cta->index), Place(current->cta->grid->launch().kernel)));
}

bool HasThread() { return current != nullptr; }

Thread& CurrentThread() { return *current; }

void WaitForWake(std::string (*what)(const Thread&), const void* at) {
  NoteWait(what, at);
  Yield();
}

void WakeThread(Thread& thread) { Wake(thread); }

InMachine::InMachine() : In(machine) {}

void EndContext(Grid& grid, sanitizers::Context context) {
  grid.ended().Release(context);
  sanitizers::EndContext(context);
}

unsigned Lane() { return current->number % kWarpLanes; }

int SyncCta(int number, int count, bool predicate) {
  const InMachine in;
  MemoryTrace::NoteMeeting();
  Thread& thread = *current;
  Cta& cta = *thread.cta;
  Barrier& barrier = cta.barriers[static_cast<size_t>(number)];
  if (barrier.arrived > 0 && barrier.count != count) {
    Fail(fmt::format("threads wait for barrier {} with different counts, {} and {}", number,
                     barrier.count, count));
  }
  barrier.count = count;
  Arrive(barrier, thread);
  barrier.num_true += static_cast<int>(predicate);
  thread.barrier = number;
  NoteWait(&DescribeBarrier, __builtin_return_address(0));
  if (IsComplete(barrier, cta)) Open(barrier);  // even the last to arrive then waits to be picked
  Yield();
  return thread.result;
}

const uint64_t* Exchange(unsigned mask, uint64_t value, const char* what) {
  const InMachine in;
  Thread& thread = *current;
  const unsigned lane = Lane();
  if ((mask >> lane & 1) == 0) {
    Fail(fmt::format("{} with mask {:08x}, which leaves the caller out", what, mask));
  }
  if (mask == ~0u) MemoryTrace::NoteMeeting();
  auto& meetings = thread.warp->meetings;
  Meeting* meeting = nullptr;
  Meeting* unused = nullptr;
  for (const auto& known : meetings) {
    if (known->unread == 0 && known->arrived == 0) unused = known.get();
    if (known->unread > 0 || known->mask != mask || known->arrived == 0) continue;
    if ((known->arrived >> lane & 1) == 0) meeting = known.get();
  }
  if (meeting == nullptr) {
    meeting = unused != nullptr ? unused : meetings.emplace_back(std::make_unique<Meeting>()).get();
    meeting->mask = mask;
    meeting->what = what;
  } else if (meeting->what != what && std::strcmp(meeting->what, what) != 0) {
    Fail(fmt::format("lanes of one warp meet in {} and in {}", meeting->what, what));
  }
  meeting->values[lane] = value;
  const bool orders_memory = sanitizers::kThread && std::strcmp(what, "__syncwarp") == 0;
  if (orders_memory) meeting->clocks.Release(thread.actor, meeting->arrived == 0);
  meeting->arrived |= 1u << lane;
  meeting->waiting.push_back(&thread);
  NoteWait(&DescribeMeeting, __builtin_return_address(0));
  if (meeting->arrived == mask) {
    meeting->unread = std::popcount(mask);
    for (Thread* waiting : meeting->waiting) {
      if (orders_memory) meeting->clocks.Acquire(waiting->actor);
      Wake(*waiting);
    }
    meeting->waiting.clear();
  }
  Yield();
  if (--meeting->unread == 0) meeting->arrived = 0;
  return meeting->values.data();
}

void Sleep() {
  const InMachine in;
  sleeping.push_back(current);
  NoteWait(&DescribeSleep, __builtin_return_address(0));
  Yield();
}

void SyncCluster() {
  const InMachine in;
  MemoryTrace::NoteMeeting();
  Cluster& cluster = *current->cta->cluster;
  Arrive(cluster.barrier, *current);
  NoteWait(&DescribeCluster, __builtin_return_address(0));
  if (cluster.barrier.arrived >= cluster.running) Open(cluster.barrier);
  Yield();
}

int ClusterRank() {
  const std::vector<Cta*>& ctas = current->cta->cluster->ctas;
  return static_cast<int>(std::find(ctas.begin(), ctas.end(), current->cta) - ctas.begin());
}

void PollCounter(const uint32_t* counter, uint32_t value) {
  const InMachine in;
  // Goes on as early as the counter allows, or as late as possible: the seed decides.
  if (std::atomic_ref<const uint32_t>(*counter).load() >= value && Choose(2) == 0) return;
  pollers.push_back({.thread = current, .counter = counter, .value = value});
  NoteWait(&DescribePoll, __builtin_return_address(0));
  Yield();
}

}  // namespace tokamak::cuda::emulation
