// Writes the times of every kernel of a CUDA program to a file, also of kernels in graphs. CUDA
// loads this library into the program:
//
//   CUDA_INJECTION64_PATH=build-cuda/libkernel_trace.so KERNEL_TRACE=trace.txt tokamak bench ...
//   bench/kernel_trace.py trace.txt
//
// A line is a kernel: begin and duration in ns, graph, node in the graph, CTAs along x, name. It
// needs libcupti in the library path. Tracing makes a step of hundreds of kernels 1 to 10% longer.
#include <cupti.h>

#include <cstdio>
#include <cstdlib>

namespace {

std::FILE* file = nullptr;

void Allocate(uint8_t** buffer, size_t* size, size_t* max_records) {
  constexpr size_t kBytes = 8 << 20;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBytes));
  *size = *buffer == nullptr ? 0 : kBytes;
  *max_records = 0;  // as many as fit
}

void Write(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel9*>(record);
    std::fprintf(file, "%llu %llu %u %llu %d %s\n", static_cast<unsigned long long>(kernel->start),
                 static_cast<unsigned long long>(kernel->end - kernel->start), kernel->graphId,
                 static_cast<unsigned long long>(kernel->graphNodeId), kernel->gridX, kernel->name);
  }
  std::free(buffer);
}

void Finish() {
  (void)cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  std::fclose(file);
}

}  // namespace

// CUDA calls this while it starts. Returns whether tracing works.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  const char* path = std::getenv("KERNEL_TRACE");
  file = std::fopen(path == nullptr ? "kernel_trace.txt" : path, "w");
  if (file == nullptr) {
    std::perror("kernel_trace");
    return 0;
  }
  const CUptiResult registered = cuptiActivityRegisterCallbacks(Allocate, Write);
  const CUptiResult enabled = cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  if (registered != CUPTI_SUCCESS || enabled != CUPTI_SUCCESS) {
    std::fprintf(stderr, "kernel_trace: CUPTI's errors %d and %d\n", static_cast<int>(registered),
                 static_cast<int>(enabled));
    return 0;
  }
  std::atexit(Finish);
  return 1;
}
