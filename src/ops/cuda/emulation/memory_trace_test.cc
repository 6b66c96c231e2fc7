// Tests what the trace counts for patterns of access whose costs are known. This file is compiled
// as traced kernels are.
#include "ops/cuda/emulation/memory_trace.h"

#include <gtest/gtest.h>

#include "ops/cuda/device.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/ptx.h"

namespace tokamak::cuda {
namespace {

using emulation::AccessKind;
using emulation::KernelMemory;
using emulation::MemoryCost;
using emulation::MemoryTrace;

constexpr size_t kBytes = 16 << 10;

// Runs a kernel with one warp on kBytes of memory, and returns what the trace saw.
KernelMemory Trace(void (*kernel)(float*)) {
  void* memory = nullptr;
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&memory, kBytes), cudaSuccess);
  const MemoryTrace trace;
  EXPECT_EQ(LaunchKernel(kernel, 1, kWarp, kBytes, stream, static_cast<float*>(memory)),
            cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(trace.kernels().size(), 1u);
  return trace.kernels().at(reinterpret_cast<const void*>(kernel));
}

void Expect(const KernelMemory& memory, AccessKind kind, uint64_t accesses, uint64_t units,
            uint64_t least) {
  const MemoryCost& cost = memory.costs[static_cast<size_t>(kind)];
  EXPECT_EQ(cost.accesses, accesses);
  EXPECT_EQ(cost.units, units);
  EXPECT_EQ(cost.least, least);
}

using Vector = Four<float>;

__global__ void LoadsNeighboursAndStoresApart(float* memory) {
  memory[threadIdx.x * 8 + 1024] = memory[threadIdx.x];
}
__global__ void LoadsBesideABoundary(float* memory) { memory[0] = memory[threadIdx.x + 1]; }
__global__ void CopiesVectors(float* memory) {
  auto* const vectors = reinterpret_cast<Vector*>(memory);
  const Vector vector = vectors[threadIdx.x];
  vectors[threadIdx.x + 32] = vector;
}
__global__ void StoresHalfOfEachSector(float* memory) {
  reinterpret_cast<uint16_t*>(memory)[threadIdx.x / 8 * 1024 + threadIdx.x % 8] = 1;
}
// Odd lanes leave out every other turn of the loop.
__global__ void LeavesTurnsOut(float* memory) {
  float sum = 0;
  for (unsigned i = 0; i < 4; ++i) {
    if ((i + threadIdx.x) % 2 == 0 || threadIdx.x % 2 == 0) sum += memory[i * 64 + threadIdx.x];
    __syncwarp();
  }
  memory[1024 + threadIdx.x] = sum;
}
template <int kStride>
__global__ void StoresWords(float*) {
  DYNAMIC_SHARED(shared, float);
  shared[threadIdx.x * kStride] = 1;
}
template <int kStride>
__global__ void StoresVectors(float*) {
  DYNAMIC_SHARED(shared, Vector);
  const Vector vector = {{1, 2, 3, 4}};
  shared[threadIdx.x * kStride] = vector;
}
__global__ void StoresStructs(float*) {
  struct Triple {
    float x, y, z;
  };
  DYNAMIC_SHARED(shared, Triple);
  const Triple triple = {1, 2, 3};
  shared[threadIdx.x] = triple;
}
__global__ void AllLoadOneVector(float* memory) {
  DYNAMIC_SHARED(shared, Vector);
  const Vector vector = shared[5];
  memory[threadIdx.x] = vector.values[threadIdx.x % 4];
}
template <int kStride>
__global__ void LoadsMatrices(float* memory) {
  DYNAMIC_SHARED(shared, uint8_t);
  uint32_t fragments[4];
  ptx::LoadMatrices(fragments, shared + threadIdx.x * kStride);
  memory[threadIdx.x] = __uint_as_float(fragments[0]);
}
__global__ void CopiesAsynchronously(float* memory) {
  DYNAMIC_SHARED(shared, uint8_t);
  ptx::CopyAsync16(shared + threadIdx.x * 16, memory + threadIdx.x * 8);
  ptx::CommitCopies();
  ptx::WaitForCopies<0>();
}

TEST(MemoryTrace, NeighboursFillSectors) {
  const KernelMemory memory = Trace(&LoadsNeighboursAndStoresApart);
  Expect(memory, AccessKind::kLoad, 1, 4, 4);
  Expect(memory, AccessKind::kStore, 1, 32, 4);
  EXPECT_EQ(memory.sectors.size(), 36u);
}
TEST(MemoryTrace, AMisalignedRowTouchesOneSectorMore) {
  const KernelMemory memory = Trace(&LoadsBesideABoundary);
  Expect(memory, AccessKind::kLoad, 1, 5, 4);
  Expect(memory, AccessKind::kStore, 1, 1, 1);
}
TEST(MemoryTrace, AVectorIsOneAccess) {
  const KernelMemory memory = Trace(&CopiesVectors);
  Expect(memory, AccessKind::kLoad, 1, 16, 16);
  Expect(memory, AccessKind::kStore, 1, 16, 16);
}
TEST(MemoryTrace, ShortStoresToDistantRows) {
  Expect(Trace(&StoresHalfOfEachSector), AccessKind::kStore, 1, 4, 2);
}
TEST(MemoryTrace, LanesThatMeetAccessTogetherAgain) {
  const KernelMemory memory = Trace(&LeavesTurnsOut);
  // All lanes in two turns, 16 in the others: every second word, so half of the bytes of a sector.
  Expect(memory, AccessKind::kLoad, 4, 16, 12);
}
TEST(MemoryTrace, WordsOfOneBankTakeTurns) {
  Expect(Trace(&StoresWords<1>), AccessKind::kSharedStore, 1, 1, 1);
  Expect(Trace(&StoresWords<2>), AccessKind::kSharedStore, 1, 2, 1);
  Expect(Trace(&StoresWords<32>), AccessKind::kSharedStore, 1, 32, 1);
  Expect(Trace(&StoresWords<33>), AccessKind::kSharedStore, 1, 1, 1);
}
TEST(MemoryTrace, VectorsGoEightAtATime) {
  Expect(Trace(&StoresVectors<1>), AccessKind::kSharedStore, 1, 4, 4);
  Expect(Trace(&StoresVectors<2>), AccessKind::kSharedStore, 1, 8, 4);
  Expect(Trace(&StoresVectors<8>), AccessKind::kSharedStore, 1, 32, 4);
  Expect(Trace(&StoresVectors<9>), AccessKind::kSharedStore, 1, 4, 4);
}
TEST(MemoryTrace, AStructOfThreeWordsIsThreeAccesses) {
  Expect(Trace(&StoresStructs), AccessKind::kSharedStore, 3, 3, 3);
}
TEST(MemoryTrace, ABroadcastIsOneWavefront) {
  Expect(Trace(&AllLoadOneVector), AccessKind::kSharedLoad, 1, 1, 1);
}
TEST(MemoryTrace, RowsOfMatricesMeetInBanksUnlessTheyArePadded) {
  Expect(Trace(&LoadsMatrices<128>), AccessKind::kSharedLoad, 1, 32, 4);
  Expect(Trace(&LoadsMatrices<144>), AccessKind::kSharedLoad, 1, 4, 4);
}
TEST(MemoryTrace, AsynchronousCopiesLoadAndStore) {
  const KernelMemory memory = Trace(&CopiesAsynchronously);
  Expect(memory, AccessKind::kLoad, 1, 32, 16);
  Expect(memory, AccessKind::kSharedStore, 1, 4, 4);
}

}  // namespace
}  // namespace tokamak::cuda
