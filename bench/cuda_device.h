// The device of the benchmarks of CUDA kernels, and how a launch is timed.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/cuda/calls.h"
#include "ops/cuda/gemm.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/memory.h"
#include "ops/cuda/stream.h"

namespace tokamak::cuda {

inline constexpr int kRepeats = 9;
inline constexpr int64_t kBeyondL2 = 256 << 20;  // bytes that a case reads at least

[[noreturn]] inline void Die(const std::string& message) {
  std::fprintf(stderr, "cuda_kernels_bench: %s\n", message.c_str());
  std::exit(1);
}

template <typename T>
T Take(Result<T> result) {
  if (!result.ok()) Die(result.status().ToString());
  return *std::move(result);
}

struct Timing {
  double median_us, min_us;  // of a launch
};

// The device, and what the host needs to use it.
class Device {
 public:
  explicit Device(bool small) : small_(small), guard_(CudaOptions{}), gemm_(guard_) {
    guard_.SelectDevice();
    CUDA_RUN(guard_, cudaDeviceGetAttribute(&num_sms_, cudaDevAttrMultiProcessorCount, 0));
    stream_ = std::make_unique<CudaStream>(guard_, pinned_);
    int major = 0, minor = 0;
    CUDA_RUN(guard_, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    CUDA_RUN(guard_, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    form_ = FormFor(10 * major + minor);
    const Status started = gemm_.Start(/*skinny_ctas=*/0, form_);
    if (!started.ok()) Die(started.ToString());
  }

  bool small() const { return small_; }
  CallGuard& guard() { return guard_; }
  Gemm& gemm() { return gemm_; }
  BlockPool& pinned() { return pinned_; }
  CudaStream& stream() { return *stream_; }
  cudaStream_t handle() const { return stream_->handle(); }
  int num_sms() const { return num_sms_; }
  KernelForm form() const { return form_; }

  void Check() const {
    if (!guard_.ok()) Die(guard_.status().ToString());
  }
  void Synchronize() {
    CUDA_RUN(guard_, cudaStreamSynchronize(handle()));
    Check();
    stream_->completions()->Reached(stream_->completions()->added());
  }
  Buffer Allocate(int64_t bytes) {
    return Take(AllocateMemory(guard_, static_cast<size_t>(bytes), MemoryKind::kDevice));
  }
  template <typename T>
  Buffer Upload(const std::vector<T>& values) {
    Buffer buffer = Allocate(static_cast<int64_t>(values.size() * sizeof(T)));
    CUDA_RUN(guard_, cudaMemcpyAsync(buffer.data(), values.data(), values.size() * sizeof(T),
                                     cudaMemcpyHostToDevice, handle()));
    Synchronize();
    return buffer;
  }
  template <typename T>
  std::vector<T> Download(const Buffer& buffer, int64_t count) {
    std::vector<T> values(static_cast<size_t>(count));
    CUDA_RUN(guard_, cudaMemcpyAsync(values.data(), buffer.data(), values.size() * sizeof(T),
                                     cudaMemcpyDeviceToHost, handle()));
    Synchronize();
    return values;
  }
  // bf16 values around zero, in all of `memory`.
  void FillRandom(const Buffer& memory, uint64_t seed, float deviation) {
    constexpr int64_t kCols = 2048;
    const int64_t count = static_cast<int64_t>(memory.size()) / 2;
    auto* const to = reinterpret_cast<uint16_t*>(memory.data());
    const RandomWeight random = {.seed = seed, .mean = 0, .deviation = deviation};
    CUDA_RUN(guard_, LaunchRandomWeight(random, count / kCols, kCols, to, handle()));
    const int64_t rest = count % kCols;
    CUDA_RUN(guard_, LaunchRandomWeight(random, 1, rest, to + count - rest, handle()));
    Synchronize();
  }

  // launch(i) for i from 0 to count - 1, in one graph.
  Timing Time(int count, const std::function<void(int)>& launch) {
    launch(0);  // sets what a kernel may use of an SM
    Synchronize();
    CUDA_RUN(guard_, cudaStreamBeginCapture(handle(), cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < count; ++i) launch(i);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t instance = nullptr;
    CUDA_RUN(guard_, cudaStreamEndCapture(handle(), &graph));
    CUDA_RUN(guard_, cudaGraphInstantiate(&instance, graph, 0));
    cudaEvent_t begin = nullptr, end = nullptr;
    CUDA_RUN(guard_, cudaEventCreateWithFlags(&begin, cudaEventDefault));
    CUDA_RUN(guard_, cudaEventCreateWithFlags(&end, cudaEventDefault));
    std::vector<double> times;
    for (int i = 0; i < (small_ ? 1 : kRepeats) + 1; ++i) {
      float milliseconds = 0;
      CUDA_RUN(guard_, cudaEventRecord(begin, handle()));
      CUDA_RUN(guard_, cudaGraphLaunch(instance, handle()));
      CUDA_RUN(guard_, cudaEventRecord(end, handle()));
      Synchronize();
      CUDA_RUN(guard_, cudaEventElapsedTime(&milliseconds, begin, end));
      if (i > 0) times.push_back(milliseconds * 1e3 / count);  // the first warms up
    }
    CUDA_RUN(guard_, cudaEventDestroy(begin));
    CUDA_RUN(guard_, cudaEventDestroy(end));
    CUDA_RUN(guard_, cudaGraphExecDestroy(instance));
    CUDA_RUN(guard_, cudaGraphDestroy(graph));
    Check();
    std::sort(times.begin(), times.end());
    return {.median_us = times[times.size() / 2], .min_us = times.front()};
  }

 private:
  const bool small_;
  CallGuard guard_;
  BlockPool pinned_{guard_, MemoryKind::kHostPinned};
  Gemm gemm_;
  std::unique_ptr<CudaStream> stream_;
  int num_sms_ = 0;
  KernelForm form_ = KernelForm::kHopper;
};

inline void PrintTiming(const Timing& timing, double bytes) {
  std::printf("\"us\": %.2f, \"min_us\": %.2f, \"tb_s\": %.3f}\n", timing.median_us, timing.min_us,
              bytes / timing.median_us / 1e6);
  std::fflush(stdout);
}

}  // namespace tokamak::cuda
