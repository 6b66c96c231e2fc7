#include "ops/cuda/emulation/primitives.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/cuda/emulation/capability.h"
#include "ops/cuda/emulation/choice.h"
#include "ops/cuda/emulation/machine.h"
#include "ops/cuda/emulation/memory_trace.h"
#include "ops/cuda/emulation/tensor_core_arithmetic.h"
#include "quant/e4m3.h"
#include "quant/half.h"

namespace tokamak::cuda::emulation {

const Arithmetic kArithmetic = [] {
  const char* const sums = std::getenv("TOKAMAK_EMULATION_SUMS");
  const bool are_plain = sums != nullptr && std::string_view(sums) == "plain";
  return are_plain ? Arithmetic::kInOrder : Arithmetic::kHopper;
}();

namespace {

constexpr unsigned kAllLanes = 0xffffffff;
constexpr uint64_t kMagic = 0xb57;

// The 64 bits of an mbarrier.
struct BarrierWord {
  uint64_t phase : 1;
  uint64_t expected : 15;  // arrivals in each phase
  uint64_t pending : 15;   // arrivals missing in this phase
  int64_t bytes : 21;      // announced bytes that have not come
  uint64_t magic : 12;
};
static_assert(sizeof(BarrierWord) == sizeof(uint64_t));

std::map<const uint64_t*, std::vector<Thread*>> phase_waiters;
std::vector<std::function<void()>> late_copies;

BarrierWord Load(const uint64_t* barrier) {
  BarrierWord word = {};
  std::memcpy(&word, barrier, sizeof(word));
  if (word.magic != kMagic) Fail("an mbarrier that has not been initialized");
  return word;
}

// Returns the clocks that order what threads did before they arrived in a phase before what waiting
// threads do afterwards. They lie inside the barrier's word, so they are forgotten with it.
sanitizers::Clocks& ClocksOf(uint64_t* barrier, uint64_t phase) {
  auto* const places = reinterpret_cast<std::byte*>(barrier) + 1;
  return *reinterpret_cast<sanitizers::Clocks*>(places + (phase & 1) * sizeof(sanitizers::Clocks));
}

// Stores the word. If nothing is missing any more, ends the phase first.
void Store(uint64_t* barrier, BarrierWord word) {
  if (word.pending == 0 && word.bytes == 0) {
    word.pending = word.expected;
    word.phase ^= 1;
    if (const auto found = phase_waiters.find(barrier); found != phase_waiters.end()) {
      for (Thread* thread : found->second) WakeThread(*thread);
      phase_waiters.erase(found);
    }
  }
  std::memcpy(barrier, &word, sizeof(word));
}

void Land(const AsyncCopy& copy) {
  std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.valid));
  std::memset(static_cast<std::byte*>(copy.to) + copy.valid, 0,
              static_cast<size_t>(16 - copy.valid));
}

// Lands the copies before `end` that arrivals at mbarriers wait for.
void LandForBarriers(AsyncCopies& copies, size_t end) {
  for (; copies.landed < end; ++copies.landed) Land(copies.for_barriers[copies.landed]);
}

AsyncCopies& CopiesOfThread() {
  Thread& thread = CurrentThread();
  if (thread.copies == nullptr) thread.copies = std::make_shared<AsyncCopies>();
  return *thread.copies;
}

// Counts an arrival, and bytes that the phase then waits for.
void CountArrival(uint64_t* barrier, int bytes) {
  BarrierWord word = Load(barrier);
  if (word.pending == 0) Fail("more arrivals at an mbarrier than its phase expects");
  word.bytes += bytes;
  --word.pending;
  Store(barrier, word);
}

std::string DescribePhase(const Thread&) { return "a phase of an mbarrier"; }

// Returns the contents of two registers of every lane.
std::array<std::array<uint32_t, 2>, kWarpLanes> Gather(uint32_t first, uint32_t second,
                                                       const char* what) {
  const uint64_t* const words = Exchange(kAllLanes, first | uint64_t{second} << 32, what);
  std::array<std::array<uint32_t, 2>, kWarpLanes> registers;
  std::memcpy(registers.data(), words, sizeof(registers));
  return registers;
}

// Each lane computes its own sums: rows g and g + 8, columns 2t and 2t + 1.
void Multiply(ElementType type, const char* what, float* sums, const uint32_t* a,
              const uint32_t* b) {
  constexpr size_t kRegisters = 8;  // along k
  const auto a_low = Gather(a[0], a[1], what);
  const auto a_high = Gather(a[2], a[3], what);
  const auto b_both = Gather(b[0], b[1], what);
  const size_t group = Lane() / 4;
  const size_t column = Lane() % 4 * 2;
  uint32_t rows[2][kRegisters];
  uint32_t columns[2][kRegisters];
  for (size_t i = 0; i < kRegisters; ++i) {
    const size_t half = i / 4, place = i % 4;
    for (size_t j = 0; j < 2; ++j) {
      rows[j][i] = (half == 0 ? a_low : a_high)[group * 4 + place][j];
      columns[j][i] = b_both[(column + j) * 4 + place][half];
    }
  }
  const ptrdiff_t k = static_cast<ptrdiff_t>(sizeof(rows[0])) / (Is8Bit(type) ? 1 : 2);
  MultiplyAccumulate(Instruction::kMma, kArithmetic, {2, 2, static_cast<int>(k)},
                     {.elements = rows, .type = type, .row_stride = k},
                     {.elements = columns, .type = type, .row_stride = 1, .column_stride = k},
                     sums);
}

}  // namespace

void CheckAligned(const char* what, const void* address, uintptr_t alignment) {
  if (reinterpret_cast<uintptr_t>(address) % alignment == 0) return;
  Fail(fmt::format("{}: the address {} is not aligned to {} bytes", what, address, alignment));
}

void LandByDraw(void* shared, size_t bytes, uint64_t* barrier,
                std::function<void(sanitizers::Context)> copy) {
  Thread& issuer = CurrentThread();
  Cta* const cta = issuer.cta;
  const sanitizers::Context context = sanitizers::Fork(issuer.actor.Fenced());
  // The thread that made the barrier needs no fence.proxy.async for it.
  sanitizers::NoteAtomic(issuer.actor.context, barrier);
  const auto land = [=, copy = std::move(copy)] {
    sanitizers::NoteWrite(context, shared, bytes);
    copy(context);
    Publish(*cta, shared, bytes);
    BarrierWord word = Load(barrier);
    ClocksOf(barrier, word.phase).Release(context);
    word.bytes -= static_cast<int64_t>(bytes);
    Store(barrier, word);
    EndContext(*cta->grid, context);
  };
  if (Choose(2) == 0) {
    land();
    return;
  }
  std::memset(shared, 0xff, bytes);
  Publish(*cta, shared, bytes);
  LandLate(land);
}

void LandLate(std::function<void()> copy) { late_copies.push_back(std::move(copy)); }

bool LandLateCopy() {
  if (late_copies.empty()) return false;
  std::swap(late_copies[Choose(late_copies.size())], late_copies.back());
  const std::function<void()> copy = std::move(late_copies.back());
  late_copies.pop_back();
  copy();
  return true;
}

void SyncNamed(int id, int count) {
  if (id < 1 || id >= kNumBarriers || count < 1 || count % static_cast<int>(kWarpLanes) != 0) {
    Fail(fmt::format("barrier {} for {} threads: barriers are 1 to {}, counts are whole warps", id,
                     count, kNumBarriers - 1));
  }
  SyncCta(id, count, false);
}

void CopyAsync16(void* shared, const void* global, int valid) {
  const InMachine in;
  CheckAligned("cp.async", shared);
  CheckAligned("cp.async", global);
  MemoryTrace::NoteAccess(__builtin_return_address(0), global, static_cast<size_t>(valid), false);
  MemoryTrace::NoteAccess(__builtin_return_address(0), shared, 16, true);
  const AsyncCopy copy = {.to = shared, .from = global, .valid = valid};
  AsyncCopies& copies = CopiesOfThread();
  copies.noted.Copy(CurrentThread().actor.context, shared, 16, global, static_cast<size_t>(valid));
  if (Choose(2) == 0) {
    Land(copy);
    return;
  }
  std::memset(shared, 0xff, 16);
  copies.open.push_back(copy);
}

void CommitCopies() {
  const InMachine in;
  AsyncCopies& copies = CopiesOfThread();
  copies.groups.push_back(std::exchange(copies.open, {}));
  copies.noted.Commit();
}

void WaitForCopies(int pending) {
  const InMachine in;
  std::vector<std::vector<AsyncCopy>>& groups = CopiesOfThread().groups;
  const auto end = groups.end() - std::min<ptrdiff_t>(pending, std::ssize(groups));
  for (auto group = groups.begin(); group != end; ++group) {
    for (const AsyncCopy& copy : *group) Land(copy);
  }
  groups.erase(groups.begin(), end);
  LandForBarriers(CopiesOfThread(), CopiesOfThread().for_barriers.size());
  CopiesOfThread().noted.Wait(CurrentThread().actor.context, static_cast<size_t>(pending));
}

void InitBarrier(uint64_t* barrier, int count) {
  CheckAligned("mbarrier", barrier, 8);
  const BarrierWord word = {.phase = 0,
                            .expected = static_cast<uint64_t>(count),
                            .pending = static_cast<uint64_t>(count),
                            .bytes = 0,
                            .magic = kMagic};
  sanitizers::NoteWrite(CurrentThread().actor.context, barrier, sizeof(word));
  std::memcpy(barrier, &word, sizeof(word));
}

void Arrive(uint64_t* barrier, int bytes) {
  const InMachine in;
  sanitizers::NoteAtomic(CurrentThread().actor.context, barrier);
  if (bytes > 0) RequireHopper("mbarrier.arrive.expect_tx");
  ClocksOf(barrier, Load(barrier).phase).Release(CurrentThread().actor, false);
  CountArrival(barrier, bytes);
}

void ArriveWhenCopied(uint64_t* barrier) {
  const InMachine in;
  sanitizers::NoteAtomic(CurrentThread().actor.context, barrier);
  AsyncCopies& copies = CopiesOfThread();
  copies.noted.Release(ClocksOf(barrier, Load(barrier).phase));
  const auto wait_for = [&](std::vector<AsyncCopy>& some) {
    copies.for_barriers.insert(copies.for_barriers.end(), some.begin(), some.end());
    some.clear();
  };
  for (std::vector<AsyncCopy>& group : copies.groups) wait_for(group);
  wait_for(copies.open);
  const auto arrive = [all = CurrentThread().copies, end = copies.for_barriers.size(), barrier] {
    LandForBarriers(*all, end);
    CountArrival(barrier, 0);
  };
  if (Choose(2) == 0) {
    arrive();
  } else {
    LandLate(arrive);
  }
}

void WaitForPhase(uint64_t* barrier, uint32_t parity) {
  const InMachine in;
  sanitizers::NoteAtomic(CurrentThread().actor.context, barrier);
  while (Load(barrier).phase == (parity & 1)) {
    phase_waiters[barrier].push_back(&CurrentThread());
    WaitForWake(&DescribePhase, __builtin_return_address(0));
  }
  ClocksOf(barrier, parity).Acquire(CurrentThread().actor);
}

void CopyBulk(void* shared, const void* global, int bytes, uint64_t* barrier) {
  const InMachine in;
  RequireHopper("cp.async.bulk");
  CheckAligned("cp.async.bulk", shared);
  CheckAligned("cp.async.bulk", global);
  if (bytes % 16 != 0) Fail(fmt::format("cp.async.bulk of {} bytes: not a multiple of 16", bytes));
  const auto count = static_cast<size_t>(bytes);
  MemoryTrace::NoteCopy(global, count, false);
  LandByDraw(shared, count, barrier, [=](sanitizers::Context context) {
    sanitizers::NoteRead(context, global, count);
    std::memcpy(shared, global, count);
  });
}

void LoadMatrices(uint32_t* fragments, const void* row, bool transposed) {
  CheckAligned("ldmatrix", row);
  MemoryTrace::NoteAccess(__builtin_return_address(0), row, 16, false);
  const uint64_t* const rows = Exchange(kAllLanes, reinterpret_cast<uintptr_t>(row), "ldmatrix");
  const unsigned lane = Lane();
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    uint16_t elements[2];
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned outer = lane / 4, inner = lane % 4 * 2 + i;
      const uint64_t address = rows[matrix * 8 + (transposed ? inner : outer)];
      const auto* const element =
          reinterpret_cast<const uint16_t*>(address) + (transposed ? outer : inner);
      sanitizers::NoteRead(CurrentThread().actor.context, element, sizeof(*element));
      elements[i] = *element;
    }
    fragments[matrix] = elements[0] | uint32_t{elements[1]} << 16;
  }
}

void StoreMatrices(const uint32_t* fragments, void* row) {
  RequireHopper("stmatrix");
  CheckAligned("stmatrix", row);
  MemoryTrace::NoteAccess(__builtin_return_address(0), row, 16, true);
  const uint64_t* const rows = Exchange(kAllLanes, reinterpret_cast<uintptr_t>(row), "stmatrix");
  const unsigned lane = Lane();
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    uint32_t* const pair = reinterpret_cast<uint32_t*>(rows[matrix * 8 + lane / 4]) + lane % 4;
    sanitizers::NoteWrite(CurrentThread().actor.context, pair, sizeof(*pair));
    std::memcpy(pair, &fragments[matrix], sizeof(*pair));
  }
}

void E4m3ToHalves(uint32_t* halves, uint32_t four) {
  for (int i = 0; i < 4; ++i) {
    const auto code = static_cast<uint8_t>(four >> 8 * i);
    const uint32_t half = (code & 0x7f) == 0x7f ? 0x7fff : FloatToHalf(E4m3ToFloat(code));
    halves[i / 2] = i % 2 == 0 ? half : halves[i / 2] | half << 16;
  }
}

void MultiplyBf16(float* sums, const uint32_t* a, const uint32_t* b) {
  Multiply(ElementType::kBf16, "mma.sync of bf16", sums, a, b);
}
void MultiplyF16(float* sums, const uint32_t* a, const uint32_t* b) {
  Multiply(ElementType::kF16, "mma.sync of f16", sums, a, b);
}
void MultiplyE4m3(float* sums, const uint32_t* a, const uint32_t* b) {
  Multiply(ElementType::kE4m3, "mma.sync of e4m3", sums, a, b);
}

}  // namespace tokamak::cuda::emulation
