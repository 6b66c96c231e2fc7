// Tests that the sanitizers find what is wrong in kernels, whatever the schedule and the result,
// and that they find nothing in the corrected kernels. Every test has both forms of one kernel.
#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>

#include "ops/cuda/emulation/sanitizers.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/ptx.h"
#include "ops/cuda/tensor_map.h"

extern "C" const char* __tsan_default_options() { return "halt_on_error=1"; }

namespace tokamak::cuda {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kThreads = 2 * kWarp;
constexpr unsigned kWords = 201;  // in global and in dynamic shared memory

using Kernel = void (*)(uint32_t*);

struct Launch {
  unsigned ctas = 1;
  unsigned threads = kThreads;
  CtaGroups groups = {};
  int times = 1;
};

void RunKernel(Kernel kernel, const Launch& launch = {}) {
  cudaStream_t stream = nullptr;
  void* memory = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&memory, kWords * sizeof(uint32_t)), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(memory, 0, kWords * sizeof(uint32_t), stream), cudaSuccess);
  for (int i = 0; i < launch.times; ++i) {
    ASSERT_EQ(LaunchGroups(launch.groups, kernel, launch.ctas, launch.threads,
                           kWords * sizeof(uint32_t), stream, static_cast<uint32_t*>(memory)),
              cudaSuccess);
  }
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  ASSERT_EQ(cudaFree(memory), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

constexpr unsigned kRowWords = 16;
constexpr unsigned kRows = kThreads / kRowWords;  // of a box in which each thread has a word

// The whole of a tensor. Emulated kernels can call host functions.
CUtensorMap MapOf(uint32_t* memory, unsigned rows = kRows, unsigned box_rows = kRows) {
  const BoxedTensor tensor = {.data = memory,
                              .element_bytes = 4,
                              .sizes = {kRowWords, rows},
                              .strides = {kRowWords * 4},
                              .box = {kRowWords, box_rows},
                              .swizzle = 0};
  CUtensorMap made;
  EXPECT_EQ(MakeTensorMap(tensor, &made), CUDA_SUCCESS);
  return made;
}
template <unsigned kCount>
struct alignas(128) Rows {
  uint32_t words[kCount * kRowWords];
};

// Fills words from a place that is not known at compile time.
__device__ void Fill(uint32_t* words, unsigned first) {
  for (unsigned i = first + threadIdx.x; i < first + kWords; i += kThreads) words[i] = i;
}
template <unsigned kFirst>
__global__ void FillGlobal(uint32_t* memory) {
  Fill(memory, kFirst);
}
template <unsigned kFirst>
__global__ void FillDynamicShared(uint32_t*) {
  DYNAMIC_SHARED(words, uint32_t);
  Fill(words, kFirst);
}
template <unsigned kFirst>
__global__ void FillSharedVariable(uint32_t*) {
  SHARED(words, uint32_t[kWords]);
  Fill(words, kFirst);
}

// Boxes of 12 rows, which global memory has, or 13.
constexpr unsigned kMostRows = kWords / kRowWords;
template <unsigned kBoxRows>
__global__ void LoadRows(uint32_t* memory) {
  SHARED(rows, Rows<kBoxRows>);
  SHARED(barrier, uint64_t);
  if (threadIdx.x != 0) return;
  const CUtensorMap map = MapOf(memory, kBoxRows, kBoxRows);
  ptx::InitBarrier(&barrier, 1);
  ptx::ArriveAndExpect(&barrier, sizeof(rows));
  ptx::LoadBox(rows.words, &map, {0, 0}, &barrier);
  ptx::WaitForPhase(&barrier, 0);
}
template <unsigned kBoxRows>
__global__ void LoadRowsIntoLess(uint32_t* memory) {
  SHARED(rows, Rows<kMostRows>);
  SHARED(barrier, uint64_t);
  if (threadIdx.x != 0) return;
  const CUtensorMap map = MapOf(memory, kMostRows, kBoxRows);
  ptx::InitBarrier(&barrier, 1);
  ptx::ArriveAndExpect(&barrier, kBoxRows * kRowWords * sizeof(uint32_t));
  ptx::LoadBox(rows.words, &map, {0, 0}, &barrier);
  ptx::WaitForPhase(&barrier, 0);
}
template <unsigned kTensorRows, unsigned kBoxRows, unsigned kSharedRows>
__global__ void StoreRows(uint32_t* memory) {
  SHARED(rows, Rows<kSharedRows>);
  if (threadIdx.x != 0) return;
  const CUtensorMap map = MapOf(memory, kTensorRows, kBoxRows);
  ptx::StoreBox(&map, {0, 0}, rows.words);
  ptx::CommitStores();
  ptx::WaitForStores<0>();
}

class AddressSanitizerDeathTest : public testing::Test {
  void SetUp() override {
    if (!emulation::sanitizers::kAddress) GTEST_SKIP() << "not in this build";
  }
};

TEST_F(AddressSanitizerDeathTest, AWordPastTheEndOfGlobalMemory) {
  RunKernel(FillGlobal<0>);
  EXPECT_DEATH(RunKernel(FillGlobal<1>), "heap-buffer-overflow");
}
TEST_F(AddressSanitizerDeathTest, AWordPastTheEndOfDynamicSharedMemory) {
  RunKernel(FillDynamicShared<0>);
  EXPECT_DEATH(RunKernel(FillDynamicShared<1>), "heap-buffer-overflow");
}
TEST_F(AddressSanitizerDeathTest, AWordPastTheEndOfASharedVariable) {
  RunKernel(FillSharedVariable<0>);
  EXPECT_DEATH(RunKernel(FillSharedVariable<1>), "heap-buffer-overflow");
}
TEST_F(AddressSanitizerDeathTest, ATmaLoadFromPastTheEndOfGlobalMemory) {
  RunKernel(LoadRows<kMostRows>);
  EXPECT_DEATH(RunKernel(LoadRows<kMostRows + 1>), "heap-buffer-overflow");
}
TEST_F(AddressSanitizerDeathTest, ATmaLoadToPastTheEndOfASharedVariable) {
  RunKernel(LoadRowsIntoLess<kMostRows>);
  EXPECT_DEATH(RunKernel(LoadRowsIntoLess<kMostRows + 1>), "heap-buffer-overflow");
}
TEST_F(AddressSanitizerDeathTest, ATmaStoreToPastTheEndOfGlobalMemory) {
  RunKernel(StoreRows<kMostRows, kMostRows + 1, kMostRows + 1>);
  EXPECT_DEATH((RunKernel(StoreRows<kMostRows + 1, kMostRows + 1, kMostRows + 1>)),
               "heap-buffer-overflow");
}
TEST_F(AddressSanitizerDeathTest, ATmaStoreFromPastTheEndOfASharedVariable) {
  RunKernel(StoreRows<kMostRows, kMostRows, kMostRows>);
  EXPECT_DEATH((RunKernel(StoreRows<kMostRows, kMostRows + 1, kMostRows>)), "heap-buffer-overflow");
}

// The parameter of each kernel below says whether it waits where it must.

template <bool kWaits>
__global__ void ReadAcrossWarps(uint32_t* out) {
  SHARED(words, uint32_t[kThreads]);
  words[threadIdx.x] = threadIdx.x;
  if (kWaits) __syncthreads();
  out[threadIdx.x] = words[threadIdx.x ^ kWarp];
}
// The result is the same in every order.
template <bool kWaits>
__global__ void AllWriteTheSame(uint32_t* out) {
  if (!kWaits || threadIdx.x == 0) out[0] = 7;
}
template <bool kWaits>
__global__ void OverwriteWhatOthersRead(uint32_t* out) {
  SHARED(words, uint32_t[kThreads]);
  words[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = words[threadIdx.x ^ kWarp];
  if (kWaits) __syncthreads();
  words[threadIdx.x] = 0;
}
// A shuffle exchanges registers; it does not order memory.
template <bool kWaits>
__global__ void ReadInAWarp(uint32_t* out) {
  DYNAMIC_SHARED(words, uint32_t);
  words[threadIdx.x] = threadIdx.x;
  const uint32_t partner = __shfl_xor_sync(~0u, threadIdx.x, 1);
  if (kWaits) __syncwarp();
  out[threadIdx.x] = words[partner];
}
template <bool kWaits>
__global__ void CountInGlobalMemory(uint32_t* out) {
  if (threadIdx.x != 0) return;
  if (kWaits) {
    atomicAdd(out, 1);
  } else {
    ++*out;
  }
}
template <bool kWaits>
__global__ void SyncOneWarpOfTwo(uint32_t* out) {
  SHARED(words, uint32_t[kThreads]);
  words[threadIdx.x] = threadIdx.x;
  ptx::SyncNamed(kWaits ? 1 : 1 + static_cast<int>(threadIdx.x / kWarp), kWaits ? kThreads : kWarp);
  out[threadIdx.x] = words[threadIdx.x ^ kWarp];
}
template <bool kWaits>
__global__ void ReadACopy(uint32_t* out) {
  SHARED(words, uint4[kThreads]);
  ptx::CopyAsync16(&words[threadIdx.x], out + threadIdx.x / 2 * 4);
  ptx::CommitCopies();
  ptx::CommitCopies();
  if (kWaits) {
    ptx::WaitForCopies<1>();
  } else {
    ptx::WaitForCopies<2>();
  }
  out[kThreads * 2 + threadIdx.x] = words[threadIdx.x].x;
}
// Each thread has waited for its own copies, but not for those of others.
template <bool kWaits>
__global__ void ReadAnothersCopy(uint32_t* out) {
  SHARED(words, uint4[kThreads]);
  ptx::CopyAsync16(&words[threadIdx.x], out + threadIdx.x / 2 * 4);
  ptx::CommitCopies();
  ptx::WaitForCopies<0>();
  if (kWaits) __syncthreads();
  out[kThreads * 2 + threadIdx.x] = words[threadIdx.x ^ 1].x;
}
// Each thread arrives for its own copy, and waits for those of all.
template <bool kWaits>
__global__ void ReadCopiesBehindABarrier(uint32_t* out) {
  SHARED(words, uint4[kThreads]);
  SHARED(barrier, uint64_t);
  if (threadIdx.x == 0) ptx::InitBarrier(&barrier, kThreads);
  __syncthreads();
  ptx::CopyAsync16(&words[threadIdx.x], out + threadIdx.x / 2 * 4);
  if (kWaits) {
    ptx::ArriveWhenCopied(&barrier);
  } else {
    ptx::Arrive(&barrier);
  }
  ptx::WaitForPhase(&barrier, 0);
  out[kThreads * 2 + threadIdx.x] = words[threadIdx.x ^ 1].x;
}
struct alignas(16) Chunk {
  uint32_t words[kThreads];
  uint64_t full, empty;
};
// One thread fills the chunk twice. In the emulator nothing happens between an arrival and the read
// after it, so even the wrong form gives the right result.
template <bool kWaits, bool kFences = true>
__global__ void RefillAChunk(uint32_t* out) {
  SHARED(chunk, Chunk);
  if (threadIdx.x == 0) {
    ptx::InitBarrier(&chunk.full, 1);
    ptx::InitBarrier(&chunk.empty, kThreads);
  }
  __syncthreads();
  for (uint32_t step = 0; step < 2; ++step) {
    if (threadIdx.x == 0) {
      if (step > 0) ptx::WaitForPhase(&chunk.empty, step - 1);
      ptx::ArriveAndExpect(&chunk.full, sizeof(chunk.words));
      ptx::CopyBulk(chunk.words, out, sizeof(chunk.words), &chunk.full);
    }
    ptx::WaitForPhase(&chunk.full, step);
    if (!kWaits) ptx::Arrive(&chunk.empty);
    out[kThreads + threadIdx.x] = chunk.words[threadIdx.x ^ kWarp];
    if (kFences) ptx::FenceAsyncProxy();
    if (kWaits) ptx::Arrive(&chunk.empty);
  }
}
// TMA may overtake even the loads before an arrival.
template <bool kFences>
__global__ void RefillAChunkBehindAFence(uint32_t* out) {
  RefillAChunk<true, kFences>(out);
}
template <bool kWaits>
__global__ void ArriveAtAFreshBarrier(uint32_t*) {
  SHARED(barrier, uint64_t);
  if (threadIdx.x == 0) ptx::InitBarrier(&barrier, kWaits ? kThreads : 1);
  if (kWaits) __syncthreads();
  if (kWaits || threadIdx.x == kWarp) ptx::Arrive(&barrier);
}
template <bool kWaits>
__global__ void LoadMatrixRows(uint32_t* out) {
  SHARED(rows, uint4[kThreads]);
  auto* const words = reinterpret_cast<uint32_t*>(rows);
  for (unsigned i = 0; i < 4; ++i) words[threadIdx.x * 4 + i] = i;
  if (kWaits) __syncwarp();
  uint32_t fragments[4];
  ptx::LoadMatrices(fragments, &rows[threadIdx.x]);
  out[threadIdx.x] = fragments[0];
}

template <bool kWaits>
__global__ void ReadABox(uint32_t* out) {
  SHARED(box, Rows<kRows>);
  SHARED(full, uint64_t);
  const CUtensorMap map = MapOf(out);
  if (threadIdx.x == 0) {
    ptx::InitBarrier(&full, 1);
    ptx::ArriveAndExpect(&full, sizeof(box));
    ptx::LoadBox(box.words, &map, {0, 0}, &full);
  }
  __syncthreads();
  if (kWaits) ptx::WaitForPhase(&full, 0);
  out[kThreads + threadIdx.x] = box.words[threadIdx.x];
}
// Rank 0 fills the boxes of both CTAs twice.
template <bool kWaits>
__global__ void RefillABoxOfTheCluster(uint32_t* out) {
  SHARED(box, Rows<kRows>);
  SHARED(full, uint64_t);
  const CUtensorMap map = MapOf(out);
  const auto rank = static_cast<unsigned>(ptx::ClusterRank());
  if (threadIdx.x == 0) ptx::InitBarrier(&full, 1);
  ptx::SyncCluster();
  for (uint32_t step = 0; step < 2; ++step) {
    if (threadIdx.x == 0) {
      ptx::ArriveAndExpect(&full, sizeof(box));
      if (rank == 0) ptx::LoadBoxToCtas(box.words, &map, {0, 0}, &full, 3);
    }
    ptx::WaitForPhase(&full, step);
    out[(1 + rank) * kThreads + threadIdx.x] = box.words[threadIdx.x];
    ptx::FenceAsyncProxy();
    if (kWaits) {
      ptx::SyncCluster();
    } else {
      __syncthreads();
    }
  }
  ptx::SyncCluster();
}
template <bool kWaits>
__global__ void ReadAnotherCta(uint32_t* out) {
  SHARED(words, uint32_t[kThreads]);
  const int rank = ptx::ClusterRank();
  words[threadIdx.x] = threadIdx.x;
  if (kWaits) {
    ptx::SyncCluster();
  } else {
    __syncthreads();
  }
  out[static_cast<unsigned>(rank) * kThreads + threadIdx.x] =
      *ptx::MapShared(&words[threadIdx.x], 1 - rank);
  ptx::SyncCluster();
}
template <bool kWaits, bool kFences = true>
__global__ void StoreABoxOfOthers(uint32_t* out) {
  SHARED(box, Rows<kRows>);
  const CUtensorMap map = MapOf(out);
  box.words[threadIdx.x] = threadIdx.x;
  if (kFences || threadIdx.x == 0) ptx::FenceAsyncProxy();
  if (kWaits) __syncthreads();
  if (threadIdx.x != 0) return;
  ptx::StoreBox(&map, {0, 0}, box.words);
  ptx::CommitStores();
  ptx::WaitForStoreReads<0>();
}
// A thread's fence shows only what the thread itself has stored.
template <bool kFences>
__global__ void StoreABoxBehindAFence(uint32_t* out) {
  StoreABoxOfOthers<true, kFences>(out);
}
template <bool kWaits>
__global__ void OverwriteWhatAStoreReads(uint32_t* out) {
  SHARED(box, Rows<kRows>);
  const CUtensorMap map = MapOf(out);
  box.words[threadIdx.x] = threadIdx.x;
  ptx::FenceAsyncProxy();
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::StoreBox(&map, {0, 0}, box.words);
    ptx::CommitStores();
    if (kWaits) ptx::WaitForStoreReads<0>();
  }
  __syncthreads();
  box.words[threadIdx.x] = 0;
  ptx::WaitForStoreReads<0>();
}
// A store that has read shared memory need not have written yet.
template <bool kWaits>
__global__ void ReadWhatAStoreWrites(uint32_t* out) {
  SHARED(box, Rows<kRows>);
  const CUtensorMap map = MapOf(out);
  box.words[threadIdx.x] = threadIdx.x;
  ptx::FenceAsyncProxy();
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::StoreBox(&map, {0, 0}, box.words);
    ptx::CommitStores();
    if (kWaits) {
      ptx::WaitForStores<0>();
    } else {
      ptx::WaitForStoreReads<0>();
    }
  }
  __syncthreads();
  out[kThreads + threadIdx.x] = out[threadIdx.x];
}

// The operands of wgmma with n = 8, in rows of 32 bytes. They keep the bits of fresh memory, so
// that the emulator itself cannot see that they are written.
constexpr unsigned kWarpgroup = 4 * kWarp;
struct alignas(1024) Operands {
  uint32_t a[64 * 8];
  uint32_t b[8 * 8];
};
__device__ void Multiply(const Operands& operands, float (&sums)[4]) {
  constexpr int kSpan = 32, kGroup = 8 * kSpan;
  ptx::FenceRegisters();
  ptx::WarpgroupMultiplyBf16(sums, ptx::DescribeTile(operands.a, kSpan, 0, kGroup),
                             ptx::DescribeTile(operands.b, kSpan, 0, kGroup), false);
  ptx::CommitProducts();
}
template <bool kWaits>
__global__ void MultiplyWhatOthersStore(uint32_t*) {
  SHARED(operands, Operands);
  operands.a[threadIdx.x] = ~0u;
  ptx::FenceAsyncProxy();
  if (kWaits) __syncthreads();
  float sums[4] = {};
  Multiply(operands, sums);
  ptx::WaitForProducts<0>();
}
template <bool kWaits>
__global__ void OverwriteAnOperand(uint32_t*) {
  SHARED(operands, Operands);
  float sums[4] = {};
  Multiply(operands, sums);
  if (kWaits) ptx::WaitForProducts<0>();
  __syncthreads();
  operands.a[threadIdx.x] = ~0u;
  ptx::WaitForProducts<0>();
}

template <bool kWaits>
__global__ void WriteWhatTheKernelAheadWrites(uint32_t* out) {
  ptx::LaunchDependents();
  if (kWaits) ptx::WaitForKernelAhead();
  out[threadIdx.x] = 7;
  ptx::WaitForKernelAhead();
}

struct Race {
  const char* name;
  Kernel right, wrong;
  Launch launch = {};
};
void PrintTo(const Race& race, std::ostream* out) { *out << race.name; }

#define RACE(name, ...) \
  Race { #name, &name < true>, &name < false> __VA_OPT__(, ) __VA_ARGS__ }

class ThreadSanitizerDeathTest : public testing::TestWithParam<Race> {};

TEST_P(ThreadSanitizerDeathTest, ARaceIsFound) {
  if (!emulation::sanitizers::kThread) GTEST_SKIP() << "not in this build";
  // ThreadSanitizer records nothing in the fork of a process that has threads.
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  RunKernel(GetParam().right, GetParam().launch);
  EXPECT_DEATH(RunKernel(GetParam().wrong, GetParam().launch), "data race");
}
constexpr Launch kPair = {.ctas = 2, .groups = {.cluster = 2}};
constexpr Launch kOneWarpgroup = {.threads = kWarpgroup};
constexpr Launch kChain = {.groups = {.dependent = true}, .times = 8};  // some kernels begin early
INSTANTIATE_TEST_SUITE_P(
    , ThreadSanitizerDeathTest,
    testing::Values(
        RACE(ReadAcrossWarps), RACE(AllWriteTheSame), RACE(OverwriteWhatOthersRead),
        RACE(ReadInAWarp), RACE(CountInGlobalMemory, {.ctas = 40}), RACE(SyncOneWarpOfTwo),
        RACE(ReadACopy), RACE(ReadAnothersCopy), RACE(ReadCopiesBehindABarrier), RACE(RefillAChunk),
        RACE(RefillAChunkBehindAFence), RACE(ArriveAtAFreshBarrier), RACE(LoadMatrixRows),
        RACE(ReadABox), RACE(RefillABoxOfTheCluster, kPair), RACE(ReadAnotherCta, kPair),
        RACE(StoreABoxOfOthers), RACE(StoreABoxBehindAFence), RACE(OverwriteWhatAStoreReads),
        RACE(ReadWhatAStoreWrites), RACE(MultiplyWhatOthersStore, kOneWarpgroup),
        RACE(OverwriteAnOperand, kOneWarpgroup), RACE(WriteWhatTheKernelAheadWrites, kChain)),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tokamak::cuda
