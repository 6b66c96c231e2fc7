// What the emulator says of kernels that are wrong. That right ones give what they should is for
// the tests of the backend and of the primitives.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "ops/cuda/launch.h"
#include "ops/cuda/ptx.h"

namespace tokamak::cuda {
namespace {

constexpr unsigned kThreads = 64;

// Runs the kernel on two warps and on 4 KiB of memory, whose words it gives back.
std::vector<uint32_t> RunKernel(void (*kernel)(uint32_t*)) {
  std::vector<uint32_t> words(1024);
  void* memory = nullptr;
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&memory, 4096), cudaSuccess);
  EXPECT_EQ(LaunchKernel(kernel, 1, kThreads, 256, stream, static_cast<uint32_t*>(memory)),
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
}

__global__ void ReadsWhatNobodyWrote(uint32_t* out) {
  DYNAMIC_SHARED(dynamic, uint32_t);
  SHARED(variable, uint32_t[kThreads]);
  out[threadIdx.x] = dynamic[threadIdx.x] & variable[threadIdx.x];
}

TEST(Emulator, FreshMemoryIsPoisoned) {
  for (const uint32_t word : RunKernel(&ReadsWhatNobodyWrote)) ASSERT_EQ(word, 0xffffffffu);
}

__global__ void Nothing(uint32_t*) {}

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
