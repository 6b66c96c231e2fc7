// Tests what the emulator reports about wrong kernels. The tests of the backend and of the
// primitives show that correct kernels work.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "ops/cuda/launch.h"
#include "ops/cuda/ptx.h"
#include "ops/cuda/tensor_map.h"

namespace tokamak::cuda {
namespace {

constexpr unsigned kThreads = 64;

// Runs the kernel with two warps, or `threads`, on 4 KiB of memory, and returns the words of that.
std::vector<uint32_t> RunKernel(void (*kernel)(uint32_t*), unsigned threads = kThreads,
                                const CtaGroups& groups = {}) {
  std::vector<uint32_t> words(1024);
  void* memory = nullptr;
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&memory, 4096), cudaSuccess);
  EXPECT_EQ(LaunchGroups(groups, kernel, 1, threads, 256, stream, static_cast<uint32_t*>(memory)),
            cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(words.data(), memory, 4096, cudaMemcpyDeviceToHost, stream),
            cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  return words;
}

__global__ void OneWarpWaits(uint32_t*) {
  if (threadIdx.x < 32) ptx::SyncNamed(1, kThreads);
}
__global__ void PartOfAWarpShuffles(uint32_t* out) {
  if (threadIdx.x != 40) out[threadIdx.x] = __shfl_xor_sync(~0u, threadIdx.x, 1);
}
__global__ void OutsideOfItsMask(uint32_t*) { (void)__shfl_sync(0xff00u, 1, 9); }
__global__ void LanesMeetInTwoPlaces(uint32_t*) {
  if (threadIdx.x % 2 == 0) {
    (void)__ballot_sync(~0u, 1);
  } else {
    (void)__shfl_sync(~0u, 1, 0);
  }
}
__global__ void CopiesToAnOddPlace(uint32_t* from) {
  DYNAMIC_SHARED(shared, uint32_t);
  ptx::CopyAsync16(shared + 1, from);
}
__global__ void WaitsAtNoBarrier(uint32_t*) {
  SHARED(barrier, uint64_t);
  ptx::WaitForPhase(&barrier, 0);
}
__global__ void WaitsForACounter(uint32_t* counter) {
  if (threadIdx.x == 0) *counter = 3;
  __syncthreads();
  if (threadIdx.x == 7) ptx::WaitForCounter(counter, 5);
}

// 4 rows of 16 words. Emulated kernels can call host functions.
CUtensorMap MapOf(uint32_t* memory) {
  const BoxedTensor tensor = {.data = memory,
                              .element_bytes = 4,
                              .sizes = {16, 4},
                              .strides = {64},
                              .box = {16, 4},
                              .swizzle = 0};
  CUtensorMap map;
  EXPECT_EQ(MakeTensorMap(tensor, &map), CUDA_SUCCESS);
  return map;
}
__global__ void LoadsABoxWithoutAMap(uint32_t* memory) {
  DYNAMIC_SHARED(shared, uint32_t);
  SHARED(barrier, uint64_t);
  ptx::LoadBox(shared, reinterpret_cast<const CUtensorMap*>(memory), {0, 0}, &barrier);
}
__global__ void LoadsABoxOfAnotherRank(uint32_t* memory) {
  DYNAMIC_SHARED(shared, uint32_t);
  SHARED(barrier, uint64_t);
  const CUtensorMap map = MapOf(memory);
  ptx::LoadBox(shared, &map, {0, 0, 0}, &barrier);
}
__global__ void LoadsABoxFromTheMiddle(uint32_t* memory) {
  DYNAMIC_SHARED(shared, uint32_t);
  SHARED(barrier, uint64_t);
  const CUtensorMap map = MapOf(memory);
  ptx::LoadBox(shared, &map, {3, 0}, &barrier);
}
__global__ void StoresABoxBeforeTheFirst(uint32_t* memory) {
  DYNAMIC_SHARED(shared, uint32_t);
  const CUtensorMap map = MapOf(memory);
  ptx::StoreBox(&map, {0, -1}, shared);
}
__global__ void EndsBeforeAStoreHasRead(uint32_t* memory) {
  DYNAMIC_SHARED(shared, uint32_t);
  if (threadIdx.x != 0) return;
  const CUtensorMap map = MapOf(memory);
  ptx::StoreBox(&map, {0, 0}, shared);
  ptx::CommitStores();
  ptx::WaitForStoreReads<1>();
}

TEST(EmulatorDeathTest, ADeadlockNamesTheThreadsAndWhatTheyWaitFor) {
  EXPECT_DEATH(RunKernel(&OneWarpWaits),
               "threads 0-31 wait for barrier 1, to which 32 of 64 have come, at .*\\+0x");
  EXPECT_DEATH(
      RunKernel(&PartOfAWarpShuffles),
      "threads 32-39, 41-63 wait for __shfl_xor_sync with mask ffffffff, of which fffffeff");
  EXPECT_DEATH(RunKernel(&WaitsForACounter), "threads 7 wait for a counter to be 5; it is 3");
}

TEST(EmulatorDeathTest, AMistakeNamesItsThread) {
  EXPECT_DEATH(RunKernel(&OutsideOfItsMask),
               "__shfl_sync with mask 0000ff00, .*; in thread [0-9]+ of CTA");
  EXPECT_DEATH(RunKernel(&LanesMeetInTwoPlaces), "lanes of one warp meet in __");
  EXPECT_DEATH(RunKernel(&CopiesToAnOddPlace), "cp.async: the address 0x[0-9a-f]+4 is not aligned");
  EXPECT_DEATH(RunKernel(&WaitsAtNoBarrier), "an mbarrier that has not been initialized");
  EXPECT_DEATH(RunKernel(&LoadsABoxWithoutAMap), "a TMA load: no tensor map");
  EXPECT_DEATH(RunKernel(&LoadsABoxOfAnotherRank), "3 coordinates for a tensor of 2 dimensions");
  EXPECT_DEATH(RunKernel(&LoadsABoxFromTheMiddle),
               "element 3 of a row, which is no multiple of 16");
  EXPECT_DEATH(RunKernel(&StoresABoxBeforeTheFirst), "begins at a negative coordinate");
  EXPECT_DEATH(RunKernel(&EndsBeforeAStoreHasRead), "TMA stores may still read shared memory");
}

__global__ void ReadsWhatNobodyWrote(uint32_t* out) {
  DYNAMIC_SHARED(dynamic, uint32_t);
  SHARED(variable, uint32_t[kThreads]);
  out[threadIdx.x] = dynamic[threadIdx.x] & variable[threadIdx.x];
}

TEST(Emulator, FreshMemoryIsPoisoned) {
  for (const uint32_t word : RunKernel(&ReadsWhatNobodyWrote)) ASSERT_EQ(word, 0xffffffffu);
}

// A product of ones by wgmma, 64 x 8, done twice; and what may go wrong.
enum class Wrong {
  kNothing,
  kNoFence,
  kNoFenceAfterAWrite,
  kNoFenceForOperands,
  kNoWait,
  kSumsInUse,
  kRegistersInUse,
  kOperandsInUse,
  kOneLaneDiffers,
  kOneWarpDiffers,
  kOneWarpStaysAway,
  kOneLaneStaysAway,
  kNotWhereTheSwizzleBegins,
};
template <Wrong kWrong>
__global__ void Multiplies(uint32_t* out) {
  struct alignas(1024) Tile {
    uint32_t words[8 * 8];  // rows of 32 bytes
  };
  SHARED(tile, Tile);
  constexpr uint32_t kOnes = 0x3f803f80;  // bf16
  for (unsigned i = threadIdx.x; i < 8 * 8; i += blockDim.x) tile.words[i] = kOnes;
  if (kWrong != Wrong::kNoFenceForOperands) ptx::FenceAsyncProxy();
  __syncthreads();
  if (kWrong == Wrong::kOneWarpStaysAway && threadIdx.x / 32 == 2) return;
  if (kWrong == Wrong::kOneLaneStaysAway && threadIdx.x == 40) return;
  const bool accumulate = !(kWrong == Wrong::kOneLaneDiffers && threadIdx.x == 40) &&
                          !(kWrong == Wrong::kOneWarpDiffers && threadIdx.x / 32 == 1);
  const int begin = kWrong == Wrong::kNotWhereTheSwizzleBegins ? 8 : 0;
  const uint64_t b = ptx::DescribeTile(&tile.words[begin], 32, 16, 256);
  uint32_t a[4] = {kOnes, kOnes, kOnes, kOnes};
  float sums[4] = {1, 2, 3, 4};
  if (kWrong != Wrong::kNoFence) ptx::FenceRegisters();
  ptx::WarpgroupMultiplyBf16(sums, a, b, accumulate);
  ptx::CommitProducts();
  if (kWrong == Wrong::kSumsInUse) sums[2] = 7;
  if (kWrong == Wrong::kRegistersInUse) a[1] = 0;
  if (kWrong == Wrong::kOperandsInUse) tile.words[threadIdx.x % 8] = 0;
  ptx::WaitForProducts<0>();
  if (kWrong == Wrong::kNoFenceAfterAWrite) sums[3] += 1;
  ptx::WarpgroupMultiplyBf16(sums, a, b, accumulate);
  ptx::CommitProducts();
  if (kWrong != Wrong::kNoWait) ptx::WaitForProducts<0>();
  for (unsigned i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = __float_as_uint(sums[i]);
}

TEST(Emulator, AWarpgroupMultiplies) {
  const std::vector<uint32_t> words = RunKernel(&Multiplies<Wrong::kNothing>, 128);
  for (unsigned i = 0; i < 512; ++i) {
    ASSERT_EQ(words[i], __float_as_uint(static_cast<float>(i % 4 + 1 + 32))) << i;
  }
}

template <Wrong kWrong>
void ExpectDeath(const char* what, unsigned threads = 128) {
  EXPECT_DEATH(RunKernel(&Multiplies<kWrong>, threads), what);
}

TEST(EmulatorDeathTest, AWrongUseOfWgmmaNamesItsThread) {
  ExpectDeath<Wrong::kNoFence>("without a wgmma.fence before it; in thread [0-9]+ of CTA");
  ExpectDeath<Wrong::kNoFenceAfterAWrite>("an accumulator was written, and no wgmma.fence follows");
  ExpectDeath<Wrong::kNoFenceForOperands>("or before it without a fence.proxy.async; in thread");
  ExpectDeath<Wrong::kRegistersInUse>("a register of A was written, and no wgmma.fence follows");
  ExpectDeath<Wrong::kOperandsInUse>("was written while the product may read it, .*; in thread");
  ExpectDeath<Wrong::kNoWait>("warp [0-3] ended without waiting for its wgmma");
  ExpectDeath<Wrong::kSumsInUse>("an accumulator was written.*; in thread [0-9]+ of CTA");
  ExpectDeath<Wrong::kOneLaneDiffers>(
      "the lanes of a warp differ: .*; in lane 8: n = 8, from zero, .*; in thread [3-6][0-9] of");
  ExpectDeath<Wrong::kOneWarpDiffers>("the warps of a warpgroup differ: .*; in thread [0-9]+ of");
  ExpectDeath<Wrong::kOneWarpStaysAway>("warp 2 ended after 0 wgmma, and warp 0 .* after 2");
  ExpectDeath<Wrong::kOneLaneStaysAway>(
      "threads 32-39, 41-63 wait for wgmma.fence with mask ffffffff, of which fffffeff");
  ExpectDeath<Wrong::kNotWhereTheSwizzleBegins>("does not begin where its swizzle of 32 bytes");
  ExpectDeath<Wrong::kNothing>("a warpgroup of fewer than 4 warps", 96);
}

// Adds 1 and four times 2^-24. In f32 each addition gives 1 again; Hopper adds all five before it
// cuts the sum off.
__global__ void AddSmallProducts(uint32_t* out) {
  const uint32_t one = 0x3f803f80, small = 0x33803380;  // two bf16 each
  const uint32_t first_row[4] = {small, 0, small, 0};
  const uint32_t columns[2] = {threadIdx.x % 4 == 0 ? one : 0u, threadIdx.x % 4 == 0 ? one : 0u};
  float sums[4] = {1, 1, 1, 1};
  ptx::MultiplyBf16(sums, first_row, columns);
  out[threadIdx.x] = __float_as_uint(sums[0]);
}

TEST(Emulator, TensorCoresAddAsHopperDoesOrPlainly) {
  // The ctest emulator_plain_sums runs this again with the other value.
  const char* const sums = std::getenv("TOKAMAK_EMULATION_SUMS");
  const bool are_plain = sums != nullptr && std::strcmp(sums, "plain") == 0;
  EXPECT_EQ(RunKernel(&AddSmallProducts)[0], are_plain ? 0x3f800000u : 0x3f800002u);
}

__global__ void Nothing(uint32_t*) {}

TEST(EmulatorDeathTest, ADependentLaunchWaitsForTheKernelAhead) {
  EXPECT_DEATH(RunKernel(&Nothing, kThreads, {.dependent = true}),
               "no thread of a dependent launch has called WaitForKernelAhead");
}

TEST(Emulator, LaunchesThatNoGpuTakesAreErrors) {
  uint32_t* const none = nullptr;
  cudaStream_t stream = nullptr;
  EXPECT_EQ(LaunchKernel(&Nothing, 1, 1025, 0, stream, none), cudaErrorInvalidConfiguration);
  EXPECT_EQ(LaunchKernel(&Nothing, dim3(1, 65536), 1, 0, stream, none),
            cudaErrorInvalidConfiguration);
  EXPECT_EQ(LaunchKernel(&Nothing, 1, 1, 49 << 10, stream, none), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(&Nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 49 << 10),
            cudaSuccess);
  EXPECT_EQ(LaunchKernel(&Nothing, 1, 1, 49 << 10, stream, none), cudaSuccess);
  EXPECT_EQ(LaunchGroups({.cluster = 3}, &Nothing, 4, 1, 0, stream, none),
            cudaErrorInvalidConfiguration);
  EXPECT_EQ(LaunchGroups({.cooperative = true}, &Nothing, 1000, 1, 0, stream, none),
            cudaErrorCooperativeLaunchTooLarge);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

__global__ void Fences(uint32_t*) { ptx::FenceAsyncProxy(); }

TEST(EmulatorDeathTest, AGpuBeforeHopperRefusesWhatOnlyHopperHas) {
  int major = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), cudaSuccess);
  if (major >= 9) GTEST_SKIP() << "the ctest emulator_before_hopper runs this";
  EXPECT_DEATH(RunKernel(&Fences), "fence.proxy.async: a GPU of compute capability 8.6");
  uint32_t* const none = nullptr;
  cudaStream_t stream = nullptr;
  EXPECT_EQ(LaunchGroups({.dependent = true}, &Nothing, 1, 1, 0, stream, none),
            cudaErrorInvalidConfiguration);
  constexpr auto kShared = cudaFuncAttributeMaxDynamicSharedMemorySize;
  EXPECT_EQ(cudaFuncSetAttribute(&Nothing, kShared, 99 << 10), cudaSuccess);
  EXPECT_EQ(cudaFuncSetAttribute(&Nothing, kShared, 100 << 10), cudaErrorInvalidValue);
}

TEST(Emulator, AnAllocationSpoilsACapture) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

}  // namespace
}  // namespace tokamak::cuda
