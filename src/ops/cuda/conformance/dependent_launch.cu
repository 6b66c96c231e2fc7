// A chain of kernels, each of which may begin while those ahead of it still run. Launched one by
// one and as a graph.
#include "ops/cuda/conformance/conformance.h"
#include "ops/cuda/ptx.h"

namespace tokamak::cuda {
namespace {

constexpr unsigned kCtas = 3;
constexpr unsigned kThreads = 64;
constexpr unsigned kCount = kCtas * kThreads;
constexpr unsigned kLength = 6;

// Two arrays take turns: `ahead` is what the kernel ahead wrote, and what the kernel behind will
// overwrite.
__global__ void ChainKernel(const uint32_t* weights, const uint32_t* ahead, uint32_t* out) {
  SHARED(staged, uint32_t[kThreads]);
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  ptx::LaunchDependents();
  staged[threadIdx.x] = weights[i];  // no kernel writes them
  __syncthreads();
  ptx::WaitForKernelAhead();
  const uint32_t value = ahead[(i + kThreads / 2) % kCount];
  out[i] = value * 3 + staged[threadIdx.x ^ 1];
}

// The two halves of `out` are the arrays: even rounds write the second half, odd rounds the first.
cudaError_t Launch(const uint32_t* in, uint32_t* out, cudaStream_t stream) {
  cudaError_t error = cudaSuccess;
  for (unsigned round = 0; round < kLength && error == cudaSuccess; ++round) {
    error = LaunchGroups(
        {.dependent = true}, ChainKernel, kCtas, kThreads, 0, stream, in + (round + 1) * kCount,
        static_cast<const uint32_t*>(out + round % 2 * kCount), out + (round + 1) % 2 * kCount);
  }
  return error;
}

cudaError_t RunChain(const uint32_t* in, uint32_t* out, cudaStream_t stream) {
  const cudaError_t error =
      cudaMemcpyAsync(out, in, kCount * sizeof(uint32_t), cudaMemcpyDeviceToDevice, stream);
  return error != cudaSuccess ? error : Launch(in, out, stream);
}

cudaError_t RunChainGraph(const uint32_t* in, uint32_t* out, cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t instance = nullptr;
  cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  if (error != cudaSuccess) return error;
  const cudaError_t run = RunChain(in, out, stream);
  error = cudaStreamEndCapture(stream, &graph);
  if (error == cudaSuccess) error = run;
  if (error == cudaSuccess) error = cudaGraphInstantiate(&instance, graph, 0);
  for (int i = 0; i < 2 && error == cudaSuccess; ++i) error = cudaGraphLaunch(instance, stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  if (instance != nullptr) (void)cudaGraphExecDestroy(instance);
  if (graph != nullptr) (void)cudaGraphDestroy(graph);
  return error;
}

Words ExpectChain(const Words& in) {
  Words out(2 * kCount);
  for (unsigned i = 0; i < kCount; ++i) out[i] = in[i];
  for (unsigned round = 0; round < kLength; ++round) {
    const uint32_t* const ahead = &out[round % 2 * kCount];
    for (unsigned i = 0; i < kCount; ++i) {
      out[(round + 1) % 2 * kCount + i] =
          ahead[(i + kThreads / 2) % kCount] * 3 + in[(round + 1) * kCount + (i ^ 1)];
    }
  }
  return out;
}

}  // namespace

void AddDependentLaunchCases(std::vector<Case>& cases) {
  cases.push_back({.name = "dependent launch", .expect = ExpectChain, .run = RunChain});
  cases.push_back(
      {.name = "dependent launch in a graph", .expect = ExpectChain, .run = RunChainGraph});
}

}  // namespace tokamak::cuda
